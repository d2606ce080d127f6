//! Other names of agents, in every face; and names that nobody has.

use capstan_gateway::{Gateway, Settings};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::common::{Server, all, ask, client, demo, journal, serve_gateway, start, text};

async fn aliased() -> Server {
    let gateway = Gateway::new(journal()).agent("other", demo()).agent("demo", demo());
    serve_gateway(gateway.alias("demo", "gpt-4o").alias("demo", "qwen/qwen3:8b")).await
}

async fn post(server: &Server, path: &str, body: &Value) -> (u16, String) {
    let post = client().post(format!("{}{path}", server.url)).json(body);
    let response = post.send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

/// The agents of the runs that there are.
async fn agents(server: &Server) -> Vec<String> {
    let listed: Value = server.get("/v1/streams").await.json().await.unwrap();
    let runs = listed["streams"].as_array().unwrap();
    runs.iter().map(|run| run["agent"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_alias_starts_a_run_of_its_agent_in_every_face() {
    let server = aliased().await;
    let said = json!([{ "role": "user", "content": "/tokens 1" }]);
    let message = json!({ "messageId": Uuid::now_v7(), "role": "ROLE_USER",
        "parts": [{ "text": "/tokens 1" }] });
    let agui = json!({ "threadId": "t", "runId": Uuid::now_v7(), "state": {}, "tools": [],
        "context": [], "forwardedProps": {},
        "messages": [{ "id": "1", "role": "user", "content": "/tokens 1" }] });
    let chat = json!({ "id": "c", "messages": [{ "id": "1", "role": "user",
        "parts": [{ "type": "text", "text": "/tokens 1" }] }] });
    for (path, body) in [
        ("/v1/agents/gpt-4o/assist", serde_json::to_value(ask("/tokens 1")).unwrap()),
        ("/v1/agents/qwen%2Fqwen3:8b/assist", serde_json::to_value(ask("/tokens 1")).unwrap()),
        ("/v1/chat/completions", json!({ "model": "gpt-4o", "messages": said })),
        ("/v1/responses", json!({ "model": "qwen/qwen3:8b", "input": "/tokens 1" })),
        ("/v1/messages", json!({ "model": "gpt-4o", "max_tokens": 9, "messages": said })),
        ("/v1/agents/gpt-4o/ag-ui", agui),
        ("/v1/agents/gpt-4o/ai-sdk/chat", chat),
        ("/v1/agents/gpt-4o/a2a/message:send", json!({ "message": message })),
    ] {
        let (status, said) = post(&server, path, &body).await;
        assert_eq!(status, 200, "{path}: {said}");
        assert_eq!(agents(&server).await.pop().as_deref(), Some("demo"), "{path}: {said}");
    }
    assert_eq!(agents(&server).await, vec!["demo"; 8]);
    let stream = "/v1/agents/gpt-4o/ai-sdk/chat/c/stream";
    assert_eq!(server.get(stream).await.status(), 200, "it is the same chat");
    assert_eq!(server.get("/v1/agents/other/ai-sdk/chat/c/stream").await.status(), 204);
    server.stop().await;
}

#[tokio::test]
async fn the_same_request_under_both_names_is_one_run() {
    let server = aliased().await;
    let request = ask("/tokens 2");
    for name in ["demo", "gpt-4o"] {
        let url = format!("{}/v1/agents/{name}/assist", server.url);
        let response = client().post(url).json(&request).send().await.unwrap();
        assert_eq!(text(&all(response).await).split_whitespace().count(), 2, "{name}");
    }
    assert_eq!(agents(&server).await.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn aliases_are_listed_beside_their_agents() {
    let server = aliased().await;
    let models: Value = server.get("/v1/models").await.json().await.unwrap();
    let ids: Vec<&str> =
        models["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["other", "demo", "gpt-4o", "qwen/qwen3:8b"]);
    let model: Value = server.get("/v1/models/qwen%2Fqwen3:8b").await.json().await.unwrap();
    assert_eq!(model["id"], "qwen/qwen3:8b");
    let agents: Value = server.get("/v1/agents").await.json().await.unwrap();
    assert_eq!(agents["agents"][1]["aliases"], json!(["gpt-4o", "qwen/qwen3:8b"]));
    assert!(agents["agents"][0].get("aliases").is_none(), "{agents}");
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_name_is_answered_with_similar_ones() {
    let server = aliased().await;
    let near = "No agent is called \"gpt4o\". Did you mean \"gpt-4o\"?";
    let body = json!({ "model": "gpt4o", "messages": [{ "role": "user", "content": "Hi" }] });
    let (status, said) = post(&server, "/v1/chat/completions", &body).await;
    let error = serde_json::from_str::<Value>(&said).unwrap()["error"].clone();
    assert_eq!((status, &error["code"]), (404, &json!("model_not_found")));
    assert_eq!((&error["message"], &error["details"]["near"]), (&json!(near), &json!(["gpt-4o"])));
    let model: Value = server.get("/v1/models/gpt4o").await.json().await.unwrap();
    assert_eq!(model["error"]["message"], near);
    let asked = serde_json::to_value(ask("Hi")).unwrap();
    let (_, said) = post(&server, "/v1/agents/gpt4o/assist", &asked).await;
    assert!(said.contains("Did you mean \\\"gpt-4o\\\"?"), "{said}");
    let card = server.get("/v1/agents/dem/a2a/.well-known/agent-card.json").await;
    assert!(card.text().await.unwrap().contains("Did you mean \\\"demo\\\"?"));
    server.stop().await;
    let server = start(Settings::default()).await;
    let (_, said) = post(&server, "/v1/chat/completions", &body).await;
    assert!(
        said.contains("No agent is called \\\"gpt4o\\\". GET /v1/models lists"),
        "nothing looks like it: {said}"
    );
    server.stop().await;
}

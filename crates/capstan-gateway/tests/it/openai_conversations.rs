//! Conversations, counts and what else the Responses API has around a response.

use crate::common::{Server, client, demo, journal, serve_gateway};
use capstan_gateway::Gateway;
use serde_json::{Value, json};

async fn serve() -> Server {
    serve_gateway(Gateway::new(journal()).agent("demo", demo())).await
}

async fn call(server: &Server, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let url = format!("{}{path}", server.url);
    let mut request = client().request(method.parse().unwrap(), url);
    if let Some(body) = body {
        request = request.json(&body);
    }
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

async fn ok(server: &Server, method: &str, path: &str, body: Option<Value>) -> Value {
    let (status, told) = call(server, method, path, body).await;
    assert_eq!(status, 200, "{path}: {told}");
    told
}

#[tokio::test]
async fn a_conversation_is_made_lived_in_listed_and_erased() {
    let server = serve().await;
    let made = ok(&server, "POST", "/v1/conversations", Some(json!({}))).await;
    let id = made["id"].as_str().unwrap();
    assert_eq!((&made["object"], &made["metadata"]), (&json!("conversation"), &json!({})));
    let path = format!("/v1/conversations/{id}");
    assert_eq!(ok(&server, "GET", &path, None).await, made);
    let items = format!("{path}/items");
    assert_eq!(ok(&server, "GET", &items, None).await["data"], json!([]));

    let ask = |text: &str| {
        let input = format!("/echo {text}");
        json!({ "model": "demo", "conversation": id, "input": input })
    };
    let first = ok(&server, "POST", "/v1/responses", Some(ask("one"))).await;
    let second = ok(&server, "POST", "/v1/responses", Some(ask("two"))).await;
    assert_eq!(second["conversation"]["id"], id);
    let listed = ok(&server, "GET", &format!("{items}?order=asc"), None).await;
    let texts: Vec<&str> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["content"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["/echo one", "one", "/echo two", "two"]);
    // An item has one id, wherever it is told.
    assert_eq!(listed["data"][1], first["output"][0]);
    let answer = second["output"][0]["id"].as_str().unwrap();
    let found = ok(&server, "GET", &format!("{items}/{answer}"), None).await;
    assert_eq!(found, second["output"][0]);
    let page = ok(&server, "GET", &format!("{items}?limit=1&after={answer}"), None).await;
    assert_eq!((&page["data"][0]["role"], &page["has_more"]), (&json!("user"), &json!(true)));

    let gone = ok(&server, "DELETE", &path, None).await;
    let expected = json!({ "id": id, "object": "conversation.deleted", "deleted": true });
    assert_eq!(gone, expected);
    for path in [&path, &items] {
        assert_eq!(call(&server, "GET", path, None).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn what_a_conversation_cannot_have_is_refused_by_name() {
    let server = serve().await;
    let made = ok(&server, "POST", "/v1/conversations", Some(json!({}))).await;
    let path = format!("/v1/conversations/{}", made["id"].as_str().unwrap());
    let (items, item) = (format!("{path}/items"), format!("{path}/items/msg_1"));
    let message = json!([{ "role": "user", "content": "Hi" }]);
    for (method, path, body, param) in [
        ("POST", "/v1/conversations", json!({ "items": message }), "items"),
        ("POST", "/v1/conversations", json!({ "metadata": { "a": "b" } }), "metadata"),
        ("POST", &path, json!({ "metadata": { "a": "b" } }), "metadata"),
        ("POST", &items, json!({ "items": message }), "items"),
        ("DELETE", &item, json!({}), "item"),
    ] {
        let (status, told) = call(&server, method, path, Some(body)).await;
        assert_eq!((status, &told["error"]["param"]), (400, &json!(param)), "{method} {path}");
    }
}

#[tokio::test]
async fn unknown_conversations_and_items_are_not_found() {
    let server = serve().await;
    let made = ok(&server, "POST", "/v1/conversations", Some(json!({}))).await;
    let path = format!("/v1/conversations/{}", made["id"].as_str().unwrap());
    let invented = uuid::Uuid::now_v7().simple();
    let (_, proof) = path.split_at(path.len() - 16);
    for unknown in [
        "/v1/conversations/nobody-knows".to_owned(),
        format!("/v1/conversations/conv_{invented}"),
        format!("/v1/conversations/conv_{invented}{proof}"),
        format!("{path}0"),
        format!("{path}/items/msg_1"),
    ] {
        let (status, told) = call(&server, "GET", &unknown, None).await;
        assert_eq!(
            (status, &told["error"]["code"]),
            (404, &json!("session_not_found")),
            "{unknown}"
        );
    }
}

#[tokio::test]
async fn tokens_of_responses_are_counted_without_a_run() {
    let server = serve().await;
    let count =
        async |body: Value| call(&server, "POST", "/v1/responses/input_tokens", Some(body)).await;
    let (status, told) = count(json!({ "model": "demo", "input": "x".repeat(4_000) })).await;
    assert_eq!(
        (status, told),
        (
            200,
            json!({ "object": "response.input_tokens",
        "input_tokens": 1_000 })
        )
    );
    let (status, told) = count(json!({ "input": "Hi", "conversation": "c" })).await;
    assert_eq!((status, &told["error"]["param"]), (400, &json!("conversation")));
    let (status, told) = count(json!({ "model": "nobody", "input": "Hi" })).await;
    assert_eq!((status, &told["error"]["code"]), (404, &json!("model_not_found")));
    let runs = ok(&server, "GET", "/v1/streams", None).await;
    assert_eq!(runs["streams"], json!([]));
}

#[tokio::test]
async fn compaction_is_refused_with_a_code_of_its_own() {
    let server = serve().await;
    let body = json!({ "model": "demo", "input": "Hi" });
    let (status, told) = call(&server, "POST", "/v1/responses/compact", Some(body)).await;
    assert_eq!((status, &told["error"]["code"]), (400, &json!("compaction_not_supported")));
}

#[tokio::test]
async fn a_response_repeats_what_its_request_said() {
    let server = serve().await;
    let said = json!({ "truncation": "auto", "prompt_cache_key": "k", "service_tier": "flex",
        "safety_identifier": "s", "max_tool_calls": 3, "metadata": { "a": "b" } });
    let mut body = json!({ "model": "demo", "input": "/echo x" });
    body.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
    let told = ok(&server, "POST", "/v1/responses", Some(body)).await;
    for (name, value) in said.as_object().unwrap() {
        assert_eq!(&told[name], value, "{name}");
    }
}

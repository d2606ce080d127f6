//! A model that its provider does not know: every caller reads its name, and developers where the
//! models are listed.

use crate::common::*;
use capstan_agent::{Clock, Turn};
use capstan_protocol::{Exposure, FaultKind};
use serde_json::{Value, json};

const ABSENT: &str = r#"{"error":{"message":"The model `gpt-5-mni` does not exist","type":"invalid_request_error","code":"model_not_found"}}"#;

async fn provider() -> Provider {
    Provider::start(|_| status(404, &[], ABSENT)).await
}

/// What OpenAI's clients read: the status, and the error.
async fn in_openai(exposure: Exposure) -> (u16, Value, String) {
    let provider = provider().await;
    let config = json!({ "model": "gpt-5-mni", "url": format!("{}/v1", provider.url),
        "query": { "trial": "1" } });
    let agent = provider.agent("openai", config);
    let gateway = gateway_by(Clock::by_hand(), agent, exposure).await;
    let body = json!({ "model": "a", "messages": [{ "role": "user", "content": "Hi" }] });
    let post = client().post(format!("{gateway}/v1/chat/completions")).json(&body);
    let response = post.send().await.unwrap();
    let status = response.status().as_u16();
    (status, response.json().await.unwrap(), provider.url)
}

#[tokio::test]
async fn openais_clients_read_404_and_the_models_name() {
    let (status, body, url) = in_openai(Exposure::Production).await;
    let error = &body["error"];
    assert_eq!((status, &error["code"]), (404, &json!("model_not_found")), "{body}");
    assert_eq!(error["kind"], "model_not_found");
    assert!(error["message"].as_str().unwrap().contains("\"gpt-5-mni\""), "{body}");
    let host = url.strip_prefix("http://").unwrap();
    assert!(!body.to_string().contains(host), "an address is for developers: {body}");
}

#[tokio::test]
async fn developers_read_where_the_models_are_listed() {
    for (kind, base, api) in [
        ("openai", "/v1", "chat-completions"),
        ("openai", "/v1", "responses"),
        ("anthropic", "", ""),
    ] {
        let provider = provider().await;
        let mut config = json!({ "model": "gpt-5-mni", "url": format!("{}{base}", provider.url),
            "query": { "trial": "1" }, "max_calls": 1 });
        if kind == "openai" {
            config["api"] = api.into();
        }
        let fault = run(agent(kind, config), Turn::new("Hi")).await.1.unwrap_err();
        assert_eq!(fault.kind(), FaultKind::ModelNotFound, "{kind} {api}");
        assert_eq!(fault.details()["model"], "gpt-5-mni");
        let cause = fault.cause().unwrap().to_string();
        let list = format!("GET {}/v1/models with the agent's key", provider.url);
        assert!(cause.contains(&list), "{cause}");
    }
}

//! A provider that finds the client's own request wrong: the client reads what is wrong with it, in
//! its own protocol. Statements about keys and accounts stay here.

use serde_json::{Value, json};

use crate::common::*;

const TEXT: &str = "Unsupported parameter: 'top_k' is not supported with this model.";

fn refusal() -> String {
    json!({ "type": "error", "error": { "message": TEXT, "type": "invalid_request_error",
        "param": "top_k", "code": "unsupported_parameter" } })
    .to_string()
}

const AGENTS: [(&str, &str); 3] =
    [("openai", "chat-completions"), ("openai", "responses"), ("anthropic", "")];

/// The status and the body that a client of a face gets for a provider's answer.
async fn told(agent: (&str, &str), path: &str, body: &Value, answer: Vec<Do>) -> (u16, String) {
    let provider = Provider::start(move |_| answer.clone()).await;
    let mut config = json!({ "model": "m", "max_calls": 1, "url": provider.url });
    if agent.0 == "openai" {
        config["api"] = agent.1.into();
    }
    let gateway = provider.gateway(agent.0, config).await;
    let response = client().post(format!("{gateway}{path}")).json(body).send().await.unwrap();
    let told = (response.status().as_u16(), response.text().await.unwrap());
    assert_eq!(provider.calls(), 1);
    told
}

fn chat() -> Value {
    json!({ "messages": [{ "role": "user", "content": "Hi" }] })
}

#[tokio::test]
async fn openais_faces_send_a_providers_refusal_with_its_text() {
    for agent in AGENTS {
        for (path, body) in
            [("/v1/chat/completions", chat()), ("/v1/responses", json!({ "input": "Hi" }))]
        {
            for code in [400, 413, 422] {
                let answer = status(code, &[], &refusal());
                let (status, text) = told(agent, path, &body, answer).await;
                let error = serde_json::from_str::<Value>(&text).unwrap()["error"].clone();
                assert_eq!(status, code, "{agent:?} {path}: {text}");
                assert_eq!(error["message"], TEXT, "{agent:?} {path}: {text}");
                assert_eq!(error["param"], "top_k");
                assert_eq!(error["code"], "unsupported_parameter");
                assert_eq!(error["type"], "invalid_request_error");
                assert_eq!(
                    (&error["kind"], &error["retryable"]),
                    (&json!("upstream_error"), &json!(false))
                );
            }
        }
    }
}

#[tokio::test]
async fn a_stream_has_the_same_text_for_a_refused_request() {
    for (path, mut body) in
        [("/v1/chat/completions", chat()), ("/v1/responses", json!({ "input": "Hi" }))]
    {
        body["stream"] = true.into();
        let answer = status(400, &[], &refusal());
        let (_, text) = told(AGENTS[0], path, &body, answer).await;
        let mut data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let error = data
            .find_map(|data| {
                let data: Value = serde_json::from_str(data).ok()?;
                data.get("error").filter(|error| error.is_object()).cloned()
            })
            .unwrap();
        assert_eq!((&error["message"], &error["param"]), (&json!(TEXT), &json!("top_k")), "{text}");
        assert_eq!(error["code"], "unsupported_parameter");
    }
}

#[tokio::test]
async fn messages_send_a_refused_request_in_anthropics_form() {
    let mut body = chat();
    body["max_tokens"] = 5.into();
    for agent in AGENTS {
        for (code, kind) in [
            (400, "invalid_request_error"),
            (413, "request_too_large"),
            (422, "invalid_request_error"),
        ] {
            let answer = status(code, &[], &refusal());
            let (status, text) = told(agent, "/v1/messages", &body, answer).await;
            let error = serde_json::from_str::<Value>(&text).unwrap()["error"].clone();
            assert!((400..500).contains(&status), "{agent:?} {code}: {status} {text}");
            assert_eq!((&error["type"], &error["message"]), (&json!(kind), &json!(TEXT)), "{text}");
        }
        let long = json!({ "error": { "message": "This model's maximum context length is 9.",
            "code": "context_length_exceeded" } });
        let answer = status(400, &[], &long.to_string());
        let (status, text) = told(agent, "/v1/messages", &body, answer).await;
        let error = serde_json::from_str::<Value>(&text).unwrap()["error"].clone();
        assert_eq!((status, &error["type"]), (400, &json!("invalid_request_error")), "{text}");
        let message = error["message"].as_str().unwrap();
        // A provider of the client's own protocol knows the words that its clients look for.
        let expected = if agent.0 == "anthropic" { "This model's" } else { "prompt is too long: " };
        assert!(message.starts_with(expected), "{agent:?}: {message}");
    }
}

#[tokio::test]
async fn a_providers_words_about_the_operators_key_stay_here() {
    let secret = json!({ "error": { "message": "Key sk-operator of org-operator is out of quota",
        "type": "tokens", "param": null, "code": "rate_limit_exceeded" } });
    for agent in AGENTS {
        for code in [401, 403, 429, 500] {
            let answer = status(code, &[], &secret.to_string());
            let (status, text) = told(agent, "/v1/chat/completions", &chat(), answer).await;
            assert!(!text.contains("operator"), "{agent:?} {code}: {text}");
            assert_ne!((status, code), (401, 401), "{text}");
            assert_ne!((status, code), (403, 403), "{text}");
        }
        // A wrong address of the agent's is no fault of the request.
        let lost = status(404, &[], r#"{"detail":"Not Found at operator"}"#);
        let (status, text) = told(agent, "/v1/chat/completions", &chat(), lost).await;
        assert!(status >= 500 && !text.contains("operator"), "{agent:?}: {status} {text}");
    }
}

//! Presets, each tried against a server that is as strict as the real one.

use crate::common::*;
use capstan_agent::{Output, Turn};
use capstan_protocol::{ChatMessage, Fault, Parameters};
use serde_json::{Value, json};

/// A variable that is set wherever these tests run, as the one that holds a key.
const KEY_ENV: &str = "CARGO_PKG_NAME";
const KEY: &str = env!("CARGO_PKG_NAME");

/// A server that is strict about what it is sent.
struct Strict {
    preset: &'static str,
    /// Where it takes requests, and which head it wants there.
    line: &'static str,
    head: fn() -> String,
    /// The name of its token limit.
    limit: &'static str,
    /// What it does with a member that it does not know.
    unknown: Unknown,
    /// The members that it knows besides the usual ones.
    known: &'static [&'static str],
}

enum Unknown {
    Ignored,
    Refused(u16, fn(&str) -> Value),
}

/// Members that every one of them knows.
const USUAL: [&str; 7] = ["model", "messages", "stream", "temperature", "top_p", "stop", "tools"];

fn bearer() -> String {
    format!("authorization: bearer {KEY}")
}

fn pydantic(name: &str) -> Value {
    json!({ "object": "error", "message": { "detail": [{ "type": "extra_forbidden",
        "loc": ["body", name], "msg": "Extra inputs are not permitted", "input": 1 }] },
        "type": "invalid_request_error", "param": null, "code": null })
}

fn google(name: &str) -> Value {
    let message =
        format!("Invalid JSON payload received. Unknown name \"{name}\": Cannot find field.");
    json!([{ "error": { "code": 400, "message": message, "status": "INVALID_ARGUMENT" } }])
}

fn openai(name: &str) -> Value {
    json!({ "error": { "message": format!("Unrecognized request argument supplied: {name}"),
        "type": "invalid_request_error", "param": null, "code": null } })
}

fn groq(name: &str) -> Value {
    json!({ "error": { "message": format!("property '{name}' is unsupported"),
        "type": "invalid_request_error" } })
}

const SERVERS: &[Strict] = &[
    Strict {
        preset: "openai",
        line: "post /v1/chat/completions http",
        head: bearer,
        limit: "max_completion_tokens",
        unknown: Unknown::Refused(400, openai),
        known: &["stream_options", "seed"],
    },
    Strict {
        preset: "azure",
        line: "post /openai/v1/chat/completions http",
        head: || format!("api-key: {KEY}"),
        limit: "max_completion_tokens",
        unknown: Unknown::Refused(400, openai),
        known: &["stream_options", "seed"],
    },
    Strict {
        preset: "deepseek",
        line: "post /v1/chat/completions http",
        head: bearer,
        limit: "max_tokens",
        unknown: Unknown::Ignored,
        known: &["stream_options"],
    },
    Strict {
        preset: "gemini",
        line: "post /v1beta/openai/chat/completions http",
        head: bearer,
        limit: "max_tokens",
        unknown: Unknown::Refused(400, google),
        known: &["stream_options"],
    },
    Strict {
        preset: "groq",
        line: "post /openai/v1/chat/completions http",
        head: bearer,
        limit: "max_completion_tokens",
        unknown: Unknown::Refused(400, groq),
        known: &["stream_options", "seed"],
    },
    Strict {
        preset: "llama-cpp",
        line: "post /v1/chat/completions http",
        head: bearer,
        limit: "max_tokens",
        unknown: Unknown::Ignored,
        known: &["stream_options", "seed"],
    },
    Strict {
        preset: "mistral",
        line: "post /v1/chat/completions http",
        head: bearer,
        limit: "max_tokens",
        unknown: Unknown::Refused(422, pydantic),
        known: &["random_seed"],
    },
    Strict {
        preset: "ollama",
        line: "post /v1/chat/completions http",
        head: bearer,
        limit: "max_tokens",
        unknown: Unknown::Ignored,
        known: &["stream_options", "seed"],
    },
    Strict {
        preset: "openrouter",
        line: "post /api/v1/chat/completions http",
        head: bearer,
        limit: "max_tokens",
        unknown: Unknown::Ignored,
        known: &["stream_options", "seed"],
    },
    Strict {
        preset: "vllm",
        line: "post /v1/chat/completions http",
        head: bearer,
        limit: "max_tokens",
        unknown: Unknown::Refused(400, pydantic),
        known: &["stream_options", "seed"],
    },
];

impl Strict {
    /// Refuses what the real one refuses; answers with as many words as it was allowed.
    fn judge(&self, seen: &Seen) -> Vec<Do> {
        if !seen.head.starts_with(self.line) {
            return status(404, &[], r#"{"detail":"Not Found"}"#);
        }
        if !seen.head.lines().any(|line| line == (self.head)()) {
            return status(401, &[], r#"{"error":{"message":"Unauthorized"}}"#);
        }
        let body = seen.body.as_object().unwrap();
        let is_known =
            |name: &str| name == self.limit || USUAL.contains(&name) || self.known.contains(&name);
        let unknown = body.keys().find(|name| !is_known(name));
        if let (Unknown::Refused(code, words), Some(name)) = (&self.unknown, unknown) {
            return status(*code, &[], &words(name).to_string());
        }
        let is_named = |message: &Value| message.get("name").is_some();
        if self.preset == "groq" && body["messages"].as_array().unwrap().iter().any(is_named) {
            return status(400, &[], &groq("name").to_string());
        }
        let most = body.get(self.limit).map_or(60, |limit| limit.as_u64().unwrap() as usize);
        [vec![stream_head()], tokens(1, most), finish("length")].concat()
    }

    async fn start(&'static self) -> Provider {
        Provider::judging(move |_, seen| self.judge(seen)).await
    }
}

/// A turn that asks for all that the common parameters have.
fn turn() -> Turn {
    let mut turn = Turn::new("Hi");
    let parameters = Parameters {
        max_tokens: Some(5),
        temperature: Some(0.5),
        top_p: Some(0.9),
        stop: vec!["END".into()],
        ..Parameters::default()
    };
    turn.parameters = parameters.into();
    turn
}

fn seeded() -> Turn {
    let mut turn = turn();
    let mut parameters = (*turn.parameters).clone();
    parameters.seed = Some(7);
    turn.parameters = parameters.into();
    turn
}

async fn asked(provider: &Provider, more: Value, turn: Turn) -> Result<String, Fault> {
    let mut config = json!({ "model": "m", "url": provider.url, "key_env": KEY_ENV,
        "attempts": 1, "max_calls": 1 });
    config.as_object_mut().unwrap().extend(keys(more));
    let (outputs, ended) = run(agent("openai", config), turn).await;
    let text = |output: &Output| {
        if let Output::Delta(text) = output { Some(text.clone()) } else { None }
    };
    ended.map(|()| outputs.iter().filter_map(text).collect())
}

#[tokio::test]
async fn every_preset_satisfies_its_strict_server() {
    for server in SERVERS {
        let provider = server.start().await;
        let answer = asked(&provider, json!({ "preset": server.preset }), turn()).await;
        assert_eq!(answer.unwrap(), words(5), "{}", server.preset);
    }
}

#[tokio::test]
async fn without_its_preset_a_server_gets_the_usual_members() {
    // The others have an address, a key or members of their own.
    let usual = ["deepseek", "llama-cpp", "ollama", "vllm"];
    for server in SERVERS.iter().filter(|server| server.preset != "openai") {
        let provider = server.start().await;
        let url = format!("{}/v1", provider.url);
        let answer = asked(&provider, json!({ "url": url }), seeded()).await;
        let is_served = answer.is_ok_and(|text| text == words(5));
        assert_eq!(is_served, usual.contains(&server.preset), "{}", server.preset);
    }
}

#[tokio::test]
async fn every_preset_is_tried() {
    let unknown = json!({ "model": "m", "preset": "no-such" });
    let kinds = capstan_upstream::Kinds::default();
    let built = kinds.build("openai", keys(unknown), &capstan_agent::Clock::default());
    let Err(error) = built else { panic!("an unknown preset is taken") };
    let mut known: Vec<&str> = error.known().collect();
    let mut tried: Vec<&str> = SERVERS.iter().map(|server| server.preset).collect();
    known.sort_unstable();
    tried.sort_unstable();
    assert_eq!(known, tried);
}

#[tokio::test]
async fn a_seed_is_sent_under_the_servers_name_or_refused_by_name() {
    for server in SERVERS {
        let provider = server.start().await;
        let answer = asked(&provider, json!({ "preset": server.preset }), seeded()).await;
        let sent = provider.seen().pop().map(|seen| seen.body).unwrap_or_default();
        match server.preset {
            "mistral" => {
                assert_eq!((&sent["random_seed"], &sent["seed"]), (&json!(7), &Value::Null))
            }
            "gemini" => {
                let fault = answer.unwrap_err();
                assert_eq!((fault.code(), provider.calls()), ("invalid_request", 0));
                assert!(fault.message().contains("seed"), "{fault:?}");
            }
            _ => assert_eq!(sent["seed"], 7, "{}", server.preset),
        }
    }
}

#[tokio::test]
async fn a_name_that_groq_refuses_is_refused_before_it_is_called() {
    let groq = SERVERS.iter().find(|server| server.preset == "groq").unwrap();
    let provider = groq.start().await;
    let mut named = ChatMessage::user("Hi");
    named.name = Some("ada".into());
    let preset = json!({ "preset": "groq" });
    let fault = asked(&provider, preset, Turn::of(named.clone())).await.unwrap_err();
    assert_eq!((fault.code(), provider.calls()), ("invalid_request", 0));
    assert!(fault.message().contains("messages.name"), "{fault:?}");
    let own = json!({ "preset": "groq", "refuse": [] });
    let fault = asked(&provider, own, Turn::of(named)).await.unwrap_err();
    assert_eq!((fault.details()["upstream_status"].as_u64(), provider.calls()), (Some(400), 1));
}

#[tokio::test]
async fn configured_limit_is_sent_under_the_presets_name() {
    let provider = Provider::start(|_| answer()).await;
    let config = json!({ "preset": "openai", "parameters": { "max_tokens": 3 } });
    asked(&provider, config, turn()).await.unwrap();
    let body = provider.seen().remove(0).body;
    assert_eq!((&body["max_completion_tokens"], body.get("max_tokens")), (&json!(3), None));
}

#[tokio::test]
async fn azures_older_addresses_get_a_version() {
    let path = "openai/deployments/d/chat/completions?api-version";
    for (query, version) in [(json!({}), "2024-10-21"), (json!({ "api-version": "v9" }), "v9")] {
        let provider = Provider::start(|_| answer()).await;
        let url = format!("{}/openai/deployments/d", provider.url);
        let config = json!({ "preset": "azure", "url": url, "query": query });
        asked(&provider, config, turn()).await.unwrap();
        let head = provider.seen()[0].head.clone();
        assert!(head.starts_with(&format!("post /{path}={version} http")), "{head}");
        assert!(head.contains(&format!("api-key: {KEY}")), "{head}");
    }
}

#[tokio::test]
async fn settings_replace_what_a_preset_says() {
    let provider = Provider::start(|_| answer()).await;
    let config = json!({ "preset": "mistral", "max_tokens_field": "max_completion_tokens",
        "rename": { "top_p": "nucleus" }, "refuse": [], "key_header": "x-own" });
    asked(&provider, config, seeded()).await.unwrap();
    let seen = provider.seen().remove(0);
    assert!(seen.head.contains(&format!("x-own: {KEY}")), "{}", seen.head);
    let sent = |name: &str| seen.body.get(name).cloned();
    assert_eq!(sent("max_completion_tokens"), Some(json!(5)));
    assert_eq!((sent("nucleus"), sent("top_p")), (Some(json!(0.9)), None));
    assert_eq!((sent("seed"), sent("random_seed")), (Some(json!(7)), None));
    assert_eq!(sent("stream_options"), Some(json!({ "include_usage": true })));
}

#[test]
fn senseless_settings_are_refused_at_the_start() {
    let refused = |kind: &str, config: Value| {
        let kinds = capstan_upstream::Kinds::default();
        let mut all = keys(json!({ "model": "m" }));
        all.extend(keys(config));
        match kinds.build(kind, all, &capstan_agent::Clock::default()) {
            Ok(_) => "taken".to_owned(),
            Err(error) => error.to_string(),
        }
    };
    for (kind, config, why) in [
        ("openai", json!({ "preset": "azure" }), "set url"),
        ("openai", json!({ "preset": "mistrl" }), "unknown preset"),
        ("anthropic", json!({ "preset": "azure" }), "only agents of kind openai"),
        ("openai", json!({ "max_tokens_field": "limit" }), "no name of a token limit"),
        ("openai", json!({ "api": "responses", "rename": {} }), "only api"),
        ("openai", json!({ "key_header": "a b" }), "no header's name"),
        (
            "openai",
            json!({ "preset": "gemini", "parameters": { "seed": 1 } }),
            "does not take seed",
        ),
        (
            "openai",
            json!({ "key_env": KEY_ENV, "headers": { "Authorization": { "env": KEY_ENV } } }),
            "give one of them",
        ),
    ] {
        let told = refused(kind, config.clone());
        assert!(told.contains(why), "{config}: {told}");
    }
}

//! Foreign A2A agents behind a gateway: one that is a gateway itself, in each version and binding,
//! and one that breaks.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common::*;
use crate::continued;
use capstan_agent::{Agent, Clock, Turn};
use capstan_chaos::{After, At, Chaos, Cut, Faults, Handle, With};
use capstan_demo::Demo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use uuid::Uuid;

/// As a configuration names them: by the card, and without it.
fn ways(far: &str) -> Vec<(&'static str, Value)> {
    let rpc = format!("{far}/v1/a2a");
    vec![
        ("by its card", json!({ "url": far })),
        ("1.0", json!({ "url": rpc, "protocol": "1.0" })),
        ("1.0, HTTP+JSON", json!({ "url": rpc, "protocol": "1.0", "binding": "http+json" })),
        ("0.3", json!({ "url": rpc, "protocol": "0.3" })),
    ]
}

async fn demo() -> String {
    gateway(Demo::with_delay(Duration::ZERO)).await
}

async fn near(config: Value) -> String {
    gateway(agent_by(Clock::by_hand(), "a2a", config)).await
}

/// A proxy before a server, and what it did.
async fn broken(server: &str, faults: Faults, seed: u64) -> (String, Handle) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let upstream: SocketAddr = server.strip_prefix("http://").unwrap().parse().unwrap();
    let chaos = Chaos::new(upstream.into(), faults, seed);
    let handle = chaos.handle();
    tokio::spawn(async move { chaos.serve(listener, std::future::pending::<()>()).await });
    (url, handle)
}

#[tokio::test]
async fn a_foreign_agent_answers_in_each_version_and_binding() {
    let model = Provider::start(|_| answer()).await;
    let far = gateway(model.agent("openai", json!({ "url": model.url, "model": "m" }))).await;
    for (way, config) in ways(&far) {
        let told = ask(&near(config).await, "Hi").await;
        assert_eq!((told.text, told.errors), (words(60), vec![]), "{way}");
        let close = told.close.unwrap();
        let told = (
            &close["reason"],
            &close["model"],
            &close["usage"]["output_tokens"],
            &close["attempts"],
        );
        assert_eq!(told, (&json!("completed"), &json!("m-1"), &json!(60), &json!(1)), "{way}");
    }
}

#[tokio::test]
async fn parts_other_than_text_come_through() {
    let far = demo().await;
    for (way, config) in ways(&far) {
        let near = near(config).await;
        let events = ask(&near, "/events").await;
        let kinds = types(&events);
        for kind in ["CITATION_BLOCK", "MEDIA_CAROUSEL", "PROGRESS_INDICATOR"] {
            assert!(kinds.contains(&kind), "{way}: {kinds:?}");
        }
        let warned = ask(&near, "/warn").await;
        assert_eq!(warned.errors.len(), 1, "{way}: {}", warned.raw);
        let hurt = ask(&near, "/user-error").await;
        assert!(types(&hurt).contains(&"user_error"), "{way}: {}", hurt.raw);
        assert_eq!(hurt.close.unwrap()["reason"], "completed", "{way}");
    }
}

#[tokio::test]
async fn a_fault_of_the_far_gateway_keeps_its_code() {
    let far = demo().await;
    for (way, config) in ways(&far) {
        let told = ask(&near(config).await, "/fault content_refused").await;
        assert_eq!(
            told.errors.last().map(|error| error.code.as_str()),
            Some("content_refused"),
            "{way}"
        );
    }
}

#[tokio::test]
async fn a_cut_is_read_on_where_it_was_and_starts_nothing_twice() {
    for (seed, packets) in (1..).zip([1, 2, 7, 20, 40, 59]) {
        let far = demo().await;
        let cut = Cut {
            rate: 1.0,
            after: After::Packets(packets..=packets),
            at: At::Exact,
            with: With::Any,
        };
        let faults = Faults { cut, budget: Some(1), ..Faults::default() };
        let (url, handle) = broken(&far, faults, seed).await;
        let way = ways(&url).swap_remove(seed as usize % 4);
        let near = near(way.1).await;
        let told = ask(&near, "/tokens 60 --delay 1ms").await;
        assert_eq!((told.text, told.errors), (words(60), vec![]), "{}, cut after {packets}", way.0);
        assert_eq!(continued::ways(&near).await, ["upstream_resume"], "{}", way.0);
        assert!(!told.raw.contains("stream_reset"), "nothing was said twice");
        assert_eq!(handle.tally().cuts, 1, "{}, after {packets}", way.0);
        let list: Value =
            client().get(format!("{far}/v1/streams")).send().await.unwrap().json().await.unwrap();
        assert_eq!(list["streams"].as_array().unwrap().len(), 1, "{}: {list}", way.0);
    }
}

#[tokio::test]
async fn cuts_again_and_again_lose_nothing() {
    let far = demo().await;
    let cut = Cut { rate: 1.0, after: After::Packets(3..=9), at: At::Frame, with: With::Any };
    let (url, handle) = broken(&far, Faults { cut, budget: Some(6), ..Faults::default() }, 7).await;
    let told = ask(
        &near(json!({ "url": format!("{url}/v1/a2a"), "protocol": "1.0" })).await,
        "/tokens 60 --delay 2ms",
    )
    .await;
    assert_eq!((told.text, told.errors), (words(60), vec![]));
    assert!(handle.tally().cuts >= 3, "{:?}", handle.tally());
}

#[tokio::test]
async fn a_question_is_an_interrupt_and_its_answer_continues_the_task() {
    let far = demo().await;
    for (way, config) in ways(&far) {
        let near = near(config).await;
        let mut input = json!({ "threadId": Uuid::now_v7().to_string(), "runId": "one",
        "state": {}, "tools": [], "context": [],
            "forwardedProps": {}, "messages": [{ "id": "1", "role": "user",
            "content": "/ask Paint it?" }] });
        let post = async |input: &Value| {
            client()
                .post(format!("{near}/v1/ag-ui"))
                .json(input)
                .send()
                .await
                .unwrap()
                .text()
                .await
                .unwrap()
        };
        let asked = post(&input).await;
        assert!(asked.contains("Paint it?"), "{way}: {asked}");
        let id =
            asked.split(r#""interrupts":[{"id":""#).nth(1).and_then(|rest| rest.split('"').next());
        let id = id.unwrap_or_else(|| panic!("{way}: {asked}"));
        (input["runId"], input["messages"]) = (json!("two"), json!([]));
        input["resume"] = json!([{ "interruptId": id, "status": "resolved", "payload": "blue" }]);
        let answered = post(&input).await;
        assert!(
            answered.contains("blue") && answered.contains("RUN_FINISHED"),
            "{way}: {answered}"
        );
        assert!(
            !answered.contains("Paint it?\",\"responseSchema"),
            "{way}: it does not ask again: {answered}"
        );
    }
}

fn event(version: &str, value: Value) -> Do {
    match version {
        "rest" => chunk(&value),
        _ => chunk(&json!({ "jsonrpc": "2.0", "id": 1, "result": value })),
    }
}

async fn outcome(
    acts: Vec<Do>,
) -> (Vec<capstan_agent::Output>, Result<(), capstan_protocol::Fault>) {
    let provider = Provider::start(move |_| acts.clone()).await;
    let agent: Box<dyn Agent> =
        provider.agent("a2a", json!({ "url": provider.url, "protocol": "1.0", "max_calls": 1 }));
    run(agent, Turn::new("Hi")).await
}

/// An agent of version 0.3 that tells those who come back only what is new: the task has what they
/// missed.
#[tokio::test]
async fn output_during_a_cut_is_fetched() {
    let artifact = |text: &str, append: bool| {
        event(
            "0.3",
            json!({ "kind": "artifact-update", "taskId": "t", "contextId": "c", "append": append,
            "artifact": { "artifactId": "a", "parts": [{ "kind": "text", "text": text }] } }),
        )
    };
    let task = |state: &str, text: &str| {
        let task = json!({ "kind": "task", "id": "t", "contextId": "c",
        "status": { "state": state },
            "artifacts": [{ "artifactId": "a", "parts": [{ "kind": "text", "text": text }] }] });
        json!({ "jsonrpc": "2.0", "id": 1, "result": task }).to_string()
    };
    let done = event(
        "0.3",
        json!({ "kind": "status-update", "taskId": "t", "contextId": "c", "final": true,
        "status": { "state": "completed" } }),
    );
    let provider = Provider::start(move |nth| match nth {
        0 => vec![stream_head(), artifact("One ", false), Do::Reset],
        1 => status(200, &[], &task("working", "One two ")),
        // "three " is said before the subscription stands.
        2 => vec![stream_head(), artifact("four", true), done.clone()],
        _ => status(200, &[], &task("completed", "One two three four")),
    })
    .await;
    provider.clock.strike(capstan_agent::Timer::Again);
    let gateway = gateway(agent("a2a", json!({ "url": provider.url, "protocol": "0.3" }))).await;
    let told = ask(&gateway, "Hi").await;
    assert_eq!((told.text.as_str(), told.errors.len()), ("One two three four", 0), "{}", told.raw);
    let methods: Vec<Value> =
        provider.seen().iter().map(|seen| seen.body["method"].clone()).collect();
    assert_eq!(methods, ["message/stream", "tasks/get", "tasks/resubscribe", "tasks/get"]);
}

/// It was at work when it was asked for, and is over when it is subscribed to: over HTTP+JSON that
/// is a refusal.
#[tokio::test]
async fn a_task_that_ends_before_the_subscription_is_fetched() {
    let task = |state: &str, text: &str| {
        json!({ "id": "t", "contextId": "c", "status": { "state": state },
            "artifacts": [{ "artifactId": "a", "parts": [{ "text": text }] }] })
    };
    let provider = Provider::start(move |nth| match nth {
        0 => {
            vec![
                stream_head(),
                event("rest", json!({ "task": task("TASK_STATE_WORKING", "One ") })),
                Do::Reset,
            ]
        }
        1 => status(200, &[], &task("TASK_STATE_WORKING", "One ").to_string()),
        2 => status(
            400,
            &[],
            r#"{"error":{"code":400,"status":"FAILED_PRECONDITION","message":"It is over."}}"#,
        ),
        _ => status(200, &[], &task("TASK_STATE_COMPLETED", "One two").to_string()),
    })
    .await;
    let config = json!({ "url": provider.url, "protocol": "1.0", "binding": "http+json" });
    let (outputs, outcome) = run(provider.agent("a2a", config), Turn::new("Hi")).await;
    outcome.unwrap();
    assert!(outputs.contains(&capstan_agent::Output::Delta("two".into())), "{outputs:?}");
    assert_eq!(provider.calls(), 4);
}

#[tokio::test]
async fn an_agent_without_streams_is_asked_until_it_is_done() {
    let task = |state: &str| {
        let artifacts = if state == "TASK_STATE_COMPLETED" {
            json!([{ "artifactId": "a", "parts": [{ "text": "Done." }] }])
        } else {
            json!([])
        };
        json!({ "id": "t", "contextId": "c", "status": { "state": state }, "artifacts": artifacts })
    };
    let answer = |result: Value| {
        status(200, &[], &json!({ "jsonrpc": "2.0", "id": 1, "result": result }).to_string())
    };
    let provider = Provider::start(move |nth| match nth {
        0 => status(
            200,
            &[],
            &json!({ "supportedInterfaces": [{ "url": "/rpc",
        "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }] })
            .to_string(),
        ),
        1 => answer(json!({ "task": task("TASK_STATE_SUBMITTED") })),
        2..=8 => answer(task("TASK_STATE_WORKING")),
        _ => answer(task("TASK_STATE_COMPLETED")),
    })
    .await;
    let (outputs, outcome) =
        run(provider.agent("a2a", json!({ "url": provider.url })), Turn::new("Hi")).await;
    outcome.unwrap();
    assert!(outputs.contains(&capstan_agent::Output::Delta("Done.".into())), "{outputs:?}");
    let seen = provider.seen();
    assert_eq!(
        (seen.len(), &seen[1].body["method"], &seen[9].body["method"]),
        (10, &json!("SendMessage"), &json!("GetTask"))
    );
    assert!(seen[1].head.contains("a2a-version: 1.0"), "{}", seen[1].head);
}

#[tokio::test]
async fn a_message_alone_is_an_answer() {
    let said = json!({ "message": { "messageId": "m", "role": "ROLE_AGENT",
    "parts": [{ "text": "Hello." }] } });
    let (outputs, outcome) = outcome(vec![stream_head(), event("1.0", said)]).await;
    outcome.unwrap();
    assert!(outputs.contains(&capstan_agent::Output::Delta("Hello.".into())), "{outputs:?}");
}

#[tokio::test]
async fn another_server_in_a_card_gets_neither_key_nor_request() {
    let elsewhere = Provider::start(|_| status(200, &[], "{}")).await;
    let there = format!("{}/rpc", elsewhere.url);
    let card = json!({ "supportedInterfaces": [{ "url": there, "protocolBinding": "JSONRPC",
    "protocolVersion": "1.0" }] });
    let provider = Provider::start(move |_| status(200, &[], &card.to_string())).await;
    let (_, outcome) =
        run(provider.agent("a2a", json!({ "url": provider.url })), Turn::new("Hi")).await;
    assert_eq!(outcome.unwrap_err().code(), "upstream_malformed");
    assert_eq!((provider.calls(), elsewhere.calls()), (1, 0));
}

#[tokio::test]
async fn a_card_is_fetched_until_a_server_answers_then_cached() {
    let far = demo().await;
    let card: Value = client()
        .get(format!("{far}/.well-known/agent-card.json"))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert!(card["supportedInterfaces"].is_array());
    let done = json!({ "message": { "messageId": "m", "role": "ROLE_AGENT",
    "parts": [{ "text": "Yes." }] } });
    let done = json!({ "jsonrpc": "2.0", "id": 1, "result": done }).to_string();
    let provider = Provider::start(move |nth| match nth {
        0 => status(503, &[], "{}"),
        1 => status(
            200,
            &[],
            &json!({ "url": "/rpc", "capabilities": { "streaming": true } }).to_string(),
        ),
        _ => status(200, &[], &done),
    })
    .await;
    let gateway = provider.gateway("a2a", json!({ "url": provider.url })).await;
    for _ in 0..2 {
        assert_eq!(ask(&gateway, "Hi").await.text, "Yes.");
    }
    let asked = provider.seen().iter().filter(|seen| seen.head.starts_with("get ")).count();
    assert_eq!((asked, provider.calls()), (2, 4), "twice in vain and not, then never");
}

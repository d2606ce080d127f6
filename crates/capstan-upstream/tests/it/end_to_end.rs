//! Each kind behind a gateway: the same turn, the same contract.

use std::time::Duration;

use crate::common::*;
use crate::continued;
use capstan_agent::{Agent, Timer};
use capstan_demo::Demo;
use serde_json::{Value, json};

fn anthropic_answer() -> Vec<Do> {
    let event = |value: Value| {
        Do::Write(format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap()))
    };
    let text = |text: &str| {
        event(json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta",
            "text": text } }))
    };
    let mut acts = vec![
        stream_head(),
        event(json!({ "type": "message_start", "message": { "model": "m-1",
            "usage": { "input_tokens": 7, "output_tokens": 1 } } })),
        event(json!({ "type": "ping" })),
        event(
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text",
            "text": "" } }),
        ),
    ];
    acts.extend((1..=60).map(|n| text(&format!("tok{n} "))));
    acts.push(event(json!({ "type": "content_block_stop", "index": 0 })));
    acts.push(event(json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" },
    "usage": { "output_tokens": 60 } })));
    acts.push(event(json!({ "type": "message_stop" })));
    acts
}

fn agui_answer() -> Vec<Do> {
    let mut acts = vec![
        stream_head(),
        chunk(&json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r" })),
    ];
    acts.push(chunk(
        &json!({ "type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant" }),
    ));
    acts.extend((1..=60).map(|n| {
        chunk(&json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": "m",
        "delta": format!("tok{n} ") }))
    }));
    acts.push(chunk(&json!({ "type": "TEXT_MESSAGE_END", "messageId": "m" })));
    let usage = json!([{ "model": "m-1", "outputTokens": 60 }]);
    acts.push(chunk(
        &json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r", "usage": usage }),
    ));
    acts
}

/// A process that speaks the 60 tokens as partial messages.
fn process() -> Value {
    let script = r#"
e() { printf '{"type":"stream_event","uuid":"u","session_id":"s","parent_tool_use_id":null,"event":%s}\n' "$1"; }
printf '{"type":"system","subtype":"init","model":"m-1"}\n'
e '{"type":"message_start","message":{"id":"a"}}'
t=; i=1; while [ $i -le 60 ]; do e "{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"tok$i \"}}"; t="${t}tok$i "; i=$((i+1)); done
printf '{"type":"assistant","message":{"id":"a","model":"m-1","content":[{"type":"text","text":"%s"}]},"parent_tool_use_id":null}\n' "$t"
printf '{"type":"result","subtype":"success","duration_ms":1,"duration_api_ms":1,"is_error":false,"num_turns":1,"session_id":"s","usage":{"output_tokens":60}}\n'"#;
    json!({ "command": ["sh", "-c", script] })
}

async fn provider(acts: Vec<Do>) -> String {
    let provider = Provider::start(move |_| acts.clone()).await;
    provider.url
}

async fn kinds() -> Vec<(&'static str, Box<dyn Agent>)> {
    let upstream =
        gateway(agent("openai", json!({ "url": provider(answer()).await, "model": "m" }))).await;
    let cap = |profile: &str| json!({ "url": upstream, "profile": profile });
    vec![
        ("openai", agent("openai", json!({ "url": provider(answer()).await, "model": "m" }))),
        (
            "anthropic",
            agent("anthropic", json!({ "url": provider(anthropic_answer()).await, "model": "m" })),
        ),
        ("ag-ui", agent("ag-ui", json!({ "url": provider(agui_answer()).await }))),
        ("command", agent("command", process())),
        ("cap v1", agent("cap", cap("v1"))),
        ("cap v2", agent("cap", cap("v2"))),
    ]
}

#[tokio::test]
async fn each_kind_answers_in_cap_and_in_json_mode() {
    for (kind, agent) in kinds().await {
        let gateway = gateway(agent).await;
        let told = ask(&gateway, "Hi").await;
        assert_eq!(told.text, words(60), "{kind}: {:?}", told.errors);
        assert!(told.errors.is_empty(), "{kind}: {:?}", told.errors);
        let close = told.close.unwrap();
        assert_eq!(
            (&close["reason"], &close["agent"], &close["model"]),
            (&json!("completed"), &json!("a"), &json!("m-1")),
            "{kind}"
        );
        assert_eq!(
            (&close["attempts"], &close["usage"]["output_tokens"]),
            (&json!(1), &json!(60)),
            "{kind}"
        );
        let (status, answer) = ask_json(&gateway, "Hi").await;
        assert_eq!((status, &answer["output"]["text"]), (200, &json!(words(60))), "{kind}");
        let list: Value = client()
            .get(format!("{gateway}/v1/streams"))
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        assert_eq!(list["streams"][0]["model"], "m-1", "{kind}: {list}");
    }
}

#[tokio::test]
async fn a_conversation_is_sent_along() {
    let provider = Provider::start(|_| answer()).await;
    let gateway = gateway(agent(
        "openai",
        json!({ "url": provider.url, "model": "m", "system": "Be kind." }),
    ))
    .await;
    let mut request = question("One?");
    post(&gateway, &request, "application/json").await;
    let session = request.context.session_id;
    request = capstan_protocol::ServiceRequest::new(
        request.context.clone(),
        capstan_protocol::AgentRequest::query(session, "Two?"),
    );
    post(&gateway, &request, "application/json").await;
    let messages = provider.seen()[1].body["messages"].clone();
    let said: Vec<(&str, &str)> = messages
        .as_array()
        .unwrap()
        .iter()
        .map(|m| (m["role"].as_str().unwrap(), m["content"].as_str().unwrap()))
        .collect();
    let answer = words(60);
    assert_eq!(
        said,
        [
            ("system", "Be kind."),
            ("user", "One?"),
            ("assistant", answer.as_str()),
            ("user", "Two?")
        ]
    );
}

#[tokio::test]
async fn a_part_that_the_provider_cannot_take_is_an_invalid_request_that_names_it() {
    let provider = Provider::start(|_| answer()).await;
    let gateway = gateway(agent("openai", json!({ "url": provider.url, "model": "m" }))).await;
    let mut request = question("x");
    request.payload.payload = keys(json!({ "messages": [{ "role": "user", "parts": [
        { "type": "uri", "uri": "https://example.com/a.mp4", "modality": "video" }] }] }));
    let problem: Value = post(&gateway, &request, "application/json").await.json().await.unwrap();
    assert_eq!(
        (&problem["code"], &problem["details"]["path"]),
        (&json!("invalid_request"), &json!("messages[0].parts[0]"))
    );
    assert_eq!(provider.calls(), 0);
}

#[tokio::test]
async fn a_foreign_cap_servers_fault_keeps_its_code() {
    let upstream = gateway(Demo::with_delay(Duration::ZERO)).await;
    for profile in ["v1", "v2"] {
        let gateway = gateway(agent("cap", json!({ "url": upstream, "profile": profile }))).await;
        let told = ask(&gateway, "/fault content_refused").await;
        assert_eq!(told.errors.last().unwrap().code, "content_refused", "{profile}");
        let (status, problem) = ask_json(&gateway, "/fault context_length_exceeded").await;
        assert_eq!((status, &problem["code"]), (502, &json!("context_length_exceeded")));
    }
}

const STREAM: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

fn packet(seq: usize, op: &str, p: Value) -> Do {
    let packet =
        json!({ "stream_id": STREAM, "seq": seq, "op": op, "t": "2026-02-03T10:15:37Z", "p": p });
    Do::Write(format!("event: stream.packet\nid: {STREAM}:{seq}\ndata: {packet}\n\n"))
}

fn deltas(from: usize, to: usize) -> Vec<Do> {
    (from..=to).map(|n| packet(n, "DELTA", json!(format!("tok{n} ")))).collect()
}

#[tokio::test]
async fn a_foreign_cap_servers_cut_is_resumed_at_its_cursor() {
    let upstream = Provider::start(|nth| match nth {
        0 => [vec![stream_head()], deltas(1, 40)].concat(),
        _ => [vec![stream_head()], deltas(41, 60), vec![packet(61, "CLOSE", json!("completed"))]]
            .concat(),
    })
    .await;
    let near = gateway(agent("cap", json!({ "url": upstream.url }))).await;
    let told = ask(&near, "Hi").await;
    assert_eq!((told.text, told.errors.len()), (words(60), 0));
    assert_eq!(continued::ways(&near).await, ["upstream_resume"]);
    let seen = upstream.seen();
    assert!(seen[1].head.contains(&format!("last-event-id: {STREAM}:40")), "{}", seen[1].head);
    assert_eq!(seen[0].body, seen[1].body, "the same request");
}

#[tokio::test]
async fn a_foreign_cap_servers_reset_is_applied() {
    let reset = json!({ "id": STREAM, "timestamp": "2026-02-03T10:15:37Z", "type": "stream_reset",
        "data": { "attempt": 2, "after_seq": 1 } });
    let event = json!({ "id": STREAM, "timestamp": "2026-02-03T10:15:37Z", "type": "X",
    "data": { "a": 1 } });
    let acts = vec![
        stream_head(),
        packet(1, "DELTA", json!("One. ")),
        packet(2, "EVENT", event),
        packet(3, "DELTA", json!("Tow.")),
        packet(4, "EVENT", reset),
        packet(5, "DELTA", json!("Two.")),
        packet(6, "CLOSE", json!({ "reason": "length", "model": "m-9" })),
    ];
    let told =
        ask(&gateway(agent("cap", json!({ "url": provider(acts).await }))).await, "Hi").await;
    assert_eq!(told.text, "One. Two.", "{}", told.raw);
    let close = told.close.unwrap();
    assert_eq!((&close["reason"], &close["model"]), (&json!("length"), &json!("m-9")));
}

#[tokio::test]
async fn a_careful_kind_is_called_again_only_after_a_refusal() {
    let refused =
        Provider::start(|nth| if nth == 0 { status(503, &[], "") } else { agui_answer() }).await;
    let told = ask(&refused.gateway("ag-ui", json!({ "url": refused.url })).await, "Hi").await;
    assert_eq!((told.text, refused.calls()), (words(60), 2));
    let broken = Provider::start(|_| status(500, &[], "")).await;
    let told = ask(&broken.gateway("ag-ui", json!({ "url": broken.url })).await, "Hi").await;
    assert_eq!((told.errors.last().unwrap().code.as_str(), broken.calls()), ("upstream_error", 1));
    let closed = Provider::start(|_| status(503, &[], "")).await;
    for kind in ["ag-ui", "cap"] {
        let before = closed.calls();
        ask(&closed.gateway(kind, json!({ "url": closed.url })).await, "Hi").await;
        assert_eq!(closed.calls() - before, 4, "{kind}");
    }
    assert_eq!(closed.clock.asked(Timer::Again).len(), 2 * 3, "none without a wait");
}

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Asks as a part of a trace, or of none.
async fn ask_within(gateway: &str, headers: &[(&str, &str)]) -> RunSeen {
    let post = client().post(format!("{gateway}/v1/assist")).json(&question("Hi"));
    let post = headers.iter().fold(post, |post, (name, value)| post.header(*name, *value));
    read(&post.send().await.unwrap().bytes().await.unwrap())
}

#[tokio::test]
async fn each_kind_over_http_passes_the_trace_of_its_run_on() {
    let within = [("traceparent", PARENT), ("tracestate", "vendor=1")];
    for (kind, acts) in [
        ("openai", answer()),
        ("anthropic", anthropic_answer()),
        ("ag-ui", agui_answer()),
        ("cap", answer()),
    ] {
        let provider = Provider::start(move |_| acts.clone()).await;
        let keys = match kind {
            "cap" => {
                let far = agent("openai", json!({ "url": provider.url, "model": "m" }));
                json!({ "url": gateway(far).await })
            }
            "ag-ui" => json!({ "url": provider.url }),
            _ => json!({ "url": provider.url, "model": "m" }),
        };
        let gateway = gateway(agent(kind, keys)).await;
        for headers in
            [&within[..], &[], &[("traceparent", "nonsense"), ("tracestate", "vendor=1")]]
        {
            assert_eq!(ask_within(&gateway, headers).await.text, words(60), "{kind}");
        }
        let heads: Vec<String> =
            provider.seen().into_iter().map(|seen| seen.head.to_lowercase()).collect();
        for (name, value) in within {
            assert!(heads[0].contains(&format!("{name}: {value}\r\n")), "{kind}: {}", heads[0]);
            assert!(!heads[1].contains(name) && !heads[2].contains(name), "{kind}: {heads:?}");
        }
    }
}

#[tokio::test]
async fn a_process_finds_the_trace_of_its_run_in_its_environment() {
    let script = r#"printf '{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"%s %s"}]}}\n{"type":"result","subtype":"success","duration_ms":1,"duration_api_ms":1,"is_error":false,"num_turns":1,"session_id":"s"}\n' "$TRACEPARENT" "$TRACESTATE""#;
    let gateway = gateway(agent("command", json!({ "command": ["/bin/sh", "-c", script] }))).await;
    let told = ask_within(&gateway, &[("traceparent", PARENT), ("tracestate", "vendor=1")]).await;
    assert_eq!(told.text, format!("{PARENT} vendor=1"), "{:?}", told.errors);
    assert_eq!(ask_within(&gateway, &[]).await.text, " ");
}

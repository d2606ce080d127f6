//! Anthropic's Messages over HTTP, against a real server: whole and streamed answers, tools,
//! errors, repeats.

use std::sync::Arc;

use crate::common::{Server, client, demo, start, stream_of};
use capstan_agent::{Agent, Outcome, Output, Timer, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, KeyHash, Settings, Tenant};
use capstan_journal::{Journal, Run, RunState};
use capstan_protocol::{Fault, FaultKind};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Thinks, calls the caller's first tool and one of its own, or says what it got.
struct Caller;

#[async_trait]
impl Agent for Caller {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        if turn.messages.len() > 1 {
            out.delta(serde_json::to_string(&*turn.messages).unwrap()).await?;
            return Ok(());
        }
        out.event("THOUGHT_TRACE", &json!({ "thought": "A city." })).await?;
        out.delta("Let me see. ").await?;
        for (id, name) in [("own", "search"), ("c1", turn.tools[0].name.as_str())] {
            let start = json!({ "toolCallId": id, "toolCallName": name });
            out.event("TOOL_CALL_START", &start).await?;
            out.event("TOOL_CALL_ARGS", &json!({ "toolCallId": id, "delta": "{\"city\":" }))
                .await?;
            out.event("TOOL_CALL_ARGS", &json!({ "toolCallId": id, "delta": "\"Bern\"}" })).await?;
            out.event("TOOL_CALL_END", &json!({ "toolCallId": id })).await?;
            if id == "own" {
                let result = json!({ "toolCallId": id, "content": "found" });
                out.event("TOOL_CALL_RESULT", &result).await?;
            }
        }
        Ok(())
    }
}

/// Says half of an answer, and the rest when it may.
struct Halting(Arc<Semaphore>);

#[async_trait]
impl Agent for Halting {
    async fn run(&self, _: Turn, out: &mut Writer) -> Outcome {
        out.event("THOUGHT_TRACE", &json!({ "thought": "A number." })).await?;
        out.delta("one ").await?;
        self.0.acquire().await?.forget();
        out.delta("two").await?;
        Ok(())
    }
}

/// Thinks, and breaks off when it may; then it thinks something else.
struct Wavering(Arc<Semaphore>);

#[async_trait]
impl Agent for Wavering {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let thought = format!("Thought {}.", turn.attempt);
        out.event("THOUGHT_TRACE", &json!({ "thought": thought })).await?;
        if turn.attempt == 1 {
            self.0.acquire().await?.forget();
            return Err(Fault::new(FaultKind::UpstreamTruncated).into());
        }
        out.delta("So be it.").await?;
        Ok(())
    }

    fn max_attempts(&self) -> u32 {
        2
    }
}

/// Says little, and that this was all it could.
struct Short;

#[async_trait]
impl Agent for Short {
    async fn run(&self, _: Turn, out: &mut Writer) -> Outcome {
        out.delta("one").await?;
        out.put(Output::Reason("length".into())).await?;
        Ok(())
    }
}

/// Makes a call, and another one when it may.
struct Calling(Arc<Semaphore>);

#[async_trait]
impl Agent for Calling {
    async fn run(&self, _: Turn, out: &mut Writer) -> Outcome {
        for id in ["c1", "c2"] {
            let start = json!({ "toolCallId": id, "toolCallName": "Read" });
            out.event("TOOL_CALL_START", &start).await?;
            out.event("TOOL_CALL_END", &json!({ "toolCallId": id })).await?;
            if id == "c1" {
                self.0.acquire().await?.forget();
            }
        }
        Ok(())
    }
}

async fn serve() -> Server {
    serve_halting(Arc::new(Semaphore::new(0))).await
}

async fn serve_halting(go_on: Arc<Semaphore>) -> Server {
    serve_on(crate::common::journal(), go_on).await
}

async fn serve_on(journal: Journal, go_on: Arc<Semaphore>) -> Server {
    let gateway = Gateway::new(journal)
        .agent("demo", demo())
        .agent("caller", Caller)
        .agent("halting", Halting(Arc::clone(&go_on)))
        .agent("short", Short)
        .agent("calling", Calling(Arc::clone(&go_on)))
        .agent("wavering", Wavering(go_on));
    crate::common::serve_gateway(gateway).await
}

fn asked(text: &str) -> Value {
    json!({ "model": "demo", "max_tokens": 100, "messages": [{ "role": "user", "content": text }] })
}

fn streamed(mut body: Value) -> Value {
    body["stream"] = true.into();
    body
}

async fn post(server: &Server, body: &Value, headers: &[(&str, &str)]) -> reqwest::Response {
    let mut request = client().post(format!("{}/v1/messages?beta=true", server.url)).json(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap()
}

async fn ok(server: &Server, body: &Value) -> Value {
    let response = post(server, body, &[]).await;
    assert_eq!(response.status(), 200);
    response.json().await.unwrap()
}

/// The events of a body, each named as its data is.
fn events(body: &str) -> Vec<Value> {
    let frames = body.split("\n\n").filter(|frame| !frame.is_empty());
    frames
        .map(|frame| {
            let (name, data) = frame.split_once("\ndata: ").unwrap_or_else(|| panic!("{frame}"));
            let data: Value = serde_json::from_str(data).unwrap();
            assert_eq!(name.strip_prefix("event: "), data["type"].as_str(), "{frame}");
            data
        })
        .collect()
}

async fn told(response: reqwest::Response) -> Vec<Value> {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    events(&response.text().await.unwrap())
}

async fn runs(server: &Server) -> usize {
    let page: Value = server.get("/v1/streams").await.json().await.unwrap();
    page["streams"].as_array().unwrap().len()
}

#[tokio::test]
async fn an_answer_is_one_message_or_events_that_amount_to_it() {
    let server = serve().await;
    let response = post(&server, &asked("/echo one two three"), &[]).await;
    let id = response.headers()["request-id"].clone();
    assert_eq!(id, response.headers()["x-request-id"]);
    let whole: Value = response.json().await.unwrap();
    assert_eq!((&whole["type"], &whole["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(whole["content"], json!([{ "type": "text", "text": "one two three" }]));
    assert_eq!((&whole["stop_reason"], &whole["model"]), (&json!("end_turn"), &json!("demo")));
    assert!(whole["usage"]["output_tokens"].as_u64().unwrap() > 0);

    let response = post(&server, &streamed(asked("/echo one two three")), &[]).await;
    let stream = stream_of(&response).replace('-', "");
    let told = told(response).await;
    let kinds: Vec<&str> = told.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[..2], ["message_start", "content_block_start"]);
    assert_eq!(kinds[kinds.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    let start = &told[0]["message"];
    assert_eq!(start["id"], format!("msg_{stream}"));
    assert_eq!(
        start["usage"],
        json!({ "input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0 })
    );
    let text: String = told.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(text, "one two three");
    let end = &told[told.len() - 2];
    assert_eq!(
        (&end["delta"]["stop_reason"], &end["usage"]),
        (&whole["stop_reason"], &whole["usage"])
    );
}

#[tokio::test]
async fn thoughts_and_the_callers_calls_are_blocks_and_the_agents_own_are_not_told() {
    let server = serve().await;
    let tool = json!({ "name": "weather", "input_schema": { "type": "object" } });
    let mut body = asked("Bern?");
    body["model"] = "caller".into();
    body["tools"] = json!([tool]);
    let whole = ok(&server, &body).await;
    let call = json!({ "type": "tool_use", "id": "c1", "name": "weather",
        "input": { "city": "Bern" } });
    let thought = json!({ "type": "thinking", "thinking": "A city.", "signature": "" });
    let text = json!({ "type": "text", "text": "Let me see. " });
    assert_eq!(whole["content"], json!([thought, text, call]));
    assert_eq!(whole["stop_reason"], "tool_use");

    let told = told(post(&server, &streamed(body.clone()), &[]).await).await;
    let indexes: Vec<_> = told
        .iter()
        .filter(|event| event["type"] == "content_block_start")
        .map(|event| (event["index"].as_u64().unwrap(), event["content_block"]["type"].clone()))
        .collect();
    assert_eq!(indexes, [(0, json!("thinking")), (1, json!("text")), (2, json!("tool_use"))]);
    let pieces: Vec<&str> =
        told.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
    assert_eq!(pieces, ["{\"city\":", "\"Bern\"}"]);

    // The result goes back with the whole conversation.
    let result = json!({ "type": "tool_result", "tool_use_id": "c1", "content": [
        { "type": "text", "text": "sunny" }] });
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({ "role": "assistant", "content": whole["content"] }));
    messages.push(json!({ "role": "user", "content": [result] }));
    let whole = ok(&server, &body).await;
    let said = whole["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("tool_call_response") && said.contains("sunny"), "{said}");
}

#[tokio::test]
async fn every_failure_has_anthropics_word_and_status() {
    let server = serve().await;
    for (fault, status, kind, retry) in [
        ("agent_execution_error", 500, "api_error", "false"),
        ("rate_limit_exceeded --retry-after 7", 429, "rate_limit_error", "true"),
        ("timeout", 504, "timeout_error", "true"),
        ("service_unavailable", 529, "overloaded_error", "true"),
        ("upstream_error", 500, "api_error", "true"),
        ("upstream_auth", 500, "api_error", "false"),
        ("upstream_quota", 402, "billing_error", "false"),
        ("context_length_exceeded", 400, "invalid_request_error", "false"),
        ("tenant_unauthorized", 403, "permission_error", "false"),
    ] {
        for body in [
            asked(&format!("/fault {fault} --after 0")),
            streamed(asked(&format!("/fault {fault} --after 0"))),
        ] {
            let response = post(&server, &body, &[]).await;
            let should_retry = response.headers()["x-should-retry"].clone();
            assert_eq!(
                (response.status().as_u16(), should_retry.to_str().unwrap()),
                (status, retry),
                "{fault}"
            );
            assert!(response.headers().contains_key("request-id"));
            let told: Value = response.json().await.unwrap();
            assert_eq!((&told["type"], &told["error"]["type"]), (&json!("error"), &json!(kind)));
        }
    }
}

#[tokio::test]
async fn a_failure_in_mid_answer_is_an_event_and_no_end() {
    let server = serve().await;
    let body = streamed(asked("/fault agent_execution_error"));
    let told = told(post(&server, &body, &[]).await).await;
    let (last, before) = told.split_last().unwrap();
    assert_eq!((&last["type"], &last["error"]["type"]), (&json!("error"), &json!("api_error")));
    let is_end =
        |event: &&Value| event["type"] == "message_delta" || event["type"] == "message_stop";
    assert_eq!(before.iter().find(is_end), None);
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_named_and_starts_nothing() {
    let server = serve().await;
    let with = |name: &str, value: Value| {
        let mut body = asked("/echo hi");
        body[name] = value;
        body
    };
    let content = |block: Value| with("messages", json!([{ "role": "user", "content": [block] }]));
    for (body, status, named) in [
        (with("model", json!("gpt-9")), 404, "model: "),
        (with("messages", json!([])), 400, "messages: is empty"),
        (with("messages", json!([{ "role": "bard", "content": "Hi" }])), 400, "messages[0].role"),
        (with("stream", json!("yes")), 400, "stream"),
        (
            with("tools", json!([{ "type": "web_search_20250305", "name": "web_search" }])),
            400,
            "tools[0].type",
        ),
        (with("mcp_servers", json!([{ "type": "url" }])), 400, "mcp_servers"),
        (
            content(json!({ "type": "container_upload", "file_id": "f" })),
            400,
            "messages[0].content[0].type",
        ),
        (content(json!({ "type": "image", "source": { "type": "tape" } })), 400, "source.type"),
        (content(json!({ "type": "tool_result", "tool_use_id": "x" })), 400, "messages"),
    ] {
        let response = post(&server, &body, &[]).await;
        assert_eq!(response.status(), status, "{body}");
        let told: Value = response.json().await.unwrap();
        let message = told["error"]["message"].as_str().unwrap();
        assert!(message.contains(named), "{message}");
    }
    assert_eq!(runs(&server).await, 0);
}

#[tokio::test]
async fn the_first_agent_answers_for_anthropics_models() {
    let server = serve().await;
    for model in ["claude-opus-5-5", "claude-haiku-4-5", "demo", "default"] {
        let mut body = asked("/echo hi");
        body["model"] = model.into();
        assert_eq!(ok(&server, &body).await["model"], "demo");
    }
}

#[tokio::test]
async fn a_key_is_shown_in_either_header() {
    let tenant = Tenant::new("acme", vec![KeyHash::of("sk-tenant")]);
    let server = start(Settings { tenants: vec![tenant].into(), ..Settings::default() }).await;
    let body = asked("/echo hi");
    for header in [("x-api-key", "sk-tenant"), ("authorization", "Bearer sk-tenant")] {
        assert_eq!(post(&server, &body, &[header]).await.status(), 200);
    }
    for header in [("x-api-key", "sk-other"), ("authorization", "Bearer sk-other"), ("x-none", "")]
    {
        let refused = post(&server, &body, &[header]).await;
        assert_eq!(refused.status(), 401);
        let told: Value = refused.json().await.unwrap();
        assert_eq!(told["error"]["type"], "authentication_error");
    }
}

const SESSION: &str = "x-claude-code-session-id";

fn thought() -> Value {
    json!({ "type": "thinking", "thinking": "A number.", "signature": "" })
}

/// Waits until the gateway has noticed so many readers leave.
async fn until_left(server: &Server, count: usize) {
    while server.clock.asked(Timer::Grace).len() < count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_repeat_in_a_session_gets_the_unread_run() {
    let go_on = Arc::new(Semaphore::new(0));
    let server = serve_halting(Arc::clone(&go_on)).await;
    let mut body = streamed(asked("Count."));
    body["model"] = "halting".into();
    let mut cut = post(&server, &body, &[(SESSION, "s1")]).await;
    let first = stream_of(&cut);
    cut.chunk().await.unwrap();
    drop(cut);
    until_left(&server, 1).await;
    // Another session, and the SDKs' first try, are questions of their own.
    let mut others = vec![post(&server, &body, &[(SESSION, "s2")]).await];
    others.push(post(&server, &body, &[("x-stainless-retry-count", "0")]).await);
    for other in &others {
        assert_ne!(stream_of(other), first);
    }
    // What Claude Code changes when it asks once more is no other question.
    go_on.add_permits(9);
    let mut whole = body.clone();
    whole["stream"] = false.into();
    whole["max_tokens"] = 64_000.into();
    whole["messages"][0]["content"] = json!([{ "type": "text",
        "text": body["messages"][0]["content"], "cache_control": { "type": "ephemeral" } }]);
    let again = post(&server, &whole, &[(SESSION, "s1")]).await;
    assert_eq!(stream_of(&again), first);
    let again: Value = again.json().await.unwrap();
    assert_eq!(again["content"], json!([thought(), { "type": "text", "text": "one two" }]));
    assert_eq!(runs(&server).await, 3);
}

/// The answer to a question with few tokens is not the answer to the same with many.
#[tokio::test]
async fn a_repeat_with_another_limit_gets_no_answer_cut_at_its_limit() {
    let server = serve().await;
    let mut body = streamed(asked("Count."));
    body["model"] = "short".into();
    let first = post(&server, &body, &[(SESSION, "s1")]).await;
    let stream = stream_of(&first);
    assert_eq!(
        told(first).await.iter().rev().nth(1).unwrap()["delta"]["stop_reason"],
        "max_tokens"
    );
    let same = post(&server, &body, &[(SESSION, "s1")]).await;
    assert_eq!(stream_of(&same), stream);
    told(same).await;
    body["max_tokens"] = 500.into();
    assert_ne!(stream_of(&post(&server, &body, &[(SESSION, "s1")]).await), stream);
}

#[tokio::test]
async fn a_run_of_a_session_waits_longer_for_its_client() {
    let go_on = Arc::new(Semaphore::new(0));
    let server = serve_halting(Arc::clone(&go_on)).await;
    let mut body = streamed(asked("Count."));
    body["model"] = "halting".into();
    for (n, headers) in [&[(SESSION, "s1")][..], &[]].into_iter().enumerate() {
        let mut cut = post(&server, &body, headers).await;
        cut.chunk().await.unwrap();
        drop(cut);
        until_left(&server, n + 1).await;
    }
    let waits: Vec<u64> = server.clock.asked(Timer::Grace).iter().map(|t| t.as_secs()).collect();
    assert_eq!(waits, [300, 30]);
    go_on.add_permits(2);
}

#[tokio::test]
async fn a_finished_answer_is_sent_again_only_if_it_may_be_lost() {
    let server = serve().await;
    let body = streamed(asked("/echo hi"));
    let session = [(SESSION, "s1")];
    let first = post(&server, &body, &session).await;
    let stream = stream_of(&first);
    let mut said = told(first).await;
    // On another connection, as after a cut.
    let lost = post(&server, &body, &session).await;
    assert_eq!(stream_of(&lost), stream);
    let mut again = told(lost).await;
    // Claude Code joins what has the same id: what it has of the first one, and all of it again.
    let ids = [&mut said, &mut again].map(|told| told[0]["message"]["id"].take());
    assert_ne!(ids[0], ids[1]);
    assert!(ids.iter().all(|id| id.as_str().is_some_and(|id| id.starts_with("msg_"))), "{ids:?}");
    assert_eq!(again, said);
    // By the same connection nobody asks again before the answer was read.
    let client = client();
    let ask = async || {
        let url = format!("{}/v1/messages", server.url);
        let response = client.post(url).json(&body).header(SESSION, "s2").send().await.unwrap();
        let stream = stream_of(&response);
        response.bytes().await.unwrap();
        stream
    };
    assert_ne!(ask().await, ask().await);
}

/// The run of a stream, once its record is like this.
async fn until(journal: &Journal, stream: &str, is_so: impl Fn(&Run) -> bool) -> Run {
    loop {
        let run = journal.store().run(stream.parse().unwrap()).await.unwrap().unwrap();
        if is_so(&run) {
            return run;
        }
        tokio::task::yield_now().await;
    }
}

/// A client that breaks off has lost the answer. A client that got all of it has lost it only if it
/// comes back soon. Both hold when another process answers.
#[tokio::test]
async fn an_answer_that_was_sent_before_a_restart_is_not_sent_again_later() {
    let folder = tempfile::tempdir().unwrap();
    let journal = crate::common::disk(folder.path());
    let go_on = Arc::new(Semaphore::new(0));
    let server = serve_on(journal.clone(), Arc::clone(&go_on)).await;
    let (body, mut cut_body) = (streamed(asked("/echo hi")), streamed(asked("Count.")));
    cut_body["model"] = "halting".into();
    let read = post(&server, &body, &[(SESSION, "s1")]).await;
    let read_stream = stream_of(&read);
    told(read).await;
    let mut cut = post(&server, &cut_body, &[(SESSION, "s1")]).await;
    let cut_stream = stream_of(&cut);
    cut.chunk().await.unwrap();
    drop(cut);
    until_left(&server, 1).await;
    go_on.add_permits(1);
    until(&journal, &read_stream, |run| run.sent_at.is_some()).await;
    let ended = until(&journal, &cut_stream, |run| run.state == RunState::Closed).await;
    assert_eq!(ended.sent_at, None, "nobody received all of it");
    server.stop().await;
    drop(journal);

    let server = serve_on(crate::common::disk(folder.path()), Arc::clone(&go_on)).await;
    let ask = async |body: &Value| {
        let response = post(&server, body, &[(SESSION, "s1")]).await;
        let stream = stream_of(&response);
        told(response).await;
        stream
    };
    assert_eq!(ask(&body).await, read_stream, "it may have been lost on its way");
    server.clock.set_by(61);
    assert_eq!(ask(&cut_body).await, cut_stream, "it was never sent to its end");
    server.stop().await;

    let server = serve_on(crate::common::disk(folder.path()), Arc::clone(&go_on)).await;
    server.clock.set_by(122);
    go_on.add_permits(1);
    let ask = async |body: &Value| stream_of(&post(&server, body, &[(SESSION, "s1")]).await);
    assert_ne!(ask(&body).await, read_stream, "its client has it");
    assert_ne!(ask(&cut_body).await, cut_stream, "by now its client has it as well");
}

/// An answer as one object counts as sent, too.
#[tokio::test]
async fn a_collected_answer_is_sent_again_only_to_another_connection() {
    let server = serve().await;
    let (body, client) = (asked("/echo hi"), client());
    let ask = async || {
        let url = format!("{}/v1/messages", server.url);
        let response = client.post(url).json(&body).header(SESSION, "s1").send().await.unwrap();
        let stream = stream_of(&response);
        response.bytes().await.unwrap();
        stream
    };
    let (first, second) = (ask().await, ask().await);
    assert_ne!(first, second);
    assert_eq!(stream_of(&post(&server, &body, &[(SESSION, "s1")]).await), second);
}

#[tokio::test]
async fn sent_blocks_are_never_taken_back() {
    let server = serve().await;
    let body = streamed(asked("/diverge"));
    let response = post(&server, &body, &[(SESSION, "s1")]).await;
    let stream = stream_of(&response);
    let told = told(response).await;
    assert_eq!(told.last().unwrap()["error"]["code"], "attempt_diverged");
    assert!(told.iter().all(|event| event["type"] != "message_stop"));
    // The run went on, and whoever comes again gets it without what was taken back.
    let mut whole = body.clone();
    whole["stream"] = false.into();
    let again = post(&server, &whole, &[(SESSION, "s1")]).await;
    assert_eq!(stream_of(&again), stream);
    let again: Value = again.json().await.unwrap();
    assert!(again["content"][0]["text"].as_str().unwrap().ends_with("before I spoke."), "{again}");
}

#[tokio::test]
async fn thoughts_that_are_taken_back_are_followed_by_an_error_that_is_retried() {
    let go_on = Arc::new(Semaphore::new(0));
    let server = serve_halting(Arc::clone(&go_on)).await;
    let mut body = streamed(asked("Think."));
    body["model"] = "wavering".into();
    let mut response = post(&server, &body, &[(SESSION, "s1")]).await;
    let stream = stream_of(&response);
    let mut said = String::new();
    while !said.contains("thinking_delta") {
        said += std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap();
    }
    go_on.add_permits(1);
    said += &response.text().await.unwrap();
    let told = events(&said);
    assert_eq!(told.last().unwrap()["error"]["type"], "overloaded_error", "{said}");
    assert!(said.contains("Thought 1.") && !said.contains("Thought 2."), "{said}");
    let again = post(&server, &body, &[(SESSION, "s1")]).await;
    assert_eq!(stream_of(&again), stream);
    let again = again.text().await.unwrap();
    assert!(again.contains("Thought 2.") && again.contains("message_stop"), "{again}");
    assert!(!again.contains("Thought 1."), "{again}");
}

#[tokio::test]
async fn who_asks_for_the_rest_of_an_answer_gets_that_of_the_run() {
    let go_on = Arc::new(Semaphore::new(0));
    let server = serve_halting(Arc::clone(&go_on)).await;
    let mut body = streamed(asked("Count."));
    body["model"] = "halting".into();
    let mut cut = post(&server, &body, &[(SESSION, "s1")]).await;
    let stream = stream_of(&cut);
    while !String::from_utf8_lossy(&cut.chunk().await.unwrap().unwrap()).contains("text_delta") {}
    drop(cut);
    until_left(&server, 1).await;
    go_on.add_permits(1);
    let sentence =
        "Your response above was cut off mid-stream. Resume directly from where it stops.";
    let mut rest = body.clone();
    let messages = rest["messages"].as_array_mut().unwrap();
    messages.push(json!({ "role": "assistant", "content": [thought()] }));
    messages.push(json!({ "role": "user", "content": [{ "type": "text", "text": sentence }] }));
    let resumed = post(&server, &rest, &[(SESSION, "s1")]).await;
    assert_eq!(stream_of(&resumed), stream);
    let path = format!("/v1/console/runs/{stream}");
    let run: Value = server.get(&path).await.json().await.unwrap();
    let viewers = run["viewers"].as_array().unwrap();
    let behind: Vec<_> = viewers.iter().map(|viewer| &viewer["attached_behind"]).collect();
    assert_eq!(behind, [&Value::Null, &json!(1)], "{run}");
    let told = told(resumed).await;
    let starts: Vec<_> = told
        .iter()
        .filter(|event| event["type"] == "content_block_start")
        .map(|event| (event["index"].as_u64().unwrap(), event["content_block"]["type"].clone()))
        .collect();
    // Thoughts are told again: what follows is a message of its own, which begins with them.
    assert_eq!(starts, [(0, json!("thinking")), (1, json!("text"))]);
    let text: String = told.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(text, "one two");
    // What the run did not say is no part of it: that is another question.
    go_on.add_permits(1);
    rest["messages"][1]["content"] = json!([{ "type": "text", "text": "three" }]);
    let other = post(&server, &rest, &[(SESSION, "s1")]).await;
    assert_ne!(stream_of(&other), stream);
}

/// A subagent is told that only its next message counts.
#[tokio::test]
async fn who_asks_for_the_whole_answer_again_gets_it_from_its_beginning() {
    let go_on = Arc::new(Semaphore::new(0));
    let server = serve_halting(Arc::clone(&go_on)).await;
    let mut body = streamed(asked("Count."));
    body["model"] = "halting".into();
    let mut cut = post(&server, &body, &[(SESSION, "s1")]).await;
    let stream = stream_of(&cut);
    while !String::from_utf8_lossy(&cut.chunk().await.unwrap().unwrap()).contains("text_delta") {}
    drop(cut);
    until_left(&server, 1).await;
    go_on.add_permits(1);
    let sentence = "Your response above was cut off mid-stream and only your next message is \
                    delivered. Write the complete response again from the start.";
    let messages = body["messages"].as_array_mut().unwrap();
    let text = json!({ "type": "text", "text": "one" });
    messages.push(json!({ "role": "assistant", "content": [thought(), text] }));
    messages.push(json!({ "role": "user", "content": sentence }));
    let again = post(&server, &body, &[(SESSION, "s1")]).await;
    assert_ne!(stream_of(&again), stream, "the run has not told this text");
    body["messages"][1]["content"] = json!([thought()]);
    let again = post(&server, &body, &[(SESSION, "s1")]).await;
    assert_eq!(stream_of(&again), stream);
    let told = told(again).await;
    let text: String = told.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    let thoughts = told.iter().filter(|event| event["content_block"]["type"] == "thinking").count();
    assert_eq!((text.as_str(), thoughts), ("one two", 1));
}

/// Claude Code runs the calls that it has, and sends their results.
#[tokio::test]
async fn results_of_the_first_calls_are_answered_with_the_other_calls() {
    let go_on = Arc::new(Semaphore::new(0));
    let server = serve_halting(Arc::clone(&go_on)).await;
    let tool = json!({ "name": "Read", "input_schema": { "type": "object" } });
    let mut body = streamed(asked("Read both."));
    body["model"] = "calling".into();
    body["tools"] = json!([tool]);
    let mut cut = post(&server, &body, &[(SESSION, "s1")]).await;
    let stream = stream_of(&cut);
    let mut said = String::new();
    while !said.contains(r#""id":"c1""#) || !said.contains("content_block_stop") {
        said += std::str::from_utf8(&cut.chunk().await.unwrap().unwrap()).unwrap();
    }
    drop(cut);
    until_left(&server, 1).await;
    go_on.add_permits(1);
    let call = |id: &str| json!({ "type": "tool_use", "id": id, "name": "Read", "input": {} });
    let result = |id: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": "x" });
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({ "role": "assistant", "content": [call("c1")] }));
    messages.push(json!({ "role": "user", "content": [result("c1")] }));
    let rest = post(&server, &body, &[(SESSION, "s1")]).await;
    assert_eq!(stream_of(&rest), stream);
    let rest = told(rest).await;
    let calls: Vec<_> = rest
        .iter()
        .filter(|event| event["type"] == "content_block_start")
        .map(|event| (event["index"].clone(), event["content_block"]["id"].clone()))
        .collect();
    assert_eq!(calls, [(json!(0), json!("c2"))]);
    // With both results nothing of the run is left: that is the next question.
    body["messages"][1]["content"] = json!([call("c1"), call("c2")]);
    body["messages"][2]["content"] = json!([result("c1"), result("c2")]);
    go_on.add_permits(1);
    assert_ne!(stream_of(&post(&server, &body, &[(SESSION, "s1")]).await), stream);
}

#[tokio::test]
async fn the_models_are_the_agents_page_by_page() {
    let server = serve().await;
    let list = async |query: &str| {
        let url = format!("{}/v1/models{query}", server.url);
        let request = client().get(url).header("anthropic-version", "2023-06-01");
        request.send().await.unwrap().json::<Value>().await.unwrap()
    };
    let ids = |page: &Value| -> Vec<String> {
        let data = page["data"].as_array().unwrap().iter();
        data.map(|model| model["id"].as_str().unwrap().to_owned()).collect()
    };
    let all = list("?limit=1000").await;
    assert_eq!(ids(&all), ["demo", "caller", "calling", "halting", "short", "wavering"]);
    assert_eq!((&all["has_more"], &all["last_id"]), (&json!(false), &json!("wavering")));
    let first = list("?limit=2").await;
    assert_eq!((ids(&first).len(), &first["has_more"]), (2, &json!(true)));
    assert_eq!(ids(&list("?limit=2&after_id=caller").await), ["calling", "halting"]);
    assert_eq!(ids(&list("?limit=1&before_id=caller").await), ["demo"]);
    assert_eq!(list("/caller").await["type"], "model");
    // The first agent answers for it.
    assert_eq!(list("/claude-opus-5-5").await["id"], "claude-opus-5-5");
    assert_eq!(list("/gpt-9").await["error"]["type"], "not_found_error");
}

#[tokio::test]
async fn tokens_are_counted_without_a_run() {
    let server = serve().await;
    let count = async |text: &str| {
        let url = format!("{}/v1/messages/count_tokens?beta=true", server.url);
        let response = client().post(url).json(&asked(text)).send().await.unwrap();
        let counted: Value = response.json().await.unwrap();
        counted["input_tokens"].as_u64().unwrap()
    };
    assert_eq!(count(&"word ".repeat(80)).await - count("").await, 100);
    assert_eq!(runs(&server).await, 0);
}

//! Chat Completions and the models over HTTP, against a real server: whole and streamed answers,
//! tools, errors, keys.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::odd_store::OddStore;
use crate::common::{Server, client, demo, start, stream_of};
use capstan_agent::{Agent, Failure, Outcome, Timer, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, KeyHash, Limits, Settings, Tenant, TenantKey};
use capstan_protocol::{ErrorSeverity, Fault, FaultKind};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// Calls the caller's first tool, or says what it got; it has a tool of its own as well.
struct Caller;

#[async_trait]
impl Agent for Caller {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        if turn.messages.len() > 1 {
            out.delta(serde_json::to_string(&*turn.messages).unwrap()).await?;
            return Ok(());
        }
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

async fn serve() -> Server {
    let gateway =
        Gateway::new(crate::common::journal()).agent("demo", demo()).agent("caller", Caller);
    crate::common::serve_gateway(gateway).await
}

fn chat(text: &str) -> Value {
    json!({ "model": "demo", "messages": [{ "role": "user", "content": text }] })
}

fn streamed(mut body: Value) -> Value {
    body["stream"] = true.into();
    body
}

fn header<'a>(response: &'a reqwest::Response, name: &str) -> &'a str {
    response.headers()[name].to_str().unwrap()
}

async fn post(server: &Server, body: &Value, headers: &[(&str, &str)]) -> reqwest::Response {
    post_by(&client(), server, body, headers).await
}

async fn post_by(
    client: &reqwest::Client,
    server: &Server,
    body: &Value,
    headers: &[(&str, &str)],
) -> reqwest::Response {
    let mut request = client.post(format!("{}/v1/chat/completions", server.url)).json(body);
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

/// The objects of a streamed answer, which ends as it must.
async fn chunks(response: reqwest::Response) -> Vec<Value> {
    assert_eq!(
        (response.status().as_u16(), header(&response, "content-type")),
        (200, "text/event-stream")
    );
    let body = response.text().await.unwrap();
    // The published Python client breaks at anything but data.
    assert!(
        body.split("\n\n").all(|frame| frame.is_empty() || frame.starts_with("data: ")),
        "{body}"
    );
    let mut frames: Vec<&str> =
        body.split("\n\n").filter_map(|frame| frame.strip_prefix("data: ")).collect();
    assert_eq!(frames.pop(), Some("[DONE]"), "{body}");
    frames.into_iter().map(|frame| serde_json::from_str(frame).unwrap()).collect()
}

fn text(chunks: &[Value]) -> String {
    chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
}

async fn runs(server: &Server) -> usize {
    let page: Value = server.get("/v1/streams").await.json().await.unwrap();
    page["streams"].as_array().unwrap().len()
}

#[tokio::test]
async fn an_answer_is_one_object_or_chunks_of_the_same_text() {
    let server = serve().await;
    let whole = ok(&server, &chat("/echo one two three")).await;
    assert_eq!(whole["object"], "chat.completion");
    assert_eq!(whole["model"], "demo");
    let message = &whole["choices"][0];
    assert_eq!(
        message["message"],
        json!({ "role": "assistant", "content": "one two three", "refusal": null })
    );
    assert_eq!(message["finish_reason"], "stop");
    let count = |name: &str| whole["usage"][name].as_u64().unwrap();
    assert!(count("completion_tokens") > 0);
    assert_eq!(count("total_tokens"), count("prompt_tokens") + count("completion_tokens"));

    let mut body = streamed(chat("/echo one two three"));
    body["stream_options"] = json!({ "include_usage": true });
    let response = post(&server, &body, &[]).await;
    let stream = stream_of(&response).replace('-', "");
    let said = chunks(response).await;
    assert!(said.iter().all(|chunk| chunk["id"] == format!("chatcmpl-{stream}")));
    assert_eq!(said[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
    assert_eq!(text(&said), "one two three");
    let [.., finish, usage] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!(finish["choices"][0]["finish_reason"], "stop");
    assert!(said[..said.len() - 1].iter().all(|chunk| chunk["usage"].is_null()));
    assert_eq!((&usage["choices"], &usage["usage"]), (&json!([]), &whole["usage"]));
}

#[tokio::test]
async fn the_callers_tools_are_called_and_the_agents_own_are_not_told() {
    let server = serve().await;
    let tool = json!({ "type": "function", "function": { "name": "weather",
    "parameters": { "type": "object" } } });
    let body = json!({ "model": "caller", "tools": [tool], "messages": [{ "role": "user",
    "content": "Bern?" }] });
    let whole = ok(&server, &body).await;
    let choice = &whole["choices"][0];
    let call = json!({ "id": "c1", "type": "function", "function": { "name": "weather",
    "arguments": "{\"city\":\"Bern\"}" } });
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["tool_calls"]),
        (&json!("tool_calls"), &json!([call]))
    );

    let said = chunks(post(&server, &streamed(body.clone()), &[]).await).await;
    let told: Vec<&Value> = said
        .iter()
        .flat_map(|c| c["choices"][0]["delta"]["tool_calls"].as_array())
        .flatten()
        .collect();
    let first = json!({ "index": 0, "id": "c1", "type": "function", "function": {
        "name": "weather", "arguments": "" } });
    let more = |piece: &str| json!({ "index": 0, "function": { "arguments": piece } });
    assert_eq!(told, [&first, &more("{\"city\":"), &more("\"Bern\"}")]);
    assert_eq!(said.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");

    // The result goes back with the whole conversation.
    let mut next = body;
    let messages = next["messages"].as_array_mut().unwrap();
    messages.push(json!({ "role": "assistant", "content": null, "tool_calls": [call] }));
    messages.push(json!({ "role": "tool", "tool_call_id": "c1", "content": "sunny" }));
    let told =
        ok(&server, &next).await["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    assert!(told.contains("tool_call_response") && told.contains("sunny"), "{told}");
    next["messages"][2]["tool_call_id"] = "unknown".into();
    let refused = post(&server, &next, &[]).await;
    assert_eq!(refused.status(), 400);
    assert_eq!(refused.json::<Value>().await.unwrap()["error"]["param"], "messages");
}

#[tokio::test]
async fn every_failure_has_its_class_and_says_whether_to_try_again() {
    let server = serve().await;
    for (fault, status, kind_of, code, retry) in [
        ("agent_execution_error", 500, "server_error", "agent_execution_error", "false"),
        (
            "rate_limit_exceeded --retry-after 7",
            429,
            "rate_limit_error",
            "rate_limit_exceeded",
            "false",
        ),
        ("timeout", 504, "server_error", "timeout", "false"),
        ("service_unavailable", 503, "server_error", "service_unavailable", "false"),
        ("upstream_error", 502, "server_error", "upstream_error", "false"),
        ("upstream_auth", 500, "server_error", "upstream_auth", "false"),
        ("upstream_quota", 429, "insufficient_quota", "insufficient_quota", "false"),
        (
            "context_length_exceeded",
            400,
            "invalid_request_error",
            "context_length_exceeded",
            "false",
        ),
        ("content_refused", 400, "invalid_request_error", "content_refused", "false"),
        ("stream_expired", 404, "invalid_request_error", "stream_expired", "false"),
        ("tenant_unauthorized", 403, "invalid_request_error", "tenant_unauthorized", "false"),
        ("message_limit_exceeded", 429, "rate_limit_error", "message_limit_exceeded", "false"),
    ] {
        let body = chat(&format!("/fault {fault}"));
        let response = post(&server, &body, &[]).await;
        assert_eq!(
            (response.status().as_u16(), header(&response, "x-should-retry")),
            (status, retry),
            "{fault}"
        );
        let wait =
            response.headers().get("retry-after").map(|wait| wait.to_str().unwrap().to_owned());
        assert!(response.headers().contains_key("x-request-id"));
        let error = response.json::<Value>().await.unwrap()["error"].clone();
        assert_eq!(
            (&error["type"], &error["code"], &error["severity"]),
            (&json!(kind_of), &json!(code), &json!("FATAL")),
            "{fault}"
        );
        assert_eq!(error["retry_after"].as_u64().map(|wait| wait.to_string()), wait);

        let said = chunks(post(&server, &streamed(body), &[]).await).await;
        let (last, before) = said.split_last().unwrap();
        assert_eq!(last["error"]["code"], code, "{said:?}");
        assert!(
            before.iter().all(|chunk| chunk["choices"][0]["finish_reason"].is_null()),
            "{said:?}"
        );
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_named_and_starts_nothing() {
    let server = serve().await;
    let with = |name: &str, value: Value| {
        let mut body = chat("/echo hi");
        body[name] = value;
        body
    };
    for (body, status, param, code) in [
        (with("model", json!("gpt-9")), 404, "model", "model_not_found"),
        (with("n", json!(2)), 400, "n", "invalid_request"),
        (with("logprobs", json!(true)), 400, "logprobs", "invalid_request"),
        (with("stream", json!("yes")), 400, "stream", "invalid_request"),
        (with("metadata", json!({ "k": 5 })), 400, "metadata.k", "invalid_request"),
        (with("metadata", json!({ "k".repeat(65): "v" })), 400, "metadata", "invalid_request"),
        (with("metadata", json!({ "k": "v".repeat(513) })), 400, "metadata", "invalid_request"),
        (with("temperature", json!("hot")), 400, "temperature", "invalid_request"),
        (with("temperature", json!(3)), 400, "temperature", "invalid_request"),
        (with("max_completion_tokens", json!(-1)), 400, "max_completion_tokens", "invalid_request"),
        (with("max_tokens", json!(0)), 400, "max_tokens", "invalid_request"),
        (with("tools", json!({})), 400, "tools", "invalid_request"),
        (with("stream_options", json!(true)), 400, "stream_options", "invalid_request"),
        (with("seed", json!("1")), 400, "seed", "invalid_request"),
        (with("function_call", json!("auto")), 400, "function_call", "invalid_request"),
        (with("messages", json!("hi")), 400, "messages", "invalid_request"),
        (
            with("response_format", json!({ "type": "json_object" })),
            400,
            "response_format",
            "invalid_request",
        ),
    ] {
        let response = post(&server, &body, &[]).await;
        assert_eq!(
            (response.status().as_u16(), header(&response, "x-should-retry")),
            (status, "false"),
            "{body}"
        );
        let error = response.json::<Value>().await.unwrap()["error"].clone();
        assert_eq!((&error["param"], &error["code"]), (&json!(param), &json!(code)), "{body}");
    }
    // Refused by the server before the face saw anything, and yet in its words.
    let wrong = client().get(format!("{}/v1/chat/completions", server.url)).send().await.unwrap();
    assert_eq!((wrong.status().as_u16(), wrong.headers().contains_key("allow")), (405, true));
    assert_eq!(wrong.json::<Value>().await.unwrap()["error"]["code"], "method_not_allowed");
    let typeless = client()
        .post(format!("{}/v1/chat/completions", server.url))
        .body("{}")
        .send()
        .await
        .unwrap();
    assert_eq!(typeless.status(), 415);
    assert_eq!(runs(&server).await, 0);
}

#[tokio::test]
async fn a_key_runs_once_and_replays_under_the_same_id() {
    let server = serve().await;
    let key = [("Idempotency-Key", "order-17")];
    let first: Value = post(&server, &chat("/echo once"), &key).await.json().await.unwrap();
    let again: Value = post(&server, &chat("/echo once"), &key).await.json().await.unwrap();
    assert_eq!(first, again);
    let other = post(&server, &chat("/echo twice"), &key).await;
    assert_eq!((other.status().as_u16(), header(&other, "x-should-retry")), (409, "false"));
    assert_eq!(other.json::<Value>().await.unwrap()["error"]["code"], "request_conflict");

    let key = [("Idempotency-Key", "order-18")];
    let streams = [
        post(&server, &streamed(chat("/tokens 20")), &key).await.text().await.unwrap(),
        post(&server, &streamed(chat("/tokens 20")), &key).await.text().await.unwrap(),
    ];
    assert_eq!(streams[0], streams[1]);
    assert_eq!(runs(&server).await, 2);
    // Without one each is a run of its own.
    let ids = [
        ok(&server, &chat("/echo a")).await["id"].clone(),
        ok(&server, &chat("/echo a")).await["id"].clone(),
    ];
    assert_ne!(ids[0], ids[1]);
    assert_eq!(runs(&server).await, 4);
}

#[tokio::test]
async fn with_a_key_a_failed_attempt_is_the_clients_to_repeat_and_without_one_the_gateways() {
    let server = serve().await;
    let key = [("Idempotency-Key", "flaky")];
    let body = chat("/flaky 1 --wait 30");
    let waits = post(&server, &body, &key).await;
    assert_eq!(
        (waits.status().as_u16(), header(&waits, "x-should-retry"), header(&waits, "retry-after")),
        (502, "true", "30")
    );
    let healed: Value = post(&server, &body, &key).await.json().await.unwrap();
    assert!(
        healed["choices"][0]["message"]["content"].as_str().unwrap().ends_with("twice."),
        "{healed}"
    );
    let alone = ok(&server, &body).await;
    assert_eq!(alone["choices"], healed["choices"]);
    let said = chunks(post(&server, &streamed(body), &[]).await).await;
    assert_eq!(Some(text(&said).as_str()), healed["choices"][0]["message"]["content"].as_str());
    assert_eq!(runs(&server).await, 3);
}

#[tokio::test]
async fn sent_text_cannot_be_reset_and_unsent_text_can() {
    let server = serve().await;
    let said = chunks(post(&server, &streamed(chat("/diverge")), &[]).await).await;
    assert_eq!(said.last().unwrap()["error"]["code"], "attempt_diverged");
    let whole = ok(&server, &chat("/diverge")).await;
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text.ends_with("before I spoke."), "{whole}");
    // Nobody saw what was taken back, so that nobody is told of it later.
    let stream = whole["id"].as_str().unwrap().trim_start_matches("chatcmpl-");
    let told =
        server.get(&format!("/v1/streams/{stream}?face=openai-chat")).await.text().await.unwrap();
    let said: String = told
        .split("\n\n")
        .filter_map(|frame| serde_json::from_str::<Value>(frame.strip_prefix("data: ")?).ok())
        .filter_map(|chunk| Some(chunk["choices"][0]["delta"]["content"].as_str()?.to_owned()))
        .collect();
    assert_eq!(said, text);
}

#[tokio::test]
async fn a_stopped_run_ends_as_its_reader_can_read() {
    let server = serve().await;
    let response = post(&server, &streamed(chat("/hang")), &[]).await;
    server.delete(&format!("/v1/streams/{}", stream_of(&response))).await;
    let said = chunks(response).await;
    assert_eq!(said.last().unwrap()["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn the_models_are_the_agents() {
    let server = serve().await;
    let list: Value = server.get("/v1/models").await.json().await.unwrap();
    let names: Vec<_> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert_eq!((&list["object"], names), (&json!("list"), vec!["demo", "caller"]));
    let one: Value = server.get("/v1/models/caller").await.json().await.unwrap();
    assert_eq!((&one["id"], &one["object"]), (&json!("caller"), &json!("model")));
    let none = server.get("/v1/models/gpt-9").await;
    assert_eq!(none.status(), 404);
    assert_eq!(none.json::<Value>().await.unwrap()["error"]["code"], "model_not_found");
    // The default agent has many names: its own, none, and this word.
    for model in [json!(null), json!("default"), json!("")] {
        let mut body = chat("/echo hi");
        body["model"] = model;
        assert_eq!(ok(&server, &body).await["model"], "demo");
    }
}

#[tokio::test]
async fn a_wrong_key_is_401_and_one_that_may_not_403() {
    let key = |key: &str, scopes: &[capstan_gateway::Scope]| TenantKey {
        hash: KeyHash::of(key),
        scopes: scopes.iter().copied().collect(),
    };
    let reader = key("sk-reader", &[capstan_gateway::Scope::Read]);
    let tenant = Tenant { keys: vec![reader], ..Tenant::new("acme", Vec::new()) };
    let server = start(Settings { tenants: vec![tenant].into(), ..Settings::default() }).await;
    for (key, status, code) in [
        (None, 401, "invalid_api_key"),
        (Some("Bearer sk-unknown"), 401, "invalid_api_key"),
        (Some("Bearer sk-reader"), 403, "tenant_unauthorized"),
    ] {
        let headers: Vec<_> = key.map(|key| ("authorization", key)).into_iter().collect();
        let response = post(&server, &chat("/echo hi"), &headers).await;
        assert_eq!(
            (response.status().as_u16(), header(&response, "x-should-retry")),
            (status, "false")
        );
        assert_eq!(response.json::<Value>().await.unwrap()["error"]["code"], code);
    }
}

const REPEAT: [(&str, &str); 1] = [("x-stainless-retry-count", "1")];

/// Waits until a stream is in a state; the journal tells, no clock.
async fn until(server: &Server, stream: &str, state: &str) {
    loop {
        let page: Value = server.get("/v1/streams").await.json().await.unwrap();
        let all = page["streams"].as_array().unwrap();
        if all.iter().any(|run| run["stream_id"] == stream && run["state"] == state) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until the gateway has noticed so many readers leave.
async fn until_left(server: &Server, count: usize) {
    while server.clock.asked(Timer::Grace).len() < count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_repeat_without_a_key_attaches_to_the_unread_run() {
    let server = serve().await;
    let body = streamed(chat("/hang"));
    let first = post(&server, &body, &[]).await;
    let stream = stream_of(&first);
    // Somebody reads it, so the repeat of another request is not its.
    let second = post(&server, &body, &REPEAT).await;
    let other = stream_of(&second);
    assert_ne!(stream, other);
    drop(first);
    until_left(&server, 1).await;
    let third = post(&server, &body, &REPEAT).await;
    assert_eq!(stream_of(&third), stream);
    // Who does not say that it repeats starts its own, and another body or tenant has nothing to do
    // with it.
    assert_eq!(runs(&server).await, 2);
    let fourth = post(&server, &body, &[]).await;
    let fifth = post(&server, &streamed(chat("/hang  ")), &REPEAT).await;
    assert_eq!(runs(&server).await, 4);
    for response in [second, third, fourth, fifth] {
        server.delete(&format!("/v1/streams/{}", stream_of(&response))).await;
    }
    // A stopped run is started again.
    let again = post(&server, &body, &REPEAT).await;
    assert_eq!(runs(&server).await, 5);
    server.delete(&format!("/v1/streams/{}", stream_of(&again))).await;
}

#[tokio::test]
async fn repeat_gets_a_completed_answer_only_if_it_may_have_been_lost() {
    let server = serve().await;
    let read = async |client: &reqwest::Client, body: &Value, headers: &[(&str, &str)]| {
        let response = post_by(client, &server, body, headers).await;
        let stream = stream_of(&response);
        response.bytes().await.unwrap();
        stream
    };
    for body in [chat("/echo whole"), streamed(chat("/echo streamed"))] {
        let (here, there) = (client(), client());
        let first = read(&here, &body, &[]).await;
        assert_eq!(read(&there, &body, &REPEAT).await, first, "{body}");
        // A client that asks again on the connection of an answer has read this answer.
        assert_ne!(read(&there, &body, &REPEAT).await, first, "{body}");
    }
}

/// Fails in every second run.
#[derive(Default)]
struct Alternating(AtomicBool);

#[async_trait]
impl Agent for Alternating {
    async fn run(&self, _: Turn, out: &mut Writer) -> Outcome {
        if self.0.fetch_xor(true, Ordering::Relaxed) {
            return Err(Failure::last(Fault::new(FaultKind::UpstreamError)));
        }
        out.delta("Hello.").await?;
        Ok(())
    }
}

#[tokio::test]
async fn repeat_of_a_failed_request_gets_no_older_answer() {
    let gateway = Gateway::new(crate::common::journal()).agent("demo", Alternating::default());
    let server = crate::common::serve_gateway(gateway).await;
    let body = chat("Hi");
    for (headers, status, started) in [(&[][..], 200, 1), (&[], 502, 2), (&REPEAT[..], 200, 3)] {
        assert_eq!(post(&server, &body, headers).await.status(), status);
        assert_eq!(runs(&server).await, started);
    }
}

#[tokio::test]
async fn a_run_is_read_from_the_moment_on_in_which_it_can_be_found() {
    let (store, (go_on, late)) = (OddStore::new().shared(), oneshot::channel());
    *store.late_claim.lock().unwrap() = Some(late);
    let server = crate::common::start_on(store.journal(), Settings::default()).await;
    let body = streamed(chat("/hang"));
    // Its run is in the journal, and it does not know yet.
    let first = post(&server, &body, &[]);
    let repeat = async {
        while runs(&server).await == 0 {}
        let repeat = post(&server, &body, &REPEAT).await;
        go_on.send(()).unwrap();
        repeat
    };
    let (first, repeat) = tokio::join!(first, repeat);
    assert_ne!(stream_of(&first), stream_of(&repeat));
    for response in [first, repeat] {
        server.delete(&format!("/v1/streams/{}", stream_of(&response))).await;
    }
}

#[tokio::test]
async fn parallel_repeats_each_get_their_own_run() {
    let server = serve().await;
    let body = streamed(chat("/hang"));
    let mut first = Vec::new();
    for _ in 0..5 {
        first.push(post(&server, &body, &[]).await);
    }
    let streams: BTreeSet<String> = first.iter().map(stream_of).collect();
    assert_eq!(streams.len(), 5);
    drop(first);
    until_left(&server, 5).await;
    let again = futures_util::future::join_all((0..5).map(|_| post(&server, &body, &REPEAT))).await;
    assert_eq!(again.iter().map(stream_of).collect::<BTreeSet<_>>(), streams);
    assert_eq!(runs(&server).await, 5);
    for stream in streams {
        server.delete(&format!("/v1/streams/{stream}")).await;
    }
}

#[tokio::test]
async fn a_keyless_chat_stops_after_its_last_reader_left() {
    let server = serve().await;
    let body = streamed(chat("/hang"));
    let left = post(&server, &body, &[]).await;
    let stream = stream_of(&left);
    drop(left);
    until_left(&server, 1).await;
    assert_eq!(server.clock.asked(Timer::Grace), [std::time::Duration::from_secs(30)]);
    server.clock.strike(Timer::Grace);
    until(&server, &stream, "closed").await;

    // Somebody who reads it by its stream's id keeps it, and so does a key.
    let left = post(&server, &body, &[]).await;
    let watched = stream_of(&left);
    let watching = server.get(&format!("/v1/streams/{watched}")).await;
    drop(left);
    let keyed = post(&server, &body, &[("Idempotency-Key", "k")]).await;
    let kept = stream_of(&keyed);
    drop(keyed);
    let last = post(&server, &body, &[]).await;
    let stopped = stream_of(&last);
    drop(last);
    until_left(&server, 2).await;
    server.clock.strike(Timer::Grace);
    until(&server, &stopped, "closed").await;
    for open in [&watched, &kept] {
        until(&server, open, "running").await;
        server.delete(&format!("/v1/streams/{open}")).await;
    }
    drop(watching);
}

#[tokio::test]
async fn an_unread_chat_outlasts_every_wait_that_was_asked_for() {
    let limits = Limits { requests_per_minute: 1, ..Limits::default() };
    let server = crate::common::start(Settings { limits, ..Settings::default() }).await;
    let left = post(&server, &streamed(chat("/hang")), &[]).await;
    let stream = stream_of(&left);
    let refused = post(&server, &chat("/echo hi"), &[]).await;
    let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(wait > 30, "{wait}");
    drop(left);
    until_left(&server, 1).await;
    server.clock.strike(Timer::Grace);
    until_left(&server, 2).await;
    let waited: Duration = server.clock.asked(Timer::Grace).iter().sum();
    assert!(
        waited <= Duration::from_secs(wait) && waited > Duration::from_secs(wait - 20),
        "{waited:?}"
    );
    until(&server, &stream, "running").await;
    server.clock.strike(Timer::Grace);
    until(&server, &stream, "closed").await;
}

#[tokio::test]
async fn no_kind_that_is_fatal_is_answered_with_a_status_that_clients_repeat() {
    let server = serve().await;
    for kind in FaultKind::ALL {
        let entry = kind.entry();
        let response = post(&server, &chat(&format!("/fault {}", entry.code)), &[]).await;
        let (status, again) =
            (response.status().as_u16(), header(&response, "x-should-retry").to_owned());
        let error = response.json::<Value>().await.unwrap()["error"].clone();
        assert_eq!((&error["kind"], again.as_str()), (&json!(entry.code), "false"), "{error}");
        let is_fatal = entry.severity == ErrorSeverity::Fatal;
        assert!(status >= 400 && !(is_fatal && status >= 501), "{}: {status}", entry.code);
    }
}

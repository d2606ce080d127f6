//! The tables of docs/upstreams.md: each row happens here, and the page must say what
//! came of it.

use std::sync::Arc;

use crate::common::*;
use capstan_agent::{Agent, Clock, Timer, Turn};
use capstan_protocol::agui::{AguiEvent, RunError};
use capstan_protocol::{ErrorSeverity, Exposure, Fault, FaultKind, Problem};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::rustls;

const PAGE: &str = include_str!("../../../../docs/upstreams.md");

/// The row of the page that a fault asks for.
fn row(label: &str, fault: &Fault) -> String {
    let retry = if fault.is_retryable() { "yes" } else { "no" };
    let (code, severity, domain) = (fault.code(), fault.severity(), fault.domain().as_str());
    format!("| {label} | `{code}` | {severity} | {domain} | {retry} |")
}

fn stands(label: &str, fault: &Fault) {
    let row = row(label, fault);
    assert!(PAGE.contains(&row), "docs/upstreams.md lacks\n{row}");
}

/// One call and no more, so that the fault is the call's own.
fn config(url: &str) -> Value {
    json!({ "url": url, "model": "m", "max_calls": 1 })
}

async fn fault_of(kind: &str, url: &str) -> Fault {
    fault_by(Clock::default(), kind, url).await
}

async fn fault_by(clock: Clock, kind: &str, url: &str) -> Fault {
    let agent = || agent_by(clock.clone(), kind, config(url));
    let (_, outcome) = run(agent(), Turn::new("Hi")).await;
    let fault = outcome.unwrap_err();
    on_the_wire(agent(), &fault).await;
    fault
}

async fn fault(kind: &str, acts: Vec<Do>) -> Fault {
    let provider = Provider::start(move |_| acts.clone()).await;
    let fault = fault_by(provider.clock.clone(), kind, &provider.url).await;
    assert_eq!(provider.calls(), 2, "one by itself, one behind a gateway");
    fault
}

/// What callers read of the same failure, in every dialect: nothing that a fault says is lost on
/// the way.
async fn on_the_wire(agent: Box<dyn Agent>, fault: &Fault) {
    let gateway = gateway(agent).await;
    let request = question("Hi");
    let response = post(&gateway, &request, "text/event-stream").await;
    let stream = response.headers()["x-stream-id"].to_str().unwrap().to_owned();
    let mut told = read(&response.bytes().await.unwrap());
    let error = Fault::from(told.errors.pop().expect("the stream ends in an error"));
    let problem: Problem = post(&gateway, &request, "application/json").await.json().await.unwrap();
    let events =
        client().get(format!("{gateway}/v1/streams/{stream}?face=ag-ui")).send().await.unwrap();
    let events = events.text().await.unwrap();
    let last = events.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap();
    let last: AguiEvent = serde_json::from_str(last).unwrap();
    let run_error = Fault::from(RunError::from_event(&last).expect("the events end in RUN_ERROR"));
    let essence = |fault: &Fault| {
        let message = fault.message().to_owned();
        let rest =
            (fault.domain(), fault.is_retryable(), fault.retry_after(), fault.details().clone());
        (fault.kind(), fault.code().to_owned(), message, rest)
    };
    for (dialect, read) in
        [("ERROR", error), ("problem", Fault::from(problem)), ("RUN_ERROR", run_error)]
    {
        assert_eq!(essence(&read), essence(fault), "as {dialect}");
        // There is one attempt: what was TRANSIENT ends by rule 3.
        assert_eq!(read.severity(), ErrorSeverity::Fatal, "as {dialect}");
    }
}

fn openai(kind: &str, code: &str, message: &str) -> String {
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
        .to_string()
}

fn anthropic(kind: &str, message: &str) -> String {
    json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_1" })
        .to_string()
}

#[tokio::test]
async fn statuses_of_openai_are_typed() {
    for (label, code, body) in [
        (
            "openai 400 invalid request",
            400,
            openai("invalid_request_error", "", "Unknown parameter"),
        ),
        (
            "openai 400 `context_length_exceeded`",
            400,
            openai("invalid_request_error", "context_length_exceeded", "too long"),
        ),
        (
            "openai 400 `content_filter`",
            400,
            openai("", "content_filter", "filtered by the content management policy"),
        ),
        (
            "openai 401 `invalid_api_key`",
            401,
            openai("invalid_request_error", "invalid_api_key", "Incorrect key"),
        ),
        (
            "openai 403 not allowed",
            403,
            openai("forbidden", "unsupported_country_region_territory", "no"),
        ),
        ("openai 402 payment required", 402, openai("", "", "Insufficient credits")),
        (
            "openai 404 `model_not_found`",
            404,
            openai("invalid_request_error", "model_not_found", "no such model"),
        ),
        (
            "openai 429 `rate_limit_exceeded`",
            429,
            openai("tokens", "rate_limit_exceeded", "Rate limit reached"),
        ),
        (
            "openai 429 `insufficient_quota`",
            429,
            openai("insufficient_quota", "insufficient_quota", "exceeded your current quota"),
        ),
        ("openai 500 server error", 500, openai("server_error", "", "The server had an error")),
        ("openai 503 overloaded", 503, openai("service_unavailable_error", "", "overloaded")),
    ] {
        let fault = fault("openai", status(code, &[], &body)).await;
        stands(label, &fault);
        assert_eq!(fault.details()["upstream_status"], code, "{label}");
    }
}

#[tokio::test]
async fn statuses_of_anthropic_are_typed() {
    for (label, code, body) in [
        (
            "anthropic 400 `invalid_request_error`",
            400,
            anthropic("invalid_request_error", "max_tokens: required"),
        ),
        (
            "anthropic 400 prompt too long",
            400,
            anthropic(
                "invalid_request_error",
                "prompt is too long: 210000 tokens > 200000 maximum",
            ),
        ),
        (
            "anthropic 400 content filter",
            400,
            anthropic("invalid_request_error", "Output blocked by content filtering policy"),
        ),
        (
            "anthropic 400 credit balance",
            400,
            anthropic("invalid_request_error", "Your credit balance is too low to access the API."),
        ),
        (
            "anthropic 401 `authentication_error`",
            401,
            anthropic("authentication_error", "invalid x-api-key"),
        ),
        ("anthropic 402 `billing_error`", 402, anthropic("billing_error", "pay")),
        ("anthropic 403 `permission_error`", 403, anthropic("permission_error", "no")),
        (
            "anthropic 404 `not_found_error` of a model",
            404,
            anthropic("not_found_error", "model: x"),
        ),
        ("anthropic 413 `request_too_large`", 413, anthropic("request_too_large", "big")),
        ("anthropic 429 `rate_limit_error`", 429, anthropic("rate_limit_error", "slow down")),
        ("anthropic 500 `api_error`", 500, anthropic("api_error", "Internal server error")),
        ("anthropic 504 `timeout_error`", 504, anthropic("timeout_error", "took too long")),
        ("anthropic 529 `overloaded_error`", 529, anthropic("overloaded_error", "Overloaded")),
    ] {
        let fault = fault("anthropic", status(code, &[], &body)).await;
        stands(label, &fault);
        assert_eq!(fault.details()["upstream_status"], code, "{label}");
    }
}

#[tokio::test]
async fn errors_in_a_stream_of_openai_are_typed() {
    let finish =
        |reason: &str| json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
    let refusal = json!({ "choices": [{ "index": 0, "delta": { "refusal": "I cannot." },
    "finish_reason": null }] });
    let error = |kind: &str, code: Value| {
        json!({ "error": { "message": "m", "type": kind,
    "code": code } })
    };
    for (label, chunks) in [
        ("openai in the stream: `server_error`", vec![error("server_error", Value::Null)]),
        (
            "openai in the stream: `rate_limit_exceeded`",
            vec![error("tokens", json!("rate_limit_exceeded"))],
        ),
        (
            "openai in the stream: `insufficient_quota`",
            vec![error("insufficient_quota", json!("insufficient_quota"))],
        ),
        ("openai in the stream: a status as code", vec![error("x", json!(400))]),
        ("openai in the stream: an error that says nothing", vec![json!({ "error": "boom" })]),
        ("openai `finish_reason: content_filter`", vec![finish("content_filter")]),
        ("openai `delta.refusal`", vec![refusal, finish("stop")]),
    ] {
        let acts = std::iter::once(stream_head()).chain(chunks.iter().map(chunk)).collect();
        stands(label, &fault("openai", acts).await);
    }
}

#[tokio::test]
async fn errors_in_a_stream_of_anthropic_are_typed() {
    let error = |kind: &str| format!("event: error\ndata: {}\n\n", anthropic(kind, "m"));
    let refusal = json!({ "type": "message_delta", "delta": { "stop_reason": "refusal" },
    "usage": { "output_tokens": 1 } });
    for (label, text) in [
        ("anthropic `event: error` `overloaded_error`", error("overloaded_error")),
        ("anthropic `event: error` `api_error`", error("api_error")),
        ("anthropic `event: error` `rate_limit_error`", error("rate_limit_error")),
        ("anthropic `event: error` `invalid_request_error`", error("invalid_request_error")),
        ("anthropic `stop_reason: refusal`", format!("event: message_delta\ndata: {refusal}\n\n")),
    ] {
        stands(label, &fault("anthropic", vec![stream_head(), Do::Write(text)]).await);
    }
}

#[tokio::test]
async fn a_providers_wait_is_kept() {
    for kind in ["openai", "anthropic"] {
        let fault = fault(kind, status(429, &[("retry-after", "30")], "{}")).await;
        assert_eq!(fault.retry_after(), Some(30), "{kind}");
        stands("429 with `Retry-After` or `retry-after-ms`", &fault);
    }
}

#[tokio::test]
async fn connections_that_fail_are_typed() {
    let closed = closed_port();
    let address = closed.local_addr().unwrap();
    stands("connection refused", &fault_of("openai", &format!("http://{address}")).await);
    // No resolver is asked for a label that cannot exist.
    let nowhere = format!("http://{}.invalid", "x".repeat(70));
    stands("DNS failure", &fault_of("openai", &nowhere).await);
    stands("reset before the headers", &fault("openai", vec![Do::Reset]).await);
}

#[tokio::test]
async fn a_certificate_that_does_not_verify_is_fatal() {
    let certificate = include_bytes!("../../fixtures/tls/certificate.der").to_vec().into();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(
        include_bytes!("../../fixtures/tls/key.der").to_vec().into(),
    );
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key);
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config.unwrap()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = acceptor.accept(stream).await;
        }
    });
    stands("TLS certificate that does not verify", &fault_of("openai", &url).await);
}

/// Its words say nothing of a certificate: the type of the failure tells.
#[tokio::test]
async fn a_server_that_speaks_no_tls_is_fatal_whatever_the_kind() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    for (kind, config) in [
        ("openai", config(&url)),
        ("ag-ui", json!({ "url": url, "max_calls": 1 })),
        ("cap", json!({ "url": url, "max_calls": 1 })),
    ] {
        let (_, outcome) = run(agent_by(Clock::default(), kind, config), Turn::new("Hi")).await;
        let fault = outcome.unwrap_err();
        let told = (fault.kind(), fault.severity(), fault.is_retryable());
        let expected = (FaultKind::UpstreamUnreachable, ErrorSeverity::Fatal, false);
        assert_eq!(told, expected, "{kind}: {:?}", fault.cause());
    }
}

#[tokio::test]
async fn answers_that_break_are_typed() {
    let begun = |rest: Vec<Do>| [vec![stream_head(), token("tok1 ")], rest].concat();
    for (label, acts) in [
        ("no first token in time", vec![stream_head(), Do::Strike(Timer::FirstToken), Do::Hang]),
        ("no answer at all", vec![Do::Strike(Timer::FirstToken), Do::Hang]),
        ("stall in mid-stream", begun(vec![Do::Strike(Timer::Idle), Do::Hang])),
        ("malformed chunk", begun(vec![Do::Write("data: {oops\n\n".into())])),
        ("cut without a finish", begun(vec![])),
        ("reset in mid-stream", begun(vec![Do::Reset])),
        (
            "a page instead of a stream",
            vec![Do::Write(
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n<p>".into(),
            )],
        ),
        ("redirect to another server", status(307, &[("location", "http://127.0.0.1:1/")], "")),
    ] {
        stands(label, &fault("openai", acts).await);
    }
}

#[tokio::test]
async fn a_call_that_takes_too_long_in_all_is_fatal() {
    let provider =
        Provider::start(|_| vec![stream_head(), token("x"), Do::Strike(Timer::Total), Do::Hang])
            .await;
    let mut config = config(&provider.url);
    // Below the other limits, so that it is the one to strike.
    config["timeouts"] = json!({ "total": 9 });
    let (_, outcome) = run(provider.agent("openai", config), Turn::new("Hi")).await;
    stands("total time-out", &outcome.unwrap_err());
}

#[tokio::test]
async fn processes_that_fail_are_typed() {
    for (label, script) in [
        ("process: exit code other than 0 without a result", "echo boom >&2; exit 3"),
        ("process: exit code 0 without a result", "exit 0"),
        ("process: ended by a signal", "kill -9 $$"),
        ("process: unreadable line", "echo '{\"type\": oops'"),
        ("process: oversized line", "head -c 5000 /dev/zero | tr '\\0' x"),
        ("process: frame without a member that it must have", "echo '{\"type\":\"assistant\"}'"),
    ] {
        let config = json!({ "command": ["sh", "-c", script], "max_line_bytes": 4096 });
        let (_, outcome) = run(agent("command", config), Turn::new("Hi")).await;
        let fault = outcome.unwrap_err();
        stands(label, &fault);
        let shown = format!("{:?}", fault.to_stream_error(Exposure::Production));
        assert!(!shown.contains("boom"), "standard error stays inside: {shown}");
    }
    let (_, outcome) =
        run(agent("command", json!({ "command": ["/no/such/program"] })), Turn::new("Hi")).await;
    stands("process: cannot be started", &outcome.unwrap_err());
}

#[tokio::test]
async fn foreign_agents_that_fail_are_typed() {
    let event = |value: Value| vec![stream_head(), chunk(&value)];
    let started = json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r" });
    for (label, acts) in [
        (
            "ag-ui `RUN_ERROR` with one of the ten codes",
            event(json!({ "type": "RUN_ERROR", "message": "m", "code": "RATE_LIMITED" })),
        ),
        (
            "ag-ui `RUN_ERROR` with nothing but a message",
            event(json!({ "type": "RUN_ERROR", "message": "m" })),
        ),
        ("ag-ui: end without a terminal event", event(started)),
        ("ag-ui 401", status(401, &[], "{}")),
        ("ag-ui 503", status(503, &[], "{}")),
    ] {
        let provider = Provider::start(move |_| acts.clone()).await;
        let mut config = config(&provider.url);
        config.as_object_mut().unwrap().remove("model");
        let (_, outcome) = run(agent("ag-ui", config), Turn::new("Hi")).await;
        stands(label, &outcome.unwrap_err());
    }
}

#[tokio::test]
async fn foreign_a2a_agents_that_fail_are_typed() {
    let event = |result: Value| {
        vec![stream_head(), chunk(&json!({ "jsonrpc": "2.0", "id": 1, "result": result }))]
    };
    let state = |state: &str, parts: Value| {
        let message = json!({ "messageId": "m", "role": "ROLE_AGENT", "parts": parts });
        event(json!({ "statusUpdate": { "taskId": "t", "status": { "state": state,
            "message": message } } }))
    };
    let error = |code: i32| {
        let error = json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": code, "message": "m" } });
        status(200, &[], &error.to_string())
    };
    let typed = json!([{ "text": "m" }, { "data": { "code": "upstream_quota", "message": "m",
    "severity": "FATAL" } }]);
    for (label, acts) in [
        ("a2a: failed, in words", state("TASK_STATE_FAILED", json!([{ "text": "m" }]))),
        ("a2a: failed, in types", state("TASK_STATE_FAILED", typed)),
        ("a2a: rejected", state("TASK_STATE_REJECTED", json!([{ "text": "m" }]))),
        ("a2a: end without a task", vec![stream_head()]),
        ("a2a -32602", error(-32602)),
        ("a2a -32603", error(-32603)),
        ("a2a 401", status(401, &[], "{}")),
        ("a2a 503", status(503, &[], "{}")),
        ("a2a: not the protocol", status(200, &[], "<p>")),
    ] {
        let provider = Provider::start(move |_| acts.clone()).await;
        let config = json!({ "url": provider.url, "protocol": "1.0", "max_calls": 1 });
        let (_, outcome) = run(agent("a2a", config), Turn::new("Hi")).await;
        stands(label, &outcome.unwrap_err());
    }
}

#[tokio::test]
async fn foreign_cap_servers_that_fail_are_typed() {
    let packet = |p: Value| {
        let id = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
        let packet = json!({ "stream_id": id, "seq": 1, "op": "ERROR", "t": "2026-02-03T10:15:37Z",
        "p": p });
        vec![
            stream_head(),
            Do::Write(format!("event: stream.packet\nid: {id}:1\ndata: {packet}\n\n")),
        ]
    };
    for (label, acts) in [
        (
            "cap ERROR with a code of its own",
            packet(json!({ "code": "vault_sealed", "message": "m", "severity": "FATAL" })),
        ),
        (
            "cap ERROR with a code of the catalogue",
            packet(json!({ "code": "content_refused", "message": "m", "severity": "FATAL" })),
        ),
        ("cap 401", status(401, &[], "{}")),
        ("cap: not the protocol", status(200, &[], "{}")),
    ] {
        let provider = Provider::start(move |_| acts.clone()).await;
        let mut config = config(&provider.url);
        config.as_object_mut().unwrap().remove("model");
        let (_, outcome) = run(agent("cap", config), Turn::new("Hi")).await;
        stands(label, &outcome.unwrap_err());
    }
}

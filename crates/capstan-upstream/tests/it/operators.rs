//! What an operator's log learns of an upstream that failed, and no caller does.

use crate::common::*;
use capstan_agent::Turn;
use capstan_protocol::{Exposure, Fault};
use serde_json::{Value, json};

/// The configuration of a kind over HTTP, with a key in a file.
fn config(kind: &str, url: &str, key_file: &std::path::Path) -> Value {
    let mut config = json!({ "url": url, "key_file": key_file, "attempts": 1, "max_calls": 1 });
    if matches!(kind, "openai" | "anthropic") {
        config["model"] = json!("m");
    }
    config
}

async fn fault_of(kind: &str, config: Value) -> Fault {
    run(agent(kind, config), Turn::new("Hi")).await.1.unwrap_err()
}

fn key() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "sk-very-secret\n").unwrap();
    file
}

const KINDS: [&str; 4] = ["openai", "anthropic", "ag-ui", "cap"];

#[tokio::test]
async fn a_refused_call_is_logged_with_host_status_and_request_id() {
    let key = key();
    for (kind, header) in
        KINDS.into_iter().zip(["x-request-id", "request-id", "x-request-id", "x-request-id"])
    {
        let body =
            r#"{"error":{"message":"No such key: sk-very-secret","code":"invalid_api_key"}}"#;
        let acts = status(401, &[(header, "req_011")], body);
        let provider = Provider::start(move |_| acts.clone()).await;
        let fault = fault_of(kind, config(kind, &provider.url, key.path())).await;
        let upstream = fault.upstream().unwrap();
        let host = provider.url.strip_prefix("http://").unwrap();
        assert_eq!(upstream.host.as_deref(), Some(host), "{kind}");
        assert_eq!(
            (upstream.status, upstream.request_id.as_deref()),
            (Some(401), Some("req_011")),
            "{kind}"
        );
        let debug = format!("{:?}", fault.to_stream_error(Exposure::Debug));
        assert!(!debug.contains("req_011") && !debug.contains(host), "{kind}: {debug}");
    }
}

#[tokio::test]
async fn a_key_that_a_server_repeats_anywhere_does_not_reach_the_log() {
    let key = key();
    for kind in KINDS {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: \
         id-sk-very-secret\r\nconnection: close\r\n\r\n";
        let broken = "event: message\ndata: \
         {\"type\":\"sk-very-secret\",\"op\":\"sk-very-secret\"}\n\ndata: sk-very-secret\n\n";
        let acts = vec![Do::Write(head.into()), Do::Write(broken.into())];
        let provider = Provider::start(move |_| acts.clone()).await;
        let fault = fault_of(kind, config(kind, &provider.url, key.path())).await;
        let shown = format!("{fault:?}");
        assert!(shown.contains("id-[key]") && !shown.contains("very-secret"), "{kind}: {shown}");
    }
}

#[tokio::test]
async fn a_redirect_is_logged_with_its_target_server() {
    let key = key();
    for kind in KINDS {
        let acts = status(307, &[("location", "http://elsewhere.example:81/v1?token=hush")], "");
        let provider = Provider::start(move |_| acts.clone()).await;
        let fault = fault_of(kind, config(kind, &provider.url, key.path())).await;
        let cause = fault.cause().unwrap().to_string();
        assert!(
            cause.contains("redirected to http://elsewhere.example:81, which is not followed"),
            "{kind}: {cause}"
        );
        assert!(!cause.contains("hush"), "{kind}: {cause}");
    }
}

#[tokio::test]
async fn a_failed_connection_is_logged_with_host_and_errors() {
    let key = key();
    for kind in KINDS {
        let closed = closed_port();
        let host = closed.local_addr().unwrap().to_string();
        let fault = fault_of(kind, config(kind, &format!("http://{host}"), key.path())).await;
        let upstream = fault.upstream().unwrap();
        assert_eq!(
            (upstream.host.as_deref(), upstream.status),
            (Some(host.as_str()), None),
            "{kind}"
        );
        let cause = fault.cause().unwrap().to_string();
        assert!(cause.contains("Connection refused"), "{kind}: {cause}");
    }
}

#[tokio::test]
async fn the_last_lines_of_a_processs_standard_error_are_for_the_log_alone() {
    let result = r#"{"type":"result","subtype":"error_during_execution","duration_ms":1,"duration_api_ms":1,"is_error":true,"num_turns":1,"session_id":"s"}"#;
    for (script, timeout) in [
        ("echo \"profile staging, token $MY_TOKEN\" >&2; exit 3", 100.0),
        ("echo \"profile staging, token $MY_TOKEN\" >&2; echo '{\"type\": oops'; sleep 100", 100.0),
        ("echo \"profile staging, token $MY_TOKEN\" >&2; echo \"$0\"", 100.0),
        ("echo \"profile staging, token $MY_TOKEN\" >&2; sleep 100", 0.5),
    ] {
        let config = json!({ "command": ["sh", "-c", script, result],
        "env": { "MY_TOKEN": "tk-very-secret" },
            "timeouts": { "first_token": timeout } });
        let fault = fault_of("command", config).await;
        let stderr = fault.upstream().unwrap().stderr.as_deref();
        assert_eq!(stderr, Some("profile staging, token [key]"), "{script}");
        let debug = format!("{:?}", fault.to_stream_error(Exposure::Debug));
        assert!(!debug.contains("staging"), "{script}: {debug}");
    }
}

#[tokio::test]
async fn a_process_failure_is_logged_with_its_exit_or_start_error() {
    let cause = |fault: Fault| fault.cause().unwrap().to_string();
    let ended = fault_of("command", json!({ "command": ["sh", "-c", "exit 3"] })).await;
    assert_eq!(cause(ended), "the process ended without a result: exit status: 3");
    let absent = cause(fault_of("command", json!({ "command": ["/no/such/program"] })).await);
    assert!(absent.starts_with("cannot start \"/no/such/program\": "), "{absent}");
}

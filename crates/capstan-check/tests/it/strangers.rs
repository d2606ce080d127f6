//! Servers that are none of ours: each gets a clear verdict, in time.

use std::time::Duration;

use crate::common::{broken, serve_router, skipped};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use axum::routing::post;
use capstan_check::{Faces, Report, Target, run};
use capstan_fake_provider::{FakeProvider, Script};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket};

/// Accepts connections, and sends the same bytes to each.
async fn raw(words: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            socket.write_all(words.as_bytes()).await.unwrap();
            open.push(socket);
        }
    });
    url
}

fn target(url: &str) -> Target {
    Target { timeout: Duration::from_secs(2), ..Target::new(url.parse().unwrap()) }
}

/// A short timeout, for servers whose responses never end.
fn hasty(url: &str) -> Target {
    Target { timeout: Duration::from_millis(500), ..target(url) }
}

async fn refused(url: &str) -> String {
    run(hasty(url), |_| ()).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_target_that_is_no_server_is_reported_in_time() {
    // Bound but not listening, so that no other process gets the port meanwhile.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    assert!(refused(&url).await.contains("refused"), "{}", refused(&url).await);
    assert!(refused(&raw("220 mail.example ESMTP\r\n").await).await.contains("no answer"));
    assert!(refused(&raw("").await).await.contains("no answer within 500ms"));
    let nothing = serve_router(Router::new()).await;
    assert!(refused(&nothing).await.contains("takes no POST at /v1/assist, /assist, /v1/ag-ui"));
}

fn sse(body: Body) -> Response {
    Response::builder().header(CONTENT_TYPE, "text/event-stream").body(body).unwrap()
}

#[tokio::test]
async fn dependents_of_an_endless_body_are_skipped() {
    let words = || {
        stream::unfold((), |()| async {
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b": on and on\n")), ()))
        })
    };
    let url = serve_router(
        Router::new()
            .route("/assist", post(move || async move { sse(Body::from_stream(words())) })),
    )
    .await;
    let report = run(hasty(&url), |_| ()).await.unwrap();
    assert!(broken(&report).contains(&"cap.end"), "{report:#?}");
    assert!(skipped(&report).contains(&"cap.attach"));
}

/// RFC 004 to the letter: packets without a cursor of ours, no memory.
async fn literal_assist(body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(id) = request["request_id"].as_str() else {
        return Response::builder().status(422).body(Body::from("{\"detail\":[]}")).unwrap();
    };
    let packet = |seq: u32, op: &str, p: Value| {
        let packet =
            json!({ "stream_id": id, "seq": seq, "op": op, "t": "2026-02-03T10:15:37Z", "p": p });
        format!("event: stream.packet\nid: {id}\ndata: {packet}\n\n")
    };
    sse(Body::from(packet(1, "DELTA", json!("Hi")) + &packet(2, "CLOSE", json!("completed"))))
}

#[tokio::test]
async fn a_literal_server_learns_what_it_lacks() {
    let url = serve_router(Router::new().route("/assist", post(literal_assist))).await;
    let report = run(target(&url), |_| ()).await.unwrap();
    let broken = broken(&report);
    for id in ["cap.opening", "cap.ids", "cap.cache-control", "http.malformed"] {
        assert!(broken.contains(&id), "{id}: {report:#?}");
    }
    for id in ["cap.answer", "cap.packets", "cap.seq", "cap.close", "cap.end", "cap.time"] {
        assert!(!broken.contains(&id) && !skipped(&report).contains(&id), "{id}: {report:#?}");
    }
    assert!(skipped(&report).contains(&"cap.watch"), "a route that is not offered: {report:#?}");
}

async fn bare_agent(body: Bytes) -> Response {
    let Ok(input) = serde_json::from_slice::<Value>(&body) else {
        return Response::builder().status(400).body(Body::empty()).unwrap();
    };
    let event = |value: Value| format!("data: {value}\n\n");
    let (thread, run) = (&input["threadId"], &input["runId"]);
    sse(Body::from(
        [
            event(json!({ "type": "RUN_STARTED", "threadId": thread, "runId": run })),
            event(json!({ "type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant" })),
            event(json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hi" })),
            event(json!({ "type": "TEXT_MESSAGE_END", "messageId": "m" })),
            event(json!({ "type": "RUN_FINISHED", "threadId": thread, "runId": run })),
        ]
        .concat(),
    ))
}

async fn check_bare(router: Router) -> Report {
    let url = serve_router(router).await;
    run(Target { faces: Faces::Agui, ..target(&url) }, |_| ()).await.unwrap()
}

#[tokio::test]
async fn a_bare_agui_server_is_judged_by_agui_and_spared_our_extensions() {
    let report = check_bare(Router::new().route("/", post(bare_agent))).await;
    assert_eq!(broken(&report), ["agui.headers"], "{report:#?}");
    let skipped = skipped(&report);
    assert!(skipped.contains(&"agui.ids") && skipped.contains(&"agui.resume"), "{skipped:?}");
    assert!(!skipped.contains(&"agui.sequence") && !skipped.contains(&"agui.terminal"));
}

/// A provider's own server speaks only Messages, and starts every repeated request again.
#[tokio::test]
async fn a_provider_passes_all_checks_of_messages_except_the_gateways() {
    let script = Script { models: vec!["m".into()], unique_ids: true, ..Script::default() };
    let provider = FakeProvider::start("127.0.0.1:0", script).await.unwrap();
    let report = run(target(&provider.url()), |_| ()).await.unwrap();
    let messages = |ids: Vec<&'static str>| -> Vec<&str> {
        ids.into_iter().filter(|id| id.starts_with("messages.")).collect()
    };
    assert_eq!(messages(broken(&report)), ["messages.once"], "{report:#?}");
    assert_eq!(messages(skipped(&report)), ["messages.fault", "messages.key"]);
}

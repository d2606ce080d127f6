//! How failures look in a stream and over HTTP: what ends nothing, what is refused, how much is
//! said.

use std::time::Duration;

use crate::common::{all, ask, client, close_reason, start, text};
use capstan_gateway::{Settings, Timeouts};
use capstan_protocol::{
    ErrorDomain, ErrorSeverity, Event, EventView, Exposure, Payload, Problem, StreamError,
    StreamPacket,
};
use serde_json::{Value, json};
use uuid::Uuid;

async fn problem(response: reqwest::Response) -> Problem {
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    response.json().await.unwrap()
}

fn errors(packets: &[StreamPacket]) -> Vec<&StreamError> {
    packets
        .iter()
        .filter_map(|p| if let Payload::Error(e) = &p.payload { Some(&**e) } else { None })
        .collect()
}

#[tokio::test]
async fn a_warning_ends_nothing() {
    let server = start(Settings::default()).await;
    let packets = all(server.post(&ask("/warn")).await).await;
    let at = packets.iter().position(|p| matches!(p.payload, Payload::Error(_))).unwrap();
    assert_eq!(errors(&packets)[0].severity, ErrorSeverity::Warning);
    assert!(!text(&packets[at..]).is_empty(), "text follows it");
    assert_eq!(close_reason(&packets).as_deref(), Some("completed"));
    server.stop().await;
}

#[tokio::test]
async fn a_user_error_is_an_event_and_the_run_goes_on() {
    let server = start(Settings::default()).await;
    let packets = all(server.post(&ask("/user-error")).await).await;
    let told = packets.iter().find_map(|p| match &p.payload {
        Payload::Event(raw) => Some(Event::of(raw).view()),
        Payload::Delta(_) | Payload::Error(_) | Payload::Close(_) => None,
    });
    let Some(EventView::UserError(error)) = told else { panic!("{told:?}") };
    assert_eq!((error.code, error.domain, error.retryable), (Some(503), ErrorDomain::Tool, true));
    assert!(errors(&packets).is_empty(), "the stream is not broken");
    assert_eq!(close_reason(&packets).as_deref(), Some("completed"));
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_agent_is_not_found() {
    let server = start(Settings::default()).await;
    let post = |name: &str| {
        let url = format!("{}/v1/agents/{name}/assist", server.url);
        client().post(url).json(&ask("/tokens 1")).send()
    };
    assert_eq!(all(post("demo").await.unwrap()).await.len(), 2);
    let response = post("nobody").await.unwrap();
    assert_eq!(response.status(), 404);
    let problem = problem(response).await;
    assert_eq!(problem.code, "agent_not_found");
    assert!(problem.detail.unwrap().contains("nobody"));
    server.stop().await;
}

#[tokio::test]
async fn a_cursor_must_fit_the_request() {
    let server = start(Settings::default()).await;
    let request = ask("/tokens 1");
    all(server.post(&request).await).await;
    let foreign = format!("{}:1", Uuid::now_v7());
    let wrong = server.post_with(&request, &[("last-event-id", &foreign)]).await;
    assert_eq!(wrong.status(), 400);
    assert!(problem(wrong).await.detail.unwrap().contains("Last-Event-ID"));
    // Whoever comes back must find its run: starting another would be a second answer.
    let unknown = server.post_with(&ask("/tokens 1"), &[("last-event-id", &foreign)]).await;
    assert_eq!(unknown.status(), 410);
    assert_eq!(problem(unknown).await.code, "stream_expired");
    server.stop().await;
}

#[tokio::test]
async fn causes_are_sent_in_debug_mode_only() {
    for (exposure, is_told) in [(Exposure::Production, false), (Exposure::Debug, true)] {
        let server = start(Settings { exposure, ..Settings::default() }).await;
        let packets = all(server.post(&ask("/panic")).await).await;
        assert_eq!(errors(&packets)[0].details.is_some(), is_told, "{exposure:?}");
        server.stop().await;
    }
}

/// Each in its face: where it is asked, and how.
fn streamed(text: &str) -> [(&'static str, Value); 4] {
    let message =
        json!({ "messageId": Uuid::now_v7(), "role": "ROLE_USER", "parts": [{ "text": text }] });
    let part = json!({ "type": "text", "text": text });
    [
        ("/v1/responses", json!({ "model": "demo", "input": text, "stream": true })),
        (
            "/v1/chat/completions",
            json!({ "model": "demo", "messages": [{ "role": "user", "content": text }],
            "stream": true }),
        ),
        (
            "/v1/a2a",
            json!({ "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage",
            "params": { "message": message } }),
        ),
        (
            "/v1/ai-sdk/chat",
            json!({ "id": "c", "messages": [{ "id": "m", "role": "user", "parts": [part] }],
            "trigger": "submit-message" }),
        ),
    ]
}

/// To their clients a clean end is the end of the answer.
#[tokio::test]
async fn no_body_ends_cleanly_before_its_last_event_when_the_server_goes() {
    let timeouts = Timeouts { drain: Duration::ZERO, ..Timeouts::default() };
    let server = start(Settings { timeouts, ..Settings::default() }).await;
    let mut open = Vec::new();
    for (path, body) in streamed("/hang") {
        let response =
            client().post(format!("{}{path}", server.url)).json(&body).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        open.push((path, response));
    }
    server.stop().await;
    for (path, response) in open {
        let end = response.text().await;
        assert!(end.is_err(), "{path}: {end:?}");
    }
}

#[tokio::test]
async fn a_plain_id_of_a_request_comes_back_and_any_other_is_replaced() {
    let server = start(Settings::default()).await;
    let answered = async |id: &str| {
        let response = server.post_with(&ask("/tokens 1"), &[("x-request-id", id)]).await;
        response.headers()["x-request-id"].to_str().unwrap().to_owned()
    };
    let longest = "x".repeat(128);
    for plain in ["ticket-4711", &longest] {
        assert_eq!(answered(plain).await, plain);
    }
    for other in ["", "with a blank", "a\tb", &"x".repeat(129)] {
        let given = answered(other).await;
        assert!(given != other && given.parse::<Uuid>().is_ok(), "{other:?}: {given}");
    }
    server.stop().await;
}

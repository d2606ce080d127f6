//! What a client says that it can show decides what is written.

use crate::common::{all, ask, close_reason, errors, event_types, seqs, start, text};
use capstan_gateway::Settings;
use capstan_protocol::{ClientCapabilities, ErrorSeverity, ServiceRequest};

fn able(text: &str, supported: &[&str]) -> ServiceRequest {
    let mut request = ask(text);
    request.payload.capabilities = Some(ClientCapabilities {
        supported_events: supported.iter().map(|s| (*s).to_owned()).collect(),
        prefers_markdown: true,
        image_resolution: None,
    });
    request
}

#[tokio::test]
async fn without_capabilities_everything_is_written() {
    let server = start(Settings::default()).await;
    let packets = all(server.post(&ask("/events")).await).await;
    let expected = [
        "THOUGHT_TRACE",
        "PROGRESS_INDICATOR",
        "PROGRESS_INDICATOR",
        "CITATION_BLOCK",
        "MEDIA_CAROUSEL",
        "MARKDOWN_BLOCK",
        "user_error",
    ];
    assert_eq!(event_types(&packets), expected);
    assert!(!text(&packets).contains("### Capstan"), "a block is not repeated as text");
    server.stop().await;
}

#[tokio::test]
async fn an_event_that_the_client_did_not_list_is_not_written_and_leaves_no_gap() {
    let server = start(Settings::default()).await;
    let packets =
        all(server.post(&able("/events", &["CITATION_BLOCK", "MARKDOWN_BLOCK"])).await).await;
    assert_eq!(event_types(&packets), ["CITATION_BLOCK", "MARKDOWN_BLOCK", "user_error"]);
    assert_eq!(seqs(&packets), (1..=packets.len() as u64).collect::<Vec<_>>());
    assert_eq!(close_reason(&packets).as_deref(), Some("completed"));
    server.stop().await;
}

#[tokio::test]
async fn clients_without_markdown_get_text() {
    let server = start(Settings::default()).await;
    let packets = all(server.post(&able("/events", &["CITATION_BLOCK"])).await).await;
    let said = text(&packets);
    let (before, after) =
        (said.find("and its parts in a table. ").unwrap(), said.find("One tool").unwrap());
    let table = said.find("### Capstan").unwrap();
    assert!(before < table && table < after, "in its place: {said}");
    server.stop().await;
}

#[tokio::test]
async fn failures_are_written_whatever_the_client_listed() {
    let server = start(Settings::default()).await;
    let told = all(server.post(&able("/user-error", &[])).await).await;
    assert_eq!(event_types(&told), ["user_error"]);
    let warned = all(server.post(&able("/warn", &[])).await).await;
    assert_eq!(errors(&warned)[0].severity, ErrorSeverity::Warning);
    let failed = all(server.post(&able("/fault upstream_auth", &[])).await).await;
    assert_eq!(errors(&failed)[0].code, "upstream_auth");
    server.stop().await;
}

#[tokio::test]
async fn a_listed_stream_reset_announces_that_the_client_can_take_one() {
    let server = start(Settings::default()).await;
    let packets = all(server.post(&able("/diverge", &["stream_reset"])).await).await;
    assert_eq!(event_types(&packets), ["stream_reset"]);
    assert_eq!(close_reason(&packets).as_deref(), Some("completed"));
    server.stop().await;
}

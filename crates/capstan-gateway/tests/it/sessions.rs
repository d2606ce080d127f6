//! Conversations: a turn that was completed is known to the next one, any other is not.

use crate::common::{Server, all, ask_in, start, stream_of, text};
use capstan_gateway::Settings;
use capstan_protocol::{AgentRequest, ChatMessage};
use uuid::Uuid;

/// What the demo says when it was given earlier turns.
const SEES_ONE: &str = "We have had one turn before this one";

async fn say(server: &Server, session: Uuid, message: &str) -> String {
    text(&all(server.post(&ask_in(session, message)).await).await)
}

#[tokio::test]
async fn the_second_turn_sees_the_first() {
    let server = start(Settings::default()).await;
    let session = Uuid::now_v7();
    assert!(!say(&server, session, "What is a capstan?").await.contains("before this one"));
    assert!(say(&server, session, "And a rope?").await.contains(SEES_ONE));
    assert!(say(&server, session, "And a drum?").await.contains("2 turns before"));
    assert!(!say(&server, Uuid::now_v7(), "And here?").await.contains("before this one"));
    server.stop().await;
}

#[tokio::test]
async fn a_failed_or_stopped_turn_is_not_sent_to_the_agent() {
    let server = start(Settings::default()).await;
    let session = Uuid::now_v7();
    say(&server, session, "/fault upstream_auth").await;
    let hanging = server.post(&ask_in(session, "/hang")).await;
    server.delete(&format!("/v1/streams/{}", stream_of(&hanging))).await;
    assert!(!say(&server, session, "What is a capstan?").await.contains("before this one"));
    assert!(say(&server, session, "And a rope?").await.contains(SEES_ONE));
    server.stop().await;
}

#[tokio::test]
async fn a_healed_turn_counts_as_completed() {
    let server = start(Settings::default()).await;
    let session = Uuid::now_v7();
    say(&server, session, "/flaky 1").await;
    assert!(say(&server, session, "What was that?").await.contains(SEES_ONE));
    server.stop().await;
}

#[tokio::test]
async fn a_requests_own_messages_replace_what_is_stored() {
    let server = start(Settings::default()).await;
    let session = Uuid::now_v7();
    for message in ["One thing.", "Another thing."] {
        say(&server, session, message).await;
    }
    let mut request = ask_in(session, "");
    let told = [
        ChatMessage::user("Earlier."),
        ChatMessage::assistant("Yes."),
        ChatMessage::user("And now?"),
    ];
    request.payload = AgentRequest::messages(session, &told);
    assert!(text(&all(server.post(&request).await).await).contains(SEES_ONE));
    server.stop().await;
}

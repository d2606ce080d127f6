//! Tools of the caller: a call is answered by the caller's next request, whatever it brings along.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
use capstan_gateway::Gateway;
use capstan_protocol::{AgentRequest, ChatMessage, Part, Role};
use common::{Server, all, ask_in, client, close_reason, journal, serve_gateway, text};
use serde_json::{Value, json};
use uuid::Uuid;

/// Calls the caller's tool, and says what it answered; a model does the same.
struct Forecaster;

#[async_trait]
impl Agent for Forecaster {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let last = turn.messages.last().unwrap();
        if let Some(Part::ToolCallResponse { response, id }) = last.parts.last() {
            let roles: Vec<Role> = turn.conversation().map(|message| message.role).collect();
            let said = json!({ "asked": turn.text(), "call": id, "result": response, "roles": roles });
            return Ok(out.delta(said.to_string()).await?);
        }
        out.delta("Let me look. ").await?;
        out.event("TOOL_CALL_START", &json!({ "toolCallId": "c1", "toolCallName": "weather" })).await?;
        out.event("TOOL_CALL_ARGS", &json!({ "toolCallId": "c1", "delta": "{\"city\":\"Rome\"}" })).await?;
        out.event("TOOL_CALL_END", &json!({ "toolCallId": "c1" })).await?;
        Ok(())
    }
}

async fn start() -> Server {
    serve_gateway(Gateway::new(journal()).agent("forecaster", Forecaster)).await
}

fn seen(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"))
}

#[tokio::test]
async fn a_tool_round_trip_needs_nothing_but_the_session_and_the_result() {
    let server = start().await;
    let session = Uuid::now_v7();
    let called = all(server.post(&ask_in(session, "How is the weather?")).await).await;
    assert_eq!(common::event_types(&called), ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]);

    let mut request = ask_in(session, "");
    request.payload = AgentRequest::messages(session, &[ChatMessage::tool("c1", "Sunny.")]);
    let answer = all(server.post(&request).await).await;
    assert_eq!(
        seen(&text(&answer)),
        json!({ "asked": "How is the weather?", "call": "c1", "result": "Sunny.", "roles": ["user", "assistant", "tool"] })
    );
    let stored: Value = server.get(&format!("/v1/sessions/{session}")).await.json().await.unwrap();
    let said = |turn: usize, message: usize| stored["turns"][turn]["messages"][message].clone();
    let call =
        json!({ "type": "tool_call", "name": "weather", "arguments": "{\"city\":\"Rome\"}", "id": "c1" });
    assert_eq!(said(0, 1)["parts"], json!([{ "type": "text", "content": "Let me look. " }, call]));
    assert_eq!((&said(1, 0)["role"], &said(1, 1)["role"]), (&json!("tool"), &json!("assistant")));
    server.stop().await;
}

#[tokio::test]
async fn a_result_of_a_call_that_the_session_does_not_know_is_refused_by_name() {
    let server = start().await;
    let session = Uuid::now_v7();
    let mut request = ask_in(session, "");
    request.payload = AgentRequest::messages(session, &[ChatMessage::tool("c9", "Sunny.")]);
    let packets = all(server.post(&request).await).await;
    let error = common::errors(&packets)[0].clone();
    assert_eq!(error.code, "invalid_request");
    assert!(error.message.starts_with("messages[0]: answers the call \"c9\""), "{}", error.message);
    server.stop().await;
}

#[tokio::test]
async fn a_call_that_nobody_answered_is_not_told_to_the_next_run() {
    let server = start().await;
    let session = Uuid::now_v7();
    all(server.post(&ask_in(session, "How is the weather?")).await).await;
    all(server.post(&ask_in(session, "And now?")).await).await;
    let mut request = ask_in(session, "");
    // Both runs called under the same id, so only one turn is left to tell.
    request.payload = AgentRequest::messages(session, &[ChatMessage::tool("c1", "Sunny.")]);
    let answer = seen(&text(&all(server.post(&request).await).await));
    assert_eq!(answer["asked"], "And now?");
    server.stop().await;
}

#[tokio::test]
async fn the_second_request_of_a_front_end_with_tools_reaches_the_agent_whole() {
    let server = start().await;
    let thread = Uuid::now_v7().to_string();
    let call =
        json!({ "id": "c1", "type": "function", "function": { "name": "weather", "arguments": "{}" } });
    let input = |messages: Value| json!({ "threadId": thread, "runId": Uuid::now_v7().to_string(), "protocolVersion": "1.0", "messages": messages });
    let question = json!({ "id": "1", "role": "user", "content": "How is the weather?" });
    let post = async |input: Value| {
        let response = client().post(format!("{}/v1/ag-ui", server.url)).json(&input).send().await.unwrap();
        response.text().await.unwrap()
    };
    let first = post(input(json!([question]))).await;
    assert!(first.contains(r#""outcome":{"type":"success","pendingToolCallIds":["c1"]}"#), "{first}");
    let second = post(input(json!([question, { "id": "2", "role": "assistant", "toolCalls": [call] },
        { "id": "3", "role": "tool", "toolCallId": "c1", "content": "Sunny." }])))
    .await;
    assert!(second.contains(r#"\"result\":\"Sunny.\""#), "{second}");
    assert!(!second.contains("pendingToolCallIds"), "{second}");
    // What the session remembers is told once: the result, not the question again.
    let stored: Value = server.get(&format!("/v1/sessions/{thread}?from=1")).await.json().await.unwrap();
    let roles: Vec<&Value> =
        stored["turns"][0]["messages"].as_array().unwrap().iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["tool", "assistant"]);
    server.stop().await;
}

#[tokio::test]
async fn a_session_is_read_in_pages() {
    let server = start().await;
    let session = Uuid::now_v7();
    for _ in 0..3 {
        assert_eq!(
            close_reason(&all(server.post(&ask_in(session, "?")).await).await).as_deref(),
            Some("completed")
        );
    }
    let page = async |query: &str| -> Value {
        server.get(&format!("/v1/sessions/{session}{query}")).await.json().await.unwrap()
    };
    let (first, second) = (page("?limit=2").await, page("?from=2&limit=2").await);
    assert_eq!((first["turns"].as_array().unwrap().len(), &first["next"]), (2, &json!(2)));
    assert_eq!((second["turns"].as_array().unwrap().len(), &second["next"]), (1, &Value::Null));
    server.stop().await;
}

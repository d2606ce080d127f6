//! Tools of the caller: a call is answered by the caller's next request, whatever it brings along.

use crate::common::{
    Server, all, ask_in, client, close_reason, journal, problem, serve_gateway, text,
};
use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
use capstan_gateway::Gateway;
use capstan_protocol::{AgentRequest, ChatMessage, Fault, FaultKind, Part, Role, ServiceRequest};
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
            let said =
                json!({ "asked": turn.text(), "call": id, "result": response, "roles": roles });
            return Ok(out.delta(said.to_string()).await?);
        }
        if turn.text() == "What was said?" {
            let users = turn.conversation().filter(|message| message.role == Role::User);
            let said: Vec<String> = users.map(ChatMessage::text).collect();
            return Ok(out.delta(said.join(" ")).await?);
        }
        out.delta("Let me look. ").await?;
        let (text, fails) = (turn.text(), turn.text().ends_with(" and fail."));
        let id = if fails { &text[5..7] } else { "c1" };
        out.event("TOOL_CALL_START", &json!({ "toolCallId": id, "toolCallName": "weather" }))
            .await?;
        out.event("TOOL_CALL_ARGS", &json!({ "toolCallId": id, "delta": "{\"city\":\"Rome\"}" }))
            .await?;
        out.event("TOOL_CALL_END", &json!({ "toolCallId": id })).await?;
        if fails {
            out.delta("And then ").await?;
            out.event(
                "TOOL_CALL_START",
                &json!({ "toolCallId": "half", "toolCallName": "weather" }),
            )
            .await?;
            out.event("TOOL_CALL_ARGS", &json!({ "toolCallId": "half", "delta": "{\"ci" })).await?;
            return Err(Fault::new(FaultKind::AgentExecutionError).into());
        }
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
    assert_eq!(
        crate::common::event_types(&called),
        ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
    );

    let mut request = ask_in(session, "");
    request.payload = AgentRequest::messages(session, &[ChatMessage::tool("c1", "Sunny.")]);
    let answer = all(server.post(&request).await).await;
    assert_eq!(
        seen(&text(&answer)),
        json!({ "asked": "How is the weather?", "call": "c1", "result": "Sunny.", "roles": ["user",
        "assistant", "tool"] })
    );
    let stored: Value = server.get(&format!("/v1/sessions/{session}")).await.json().await.unwrap();
    let said = |turn: usize, message: usize| stored["turns"][turn]["messages"][message].clone();
    let call = json!({ "type": "tool_call", "name": "weather", "arguments": "{\"city\":\"Rome\"}",
    "id": "c1" });
    assert_eq!(said(0, 1)["parts"], json!([{ "type": "text", "content": "Let me look. " }, call]));
    assert_eq!((&said(1, 0)["role"], &said(1, 1)["role"]), (&json!("tool"), &json!("assistant")));
    server.stop().await;
}

fn results(session: Uuid, id: &str) -> ServiceRequest {
    let mut request = ask_in(session, "");
    request.payload = AgentRequest::messages(session, &[ChatMessage::tool(id, "Sunny.")]);
    request
}

#[tokio::test]
async fn a_result_of_a_call_that_the_session_does_not_know_is_refused_by_name() {
    let server = start().await;
    let session = Uuid::now_v7();
    all(server.post(&ask_in(session, "How is the weather?")).await).await;
    let alone = results(session, "c9");
    let mut whole = ask_in(session, "");
    let said = [
        ChatMessage::user("How?"),
        ChatMessage::assistant("So."),
        ChatMessage::tool("c9", "Sunny."),
    ];
    whole.payload = AgentRequest::messages(session, &said);
    let input = |messages: Value| {
        json!({ "threadId": session, "runId": Uuid::now_v7(),
    "messages": messages })
    };
    let result = json!({ "id": "2", "role": "tool", "toolCallId": "c9", "content": "Sunny." });
    let front_end = [
        input(json!([result])),
        input(json!([{ "id": "1", "role": "user", "content": "How?" }, result])),
    ];
    let mut answers = vec![server.post(&alone).await, server.post(&whole).await];
    for input in front_end {
        answers.push(
            client().post(format!("{}/v1/ag-ui", server.url)).json(&input).send().await.unwrap(),
        );
    }
    for answer in answers {
        let problem = problem(answer).await;
        assert_eq!((problem.status, problem.code.as_str()), (400, "invalid_request"));
        assert_eq!(
            problem.detail.as_deref(),
            Some(
                "messages: hold a result of the call \"c9\", which this conversation does not have"
            )
        );
    }
    // Nothing was claimed: the same request in other words is a first one.
    let again = ServiceRequest { payload: results(session, "c1").payload, ..alone };
    assert_eq!(close_reason(&all(server.post(&again).await).await).as_deref(), Some("completed"));
    server.stop().await;
}

#[tokio::test]
async fn only_calls_of_a_failed_run_can_be_answered() {
    let server = start().await;
    let session = Uuid::now_v7();
    let failed = all(server.post(&ask_in(session, "Call f1 and fail.")).await).await;
    assert_eq!(close_reason(&failed).as_deref(), Some("error"));
    all(server.post(&ask_in(session, "Call f2 and fail.")).await).await;
    let answer = seen(&text(&all(server.post(&results(session, "f1")).await).await));
    assert_eq!(
        (&answer["asked"], &answer["result"]),
        (&json!("Call f1 and fail."), &json!("Sunny."))
    );
    // Of a call that broke off nobody can have known what it is about.
    assert_eq!(server.post(&results(session, "half")).await.status(), 400);
    // What nobody answered is not told to anybody.
    let told = all(server.post(&ask_in(session, "What was said?")).await).await;
    assert_eq!(text(&told), "Call f1 and fail. What was said?");
    server.stop().await;
}

#[tokio::test]
async fn an_unanswered_call_is_not_sent_to_the_next_run() {
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
    let call = json!({ "id": "c1", "type": "function", "function": { "name": "weather",
    "arguments": "{}" } });
    let input = |messages: Value| {
        json!({ "threadId": thread, "runId": Uuid::now_v7().to_string(),
    "protocolVersion": "1.0", "messages": messages })
    };
    let question = json!({ "id": "1", "role": "user", "content": "How is the weather?" });
    let post = async |input: Value| {
        let response =
            client().post(format!("{}/v1/ag-ui", server.url)).json(&input).send().await.unwrap();
        response.text().await.unwrap()
    };
    let first = post(input(json!([question]))).await;
    assert!(
        first.contains(r#""outcome":{"type":"success","pendingToolCallIds":["c1"]}"#),
        "{first}"
    );
    let second =
        post(input(json!([question, { "id": "2", "role": "assistant", "toolCalls": [call] },
        { "id": "3", "role": "tool", "toolCallId": "c1", "content": "Sunny." }])))
        .await;
    assert!(second.contains(r#"\"result\":\"Sunny.\""#), "{second}");
    assert!(!second.contains("pendingToolCallIds"), "{second}");
    // What the session remembers is told once: the result, not the question again.
    let stored: Value =
        server.get(&format!("/v1/sessions/{thread}?from=1")).await.json().await.unwrap();
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

//! People in the loop: a run ends by asking, and the next one has the answer.

use crate::common::{
    Server, all, ask_in, client, close_reason, disk, problem, start, start_on, text,
};
use capstan_gateway::Settings;
use capstan_protocol::agui::Interrupt;
use capstan_protocol::{AgentRequest, Event, EventView, Payload, StreamPacket};
use serde_json::{Map, Value, json};
use uuid::Uuid;

fn asked(packets: &[StreamPacket]) -> Interrupt {
    let asks = |packet: &StreamPacket| {
        let Payload::Event(raw) = &packet.payload else { return None };
        let EventView::Interrupt(interrupt) = Event::of(raw).view() else { return None };
        Some(*interrupt)
    };
    let found = packets.iter().find_map(asks);
    found.unwrap_or_else(|| panic!("nothing is asked: {packets:?}"))
}

async fn ask(server: &Server, session: Uuid, question: &str) -> Interrupt {
    let packets = all(server.post(&ask_in(session, question)).await).await;
    assert_eq!(close_reason(&packets).as_deref(), Some("interrupt"));
    asked(&packets)
}

fn answer(session: Uuid, id: &str, status: &str) -> capstan_protocol::ServiceRequest {
    let mut request = ask_in(session, "");
    let entry = json!([{ "interruptId": id, "status": status, "payload": { "approved": true } }]);
    request.payload = AgentRequest::new(session, Map::from_iter([("resume".to_owned(), entry)]));
    request
}

async fn refused(server: &Server, request: &capstan_protocol::ServiceRequest) -> (u16, String) {
    let response = server.post(request).await;
    let status = response.status().as_u16();
    (status, problem(response).await.code)
}

#[tokio::test]
async fn a_run_that_asks_is_answered_by_the_next_one_in_its_session() {
    let server = start(Settings::default()).await;
    let session = Uuid::now_v7();
    let question = ask(&server, session, "/ask Paint it blue?").await;
    assert_eq!(
        (question.reason.as_str(), question.message.as_deref()),
        ("approval", Some("Paint it blue?"))
    );
    let open: Value = server.get(&format!("/v1/sessions/{session}")).await.json().await.unwrap();
    assert_eq!(open["turns"][0]["interrupts"][0]["id"], question.id.as_str());

    let request = answer(session, &question.id, "resolved");
    let answered = all(server.post(&request).await).await;
    assert_eq!(text(&answered), r#"You answered {"approved":true}, so I go on."#);
    assert_eq!(close_reason(&answered).as_deref(), Some("completed"));
    // The same request again attaches to its run; another one comes too late.
    assert_eq!(all(server.post(&request).await).await, answered);
    assert_eq!(
        refused(&server, &answer(session, &question.id, "resolved")).await,
        (409, "interrupt_not_open".into())
    );
    let settled: Value = server.get(&format!("/v1/sessions/{session}")).await.json().await.unwrap();
    assert_eq!(settled["turns"][0]["interrupts"], Value::Null);
    server.stop().await;
}

#[tokio::test]
async fn answers_without_a_question_are_refused_typed() {
    let server = start(Settings::default()).await;
    let session = Uuid::now_v7();
    let question = ask(&server, session, "/ask").await;
    let not_open = (409, "interrupt_not_open".to_owned());
    let another = format!("{}:decision", Uuid::now_v7());
    let misspelt = question.id.replace("decision", "derision");
    for id in ["decision", another.as_str(), misspelt.as_str()] {
        assert_eq!(refused(&server, &answer(session, id, "resolved")).await, not_open, "{id}");
    }
    // A question belongs to its session.
    assert_eq!(refused(&server, &answer(Uuid::now_v7(), &question.id, "resolved")).await, not_open);
    // None of these has settled it.
    assert!(
        text(&all(server.post(&answer(session, &question.id, "cancelled")).await).await)
            .contains("rather not say")
    );
    server.stop().await;
}

#[tokio::test]
async fn a_question_whose_time_is_over_can_only_be_given_up() {
    let server = start(Settings::default()).await;
    let session = Uuid::now_v7();
    let question = ask(&server, session, "/ask --expires 0").await;
    let late = answer(session, &question.id, "resolved");
    assert_eq!(refused(&server, &late).await, (409, "interrupt_not_open".into()));
    assert!(
        text(&all(server.post(&answer(session, &question.id, "cancelled")).await).await)
            .contains("rather not say")
    );
    server.stop().await;
}

#[tokio::test]
async fn of_many_parallel_answers_one_wins() {
    let server = start(Settings::default()).await;
    let session = Uuid::now_v7();
    let question = ask(&server, session, "/ask").await;
    let requests: Vec<_> = (0..16).map(|_| answer(session, &question.id, "resolved")).collect();
    let answers = requests.iter().map(|request| server.post(request));
    let statuses: Vec<u16> = futures_util::future::join_all(answers)
        .await
        .iter()
        .map(|response| response.status().as_u16())
        .collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 15, "{statuses:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_question_outlives_a_restart_and_goes_with_its_session() {
    let folder = tempfile::tempdir().unwrap();
    let session = Uuid::now_v7();
    let server = start_on(disk(folder.path()), Settings::default()).await;
    let question = ask(&server, session, "/ask").await;
    server.stop().await;

    let server = start_on(disk(folder.path()), Settings::default()).await;
    let answered = all(server.post(&answer(session, &question.id, "resolved")).await).await;
    assert!(text(&answered).starts_with("You answered"), "{}", text(&answered));
    let purged = ask(&server, session, "/ask").await;
    assert_eq!(server.delete(&format!("/v1/sessions/{session}")).await.status(), 200);
    let gone = refused(&server, &answer(session, &purged.id, "resolved")).await;
    assert_eq!(gone, (409, "interrupt_not_open".into()));
    server.stop().await;
}

#[tokio::test]
async fn in_agui_the_question_is_the_outcome_and_resume_the_answer() {
    let server = start(Settings::default()).await;
    let thread = Uuid::now_v7().to_string();
    let post = async |resume: Option<Value>| -> Vec<Value> {
        let mut input = json!({ "threadId": thread, "runId": Uuid::now_v7().to_string(),
        "protocolVersion": "1.0",
            "messages": [{ "id": "1", "role": "user", "content": "/ask Paint it blue?" }] });
        if let Some(resume) = resume {
            input["resume"] = resume;
        }
        let response =
            client().post(format!("{}/v1/ag-ui", server.url)).json(&input).send().await.unwrap();
        let body = response.text().await.unwrap();
        body.lines()
            .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
            .collect()
    };
    let first = post(None).await;
    let outcome = &first.last().unwrap()["outcome"];
    let question = &outcome["interrupts"][0];
    assert_eq!(
        (&outcome["type"], &question["message"]),
        (&json!("interrupt"), &json!("Paint it blue?"))
    );
    assert_eq!(question["responseSchema"]["required"], json!(["approved"]));
    assert!(!first.iter().any(|event| event["type"] == "CUSTOM"), "the outcome alone tells it");
    let resume = json!([{ "interruptId": question["id"], "status": "resolved",
    "payload": { "approved": false } }]);
    let second = post(Some(resume.clone())).await;
    assert!(
        second.iter().any(|e| e["delta"].as_str().is_some_and(|d| d.contains("false"))),
        "{second:?}"
    );
    assert_eq!(second.last().unwrap()["type"], "RUN_FINISHED");
    let third = post(Some(resume)).await;
    let error = &third[0];
    assert_eq!(
        (&error["type"], &error["metadata"]["capstan"]["kind"]),
        (&json!("RUN_ERROR"), &json!("interrupt_not_open"))
    );
    // The question that was about it is told once.
    let stored: Value = server.get(&format!("/v1/sessions/{thread}")).await.json().await.unwrap();
    let roles = |turn: usize| -> Vec<Value> {
        stored["turns"][turn]["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| m["role"].clone())
            .collect()
    };
    assert_eq!(
        (roles(0), roles(1)),
        (vec![json!("user"), json!("assistant")], vec![json!("assistant")])
    );
    server.stop().await;
}

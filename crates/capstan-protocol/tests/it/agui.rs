//! AG-UI events and inputs; the same files are held against the published clients' schemas in the
//! TypeScript suite.

use std::collections::BTreeSet;

use crate::common::vectors;
use capstan_protocol::agui::{AguiEvent, AguiMessage, EventBody, RunAgentInput};
use capstan_protocol::decode;
use serde_json::json;

#[test]
fn every_event_reads_and_writes_as_the_same_json() {
    let mut kinds = BTreeSet::new();
    for case in vectors("agui/events.jsonl") {
        let event: AguiEvent =
            decode::from_str(&case["event"].to_string()).unwrap_or_else(|e| panic!("{e}: {case}"));
        assert_eq!(serde_json::to_value(&event).unwrap(), case["event"]);
        assert_eq!(event.kind(), case["event"]["type"].as_str().unwrap());
        kinds.insert(event.kind());
    }
    let all: BTreeSet<&str> = EventBody::KINDS.iter().copied().collect();
    assert_eq!(kinds, all, "every type has a case");
}

#[test]
fn absent_members_are_never_written_as_null() {
    for case in vectors("agui/events.jsonl") {
        let event: AguiEvent = serde_json::from_value(case["event"].clone()).unwrap();
        // A snapshot holds values of the application's, where null is data.
        if event.kind() == "STATE_SNAPSHOT" {
            continue;
        }
        let text = serde_json::to_string(&AguiEvent::from(event.body)).unwrap();
        assert!(!text.contains("null"), "{text}");
    }
}

#[test]
fn run_inputs_are_read_as_the_published_clients_mean_them() {
    for case in vectors("agui/inputs.jsonl") {
        let verdict = decode::from_str::<RunAgentInput>(&case["input"].to_string());
        assert_eq!(verdict.is_ok(), case["accept"] == true, "{}: {verdict:?}", case["why"]);
    }
}

#[test]
fn a_refused_input_names_the_place() {
    let input =
        json!({ "threadId": "t", "runId": "r", "messages": [{ "id": "1", "role": "user" }] });
    let error = decode::from_str::<RunAgentInput>(&input.to_string()).unwrap_err();
    assert_eq!(error.to_string(), "messages[0].content: required member is absent");
}

#[test]
fn the_text_of_a_message_is_its_text_parts() {
    let message: AguiMessage = serde_json::from_value(json!({ "id": "1", "role": "user",
    "content": [
        { "type": "text", "text": "a" }, { "type": "image", "source": { "type": "url",
        "value": "u" } }, { "type": "text", "text": "b" } ] }))
    .unwrap();
    let AguiMessage::User { content, .. } = message else { panic!() };
    assert_eq!(content.text(), "ab");
}

#[test]
fn only_finished_and_error_end_a_run() {
    let terminal: Vec<String> = vectors("agui/events.jsonl")
        .iter()
        .map(|case| serde_json::from_value::<AguiEvent>(case["event"].clone()).unwrap())
        .filter(AguiEvent::is_terminal)
        .map(|event| event.kind().to_owned())
        .collect();
    assert!(terminal.iter().all(|kind| kind == "RUN_FINISHED" || kind == "RUN_ERROR"));
    assert!(terminal.len() >= 4);
}

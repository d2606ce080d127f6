//! Answers that clients send as results of calls: in their protocols a question is a call of the
//! tool `interrupt`, and its id is the id of the call.

use std::ops::Range;

use capstan_protocol::agui::{ResumeEntry, ResumeStatus};
use capstan_protocol::{ChatMessage, Part, RawJson, Role, decode};
use serde_json::Value;
use uuid::Uuid;

use super::stream_of;

/// Takes the answers to the questions of a run out of the messages of a request: results that no
/// later answer of an agent follows. The calls and results of the present turn's questions leave
/// the messages. Those of earlier turns stay, as calls and results like any others.
pub fn take_answers(mut messages: Vec<ChatMessage>) -> (Vec<ChatMessage>, Vec<ResumeEntry>) {
    let after = |role: Role| messages.iter().rposition(|m| m.role == role).map_or(0, |at| at + 1);
    let (new, turn) = (after(Role::Assistant)..messages.len(), after(Role::User));
    let Some(asker) = last_asker(&messages, new) else { return (messages, Vec::new()) };
    let mut answers = Vec::new();
    for (at, message) in messages.iter_mut().enumerate() {
        let is_own = |id: &str| stream_of(id).is_some_and(|stream| stream == asker || at >= turn);
        if !message.parts.iter().any(|part| question(part).is_some_and(is_own)) {
            continue;
        }
        answers.extend(message.parts.iter().filter_map(|part| answer(part, asker)));
        message.parts.retain(|part| !question(part).is_some_and(is_own));
    }
    messages.retain(|message| !message.parts.is_empty());
    (messages, answers)
}

/// The run whose question the last of these messages answers.
fn last_asker(messages: &[ChatMessage], new: Range<usize>) -> Option<Uuid> {
    let results = messages.get(new)?.iter().flat_map(|message| &message.parts);
    let results = results.filter(|part| matches!(part, Part::ToolCallResponse { .. }));
    results.rev().find_map(|part| stream_of(question(part)?))
}

/// The id of the call or result, which may be a question's.
fn question(part: &Part) -> Option<&str> {
    match part {
        Part::ToolCall { id, .. } | Part::ToolCallResponse { id, .. } => id.as_deref(),
        Part::Text { .. }
        | Part::Blob { .. }
        | Part::File { .. }
        | Part::Uri { .. }
        | Part::Reasoning { .. }
        | Part::Native(_) => None,
    }
}

/// The answer in a result. An empty result means that there will be no answer.
fn answer(part: &Part, asker: Uuid) -> Option<ResumeEntry> {
    let Part::ToolCallResponse { response, id: Some(id) } = part else { return None };
    stream_of(id).filter(|stream| *stream == asker)?;
    let payload = match response.decode::<String>() {
        Ok(text) if text.is_empty() => None,
        Ok(text) => Some(decode::from_str(&text).unwrap_or_else(|_| Value::String(text).into())),
        Err(_) => Some(response.clone()),
    };
    let status =
        payload.as_ref().map_or(ResumeStatus::Cancelled, |_: &RawJson| ResumeStatus::Resolved);
    Some(ResumeEntry { interrupt_id: id.clone(), status, payload, metadata: None })
}

#[cfg(test)]
mod tests {
    use capstan_protocol::Arguments;

    use super::*;

    fn id(run: u128, own: &str) -> String {
        format!("{}:{own}", Uuid::from_u128(run))
    }

    fn asks(text: &str, ids: &[String]) -> ChatMessage {
        let mut message = ChatMessage::assistant(text);
        message.parts.retain(|_| !text.is_empty());
        message.parts.extend(ids.iter().map(|id| Part::ToolCall {
            name: "interrupt".into(),
            arguments: Arguments::Text("{}".into()),
            id: Some(id.clone()),
        }));
        message
    }

    fn said(answers: &[ResumeEntry]) -> Vec<(&str, Option<String>)> {
        let payload =
            |answer: &ResumeEntry| answer.payload.as_ref().map(|raw| raw.get().to_owned());
        answers.iter().map(|answer| (answer.interrupt_id.as_str(), payload(answer))).collect()
    }

    #[test]
    fn results_of_the_last_questions_are_answers_and_leave_the_messages() {
        let (first, second) = (id(1, "Write:0"), id(2, "Bash:0"));
        let (messages, answers) = take_answers(vec![
            ChatMessage::user("Do it."),
            asks("I will write.", std::slice::from_ref(&first)),
            ChatMessage::tool(&first, "{\"approved\":true}"),
            asks("", &[second.clone(), "call_1".into()]),
            ChatMessage::tool(&second, "no"),
            ChatMessage::tool("call_1", "42"),
        ]);
        assert_eq!(said(&answers), [(second.as_str(), Some("\"no\"".into()))]);
        let rest = [
            ChatMessage::user("Do it."),
            ChatMessage::assistant("I will write."),
            asks("", &["call_1".into()]),
            ChatMessage::tool("call_1", "42"),
        ];
        assert_eq!(messages, rest);
    }

    #[test]
    fn each_question_of_a_run_has_its_answer_and_an_empty_one_gives_up() {
        let (one, other) = (id(1, "a"), id(1, "b"));
        let (messages, answers) = take_answers(vec![
            asks("", std::slice::from_ref(&one)),
            ChatMessage::tool(&one, Value::from(true)),
            asks("", std::slice::from_ref(&other)),
            ChatMessage::tool(&other, ""),
            ChatMessage::user("And hurry."),
        ]);
        assert_eq!(said(&answers), [(one.as_str(), Some("true".into())), (other.as_str(), None)]);
        assert_eq!(answers[1].status, ResumeStatus::Cancelled);
        assert_eq!(messages, [ChatMessage::user("And hurry.")]);
    }

    #[test]
    fn answers_that_a_later_answer_follows_stay_in_the_conversation() {
        let asked = id(1, "Write:0");
        let talk = vec![
            ChatMessage::user("Do it."),
            asks("", std::slice::from_ref(&asked)),
            ChatMessage::tool(&asked, "{\"approved\":true}"),
            ChatMessage::assistant("Done."),
            ChatMessage::user("Thanks."),
        ];
        assert_eq!(take_answers(talk.clone()), (talk, Vec::new()));
    }
}

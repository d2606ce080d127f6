//! Encodes a turn as an A2A message. The agent stores the context itself, so the message has only
//! what is new.

use capstan_agent::{ResumeEntry, ResumeStatus, Turn};
use capstan_protocol::{Fault, Part, Role};
use serde_json::{Map, Value, json};

use super::interface::Version;
use crate::parts::{self, PartPath, refused};

/// Makes the parameters of the send request. The message's id is the run's id: an agent that uses
/// it as a key attaches a repeat to its task.
pub(super) fn of(turn: &Turn, version: Version) -> Result<Value, Fault> {
    let answer = turn.answers.first();
    let parts = match answer {
        Some(answer) => answered(answer, version),
        None => parts_of(turn, version)?,
    };
    let mut message = Map::new();
    message.insert("messageId".into(), turn.run.to_string().into());
    if !turn.session.is_empty() {
        message.insert("contextId".into(), turn.session.as_str().into());
    }
    if let Some(answer) = answer {
        message.insert("taskId".into(), answer.interrupt_id.as_str().into());
    }
    message.insert("parts".into(), parts.into());
    match version {
        Version::V1 => message.insert("role".into(), "ROLE_USER".into()),
        Version::V03 => {
            message.insert("kind".into(), "message".into());
            message.insert("role".into(), "user".into())
        }
    };
    let mut params = json!({ "message": message,
    "configuration": { "acceptedOutputModes": ["text/plain", "application/json"] } });
    let forwarded = turn.forwarded.as_deref().map(|raw| raw.to_value()).filter(Value::is_object);
    if let (Some(forwarded), Value::Object(params)) = (forwarded, &mut params) {
        params.insert("metadata".into(), forwarded);
    }
    Ok(params)
}

/// Converts the answer to a question: its text, or the data that the question requested.
fn answered(answer: &ResumeEntry, version: Version) -> Vec<Value> {
    let given = answer.payload.as_ref().map(|raw| raw.to_value()).unwrap_or_default();
    vec![if answer.status == ResumeStatus::Cancelled {
        text(version, "This is not going to be answered.")
    } else if let Value::String(value) = given {
        text(version, &value)
    } else if version != Version::V03 {
        json!({ "data": given, "mediaType": "application/json" })
    } else if given.is_object() {
        json!({ "kind": "data", "data": given })
    } else {
        // In 0.3, data are objects.
        text(version, &given.to_string())
    }]
}

fn parts_of(turn: &Turn, version: Version) -> Result<Vec<Value>, Fault> {
    let mut out: Vec<Value> =
        parts::context(turn).map(|value| text(version, &value)).into_iter().collect();
    for (index, message) in parts::messages(turn).skip(turn.history.len()) {
        for (at, part) in message.parts.iter().enumerate() {
            let place = PartPath { message: index, part: at };
            if message.role != Role::User {
                return Err(refused(
                    place,
                    part,
                    "of another than the user cannot be sent to an A2A agent",
                ));
            }
            out.push(piece(place, part, version)?);
        }
    }
    Ok(out)
}

fn piece(place: PartPath, part: &Part, version: Version) -> Result<Value, Fault> {
    type Text = Option<String>;
    let file = |name_1: &str, name_03: &str, value: &str, mime: &Text, named: &Text| {
        let mime = mime.as_deref().unwrap_or("application/octet-stream");
        let (kind, name, at) = match version {
            Version::V1 => ("mediaType", "filename", name_1),
            Version::V03 => ("mimeType", "name", name_03),
        };
        let mut file: Map<String, Value> = Map::from_iter(
            [(at, value), (kind, mime)].map(|(name, text)| (name.into(), text.into())),
        );
        file.extend(named.iter().map(|named| (name.to_owned(), named.as_str().into())));
        match version {
            Version::V1 => file.into(),
            Version::V03 => json!({ "kind": "file", "file": file }),
        }
    };
    match part {
        Part::Text { content } => Ok(text(version, content)),
        Part::Blob { content, mime_type, filename, .. } => {
            Ok(file("raw", "bytes", content, mime_type, filename))
        }
        Part::Uri { uri, mime_type, filename, .. } => {
            Ok(file("url", "uri", uri, mime_type, filename))
        }
        Part::File { .. } => Err(refused(place, part, "by its id means nothing to an A2A agent")),
        Part::Reasoning { .. }
        | Part::ToolCall { .. }
        | Part::ToolCallResponse { .. }
        | Part::Native(_) => Err(refused(place, part, "cannot be sent to an A2A agent")),
    }
}

fn text(version: Version, text: &str) -> Value {
    match version {
        Version::V1 => json!({ "text": text }),
        Version::V03 => json!({ "kind": "text", "text": text }),
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ChatMessage, Modality};

    use super::*;

    #[test]
    fn only_what_is_new_is_sent_under_the_runs_own_id() {
        let mut turn = Turn::talk(vec![
            ChatMessage::user("a"),
            ChatMessage::assistant("b"),
            ChatMessage::user("c"),
        ]);
        turn.session = "s".into();
        let sent = of(&turn, Version::V1).unwrap();
        assert_eq!(
            sent["message"],
            json!({ "messageId": turn.run.to_string(), "contextId": "s", "role": "ROLE_USER",
            "parts": [{ "text": "c" }] })
        );
        let old = of(&turn, Version::V03).unwrap();
        assert_eq!(old["message"]["parts"], json!([{ "kind": "text", "text": "c" }]));
        assert_eq!(
            (&old["message"]["role"], &old["message"]["kind"]),
            (&json!("user"), &json!("message"))
        );
    }

    #[test]
    fn an_answer_continues_the_task_with_the_question() {
        let mut turn = Turn::new("");
        let answer = |payload: Value| ResumeEntry {
            interrupt_id: "t-1".into(),
            status: ResumeStatus::Resolved,
            payload: Some(payload.into()),
            metadata: None,
        };
        turn.answers = vec![answer(json!("yes"))].into();
        let sent = of(&turn, Version::V1).unwrap();
        assert_eq!(
            (&sent["message"]["taskId"], &sent["message"]["parts"]),
            (&json!("t-1"), &json!([{ "text": "yes" }]))
        );
        turn.answers = vec![answer(json!({ "color": "blue" }))].into();
        let sent = of(&turn, Version::V03).unwrap();
        assert_eq!(
            sent["message"]["parts"],
            json!([{ "kind": "data", "data": { "color": "blue" } }])
        );
        turn.answers = vec![answer(json!(true))].into();
        assert_eq!(of(&turn, Version::V03).unwrap()["message"]["parts"][0]["text"], "true");
        assert_eq!(of(&turn, Version::V1).unwrap()["message"]["parts"][0]["data"], true);
    }

    #[test]
    fn a_part_that_has_no_form_here_is_named() {
        let part = Part::File {
            file_id: "f".into(),
            modality: Modality::Image,
            mime_type: None,
            filename: None,
        };
        let message = ChatMessage { role: Role::User, parts: vec![part], name: None };
        let fault = of(&Turn::of(message), Version::V1).unwrap_err();
        assert_eq!(
            (fault.code(), &fault.details()["path"]),
            ("invalid_request", &"messages[0].parts[0]".into())
        );
    }
}

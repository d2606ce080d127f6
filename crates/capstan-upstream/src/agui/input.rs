//! Encodes a turn as an AG-UI run input. Every kind of part has a form in AG-UI.

use capstan_agent::Turn;
use capstan_protocol::agui::{
    AguiMessage, ContentPart, FunctionCall, MessageContent, PartSource, RunAgentInput, ToolCall,
};
use capstan_protocol::{Arguments, ChatMessage, Fault, Modality, Part, RawJson, RawObject, Role};

use crate::parts::{self, PartPath, call_id, mime};

pub(super) fn of(turn: &Turn, system: Option<&str>) -> Result<RunAgentInput, Fault> {
    let mut messages = Vec::new();
    messages.extend(
        system.map(|text| AguiMessage::System { id: "system".into(), content: text.to_owned() }),
    );
    for (index, message) in parts::messages(turn) {
        append(index, message, &mut messages)?;
    }
    Ok(RunAgentInput {
        thread_id: turn.session.clone(),
        run_id: turn.run.to_string(),
        protocol_version: None,
        parent_run_id: None,
        // Agents of the 0.x versions require these two members.
        state: Some(turn.state.as_deref().map_or_else(nothing, RawJson::clone)),
        forwarded_props: Some(turn.forwarded.as_deref().map_or_else(nothing, RawJson::clone)),
        messages,
        tools: turn.tools.to_vec(),
        context: turn.context.to_vec(),
        // Agents of the 0.x versions do not know this member.
        resume: (!turn.answers.is_empty()).then(|| turn.answers.to_vec()),
    })
}

fn nothing() -> RawJson {
    RawObject::default().into()
}

fn append(index: usize, message: &ChatMessage, out: &mut Vec<AguiMessage>) -> Result<(), Fault> {
    let id = |suffix: &str| format!("m{index}{suffix}");
    let (mut content, mut calls) = (Vec::new(), Vec::new());
    for (at, part) in message.parts.iter().enumerate() {
        match part {
            Part::Reasoning { content } => {
                out.push(AguiMessage::Reasoning {
                    id: id(&format!(".{at}")),
                    content: content.clone(),
                });
            }
            // Only the provider that made it can read it.
            Part::Native(_) => {}
            Part::ToolCall { name, arguments, id } => calls.push(call(at, name, arguments, id)),
            Part::ToolCallResponse { response, id: call } => {
                let text = parts::response_text(response);
                let (id, tool_call_id) = (id(&format!(".{at}")), call_id(call, at));
                out.push(AguiMessage::Tool {
                    id,
                    content: MessageContent::Text(text),
                    tool_call_id,
                    error: None,
                });
            }
            Part::Text { .. } | Part::Blob { .. } | Part::File { .. } | Part::Uri { .. } => {
                content.push(piece(PartPath { message: index, part: at }, part)?);
            }
        }
    }
    let texts = || MessageContent::Parts(content.clone()).text();
    match message.role {
        Role::System => out.push(AguiMessage::System { id: id(""), content: texts() }),
        Role::Assistant => {
            let (text, tool_calls) = (texts(), Some(calls).filter(|calls| !calls.is_empty()));
            if !text.is_empty() || tool_calls.is_some() {
                let content = Some(text).filter(|text| !text.is_empty());
                out.push(AguiMessage::Assistant { id: id(""), content, tool_calls });
            }
        }
        Role::User => out.push(AguiMessage::User { id: id(""), content: flat(content) }),
        Role::Tool => {}
    }
    Ok(())
}

/// Encodes plain text as a string, which agents of every version can read.
fn flat(content: Vec<ContentPart>) -> MessageContent {
    if content.iter().all(|part| matches!(part, ContentPart::Text { .. })) {
        return MessageContent::Text(MessageContent::Parts(content).text());
    }
    MessageContent::Parts(content)
}

fn call(at: usize, name: &str, arguments: &Arguments, id: &Option<String>) -> ToolCall {
    let arguments = match arguments {
        Arguments::Object(object) => object.get().to_owned(),
        Arguments::Text(text) => text.clone(),
    };
    let function = FunctionCall { name: name.to_owned(), arguments };
    ToolCall { id: call_id(id, at), kind: "function".into(), function }
}

fn piece(place: PartPath, part: &Part) -> Result<ContentPart, Fault> {
    let (source, modality) = match part {
        Part::Text { content } => return Ok(ContentPart::Text { text: content.clone() }),
        Part::Blob { content, modality, mime_type, .. } => {
            let mime_type = mime(place, part, mime_type)?.to_owned();
            (PartSource::Data { value: content.clone(), mime_type }, modality)
        }
        Part::File { file_id, modality, mime_type, .. } => {
            let mime_type = mime_type.clone();
            (PartSource::File { value: file_id.clone(), provider: None, mime_type }, modality)
        }
        Part::Uri { uri, modality, mime_type, .. } => {
            (PartSource::Url { value: uri.clone(), mime_type: mime_type.clone() }, modality)
        }
        Part::ToolCall { .. }
        | Part::ToolCallResponse { .. }
        | Part::Reasoning { .. }
        | Part::Native(_) => {
            return Err(parts::refused(place, part, "cannot stand here"));
        }
    };
    Ok(match modality {
        Modality::Text => ContentPart::Document { source },
        Modality::Image => ContentPart::Image { source },
        Modality::Audio => ContentPart::Audio { source },
        Modality::Video => ContentPart::Video { source },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_turn_becomes_an_input_with_the_runs_own_key() {
        let history =
            vec![ChatMessage::user("a"), ChatMessage::assistant("b"), ChatMessage::tool("c1", 7)];
        let mut turn = Turn::talk([history, vec![ChatMessage::user("c")]].concat());
        turn.session = "s".into();
        let input = of(&turn, Some("Be kind.")).unwrap();
        assert_eq!((input.thread_id.as_str(), input.run_id), ("s", turn.run.to_string()));
        let sent = serde_json::to_value(&input.messages).unwrap();
        assert_eq!(sent[0]["role"], "system");
        assert_eq!(sent[1], json!({ "role": "user", "id": "m0", "content": "a" }));
        assert_eq!(sent[3]["toolCallId"], "c1");
        assert_eq!(sent[4]["content"], "c");
    }

    #[test]
    fn parts_reach_the_agent_in_its_own_form() {
        let parts = vec![
            Part::Text { content: "look".into() },
            Part::Uri {
                uri: "https://x/y.mp4".into(),
                modality: Modality::Video,
                mime_type: None,
                filename: None,
            },
        ];
        let message = ChatMessage { role: Role::User, parts, name: None };
        let input = of(&Turn::of(message), None).unwrap();
        let sent = serde_json::to_value(&input.messages).unwrap();
        assert_eq!(sent[0]["content"][1]["type"], "video");
    }
}

//! Encodes a turn for a process.

use capstan_agent::Turn;
use capstan_protocol::{ChatMessage, Fault, Part, Role};
use serde::Deserialize;
use serde_json::json;

use super::permission;
use crate::anthropic;
use crate::parts::{PartPath, refused};

/// How the process gets the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PromptBy {
    /// As text on standard input.
    #[default]
    Stdin,
    /// In place of the argument `{prompt}`, or as the last argument.
    Argument,
    /// As one user frame on standard input, which is the only way to send pictures.
    StreamJson,
}

/// The encoded prompt.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) input: String,
    pub(super) argument: Option<String>,
    /// Standard input stays open, so that questions can be answered.
    pub(super) stays_open: bool,
}

pub(super) fn make(turn: &Turn, by: PromptBy, with_history: bool) -> Result<Prompt, Fault> {
    let before = if with_history { history(turn)? } else { String::new() };
    if by == PromptBy::StreamJson {
        return frame(turn, before);
    }
    let text = escape_command(before + &text_of(turn)?);
    Ok(match by {
        PromptBy::Argument => Prompt { argument: Some(argument(text)), ..Prompt::default() },
        PromptBy::Stdin | PromptBy::StreamJson => Prompt { input: text, ..Prompt::default() },
    })
}

/// Escapes a text that begins like a command of the CLI. Otherwise the user could control more than
/// the answer.
fn escape_command(text: String) -> String {
    let is_command = text.trim_start().starts_with(['/', '!']);
    if is_command { format!("The user says:\n\n{text}") } else { text }
}

/// Escapes a text that begins with a dash. Otherwise the user could set options of the program.
fn argument(text: String) -> String {
    // An argument cannot contain NUL.
    let text = text.replace('\0', "\u{fffd}");
    if text.starts_with('-') { format!(" {text}") } else { text }
}

/// The turn as text: the user's message, then the results of tools since.
fn text_of(turn: &Turn) -> Result<String, Fault> {
    let mut text = String::new();
    for (at, message) in turn.messages.iter().enumerate() {
        let words = plain(turn.history.len() + at, message)?;
        if at > 0 {
            text.push_str(&format!("\n\n{}: ", role_name(message.role)));
        }
        text.push_str(&words);
    }
    for words in turn.all_answers().map(permission::in_words) {
        text.push_str(if text.is_empty() { "" } else { "\n\n" });
        text.push_str(&words);
    }
    Ok(text)
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::System => "System",
        Role::User => "User",
        Role::Assistant => "Assistant",
        Role::Tool => "Tool",
    }
}

fn frame(turn: &Turn, before: String) -> Result<Prompt, Fault> {
    let (first, rest) =
        turn.messages.split_first().map_or((None, Default::default()), |(m, rest)| (Some(m), rest));
    let mut content = first
        .map(|first| anthropic::blocks(turn.history.len(), first, None))
        .transpose()?
        .unwrap_or_default();
    for (at, message) in rest.iter().enumerate() {
        let words = plain(turn.history.len() + 1 + at, message)?;
        content.push(
            json!({ "type": "text", "text": format!("{}: {words}", role_name(message.role)) }),
        );
    }
    content.extend(
        turn.all_answers()
            .map(|answer| json!({ "type": "text", "text": permission::in_words(answer) })),
    );
    if let Some(serde_json::Value::String(text)) =
        content.first_mut().and_then(|block| block.get_mut("text"))
    {
        *text = escape_command(std::mem::take(text));
    }
    if !before.is_empty() {
        content.insert(0, json!({ "type": "text", "text": before }));
    }
    let frame = json!({ "type": "user", "message": { "role": "user", "content": content } });
    Ok(Prompt { input: format!("{frame}\n"), stays_open: true, ..Prompt::default() })
}

/// The conversation so far, for a process without a memory.
fn history(turn: &Turn) -> Result<String, Fault> {
    let mut text = String::new();
    for (index, message) in turn.history.iter().enumerate() {
        // Parts that only their provider understands may be all that a message has.
        if message.parts.iter().all(|part| matches!(part, Part::Native(_))) {
            continue;
        }
        text.push_str(&format!("{}: {}\n\n", role_name(message.role), plain(index, message)?));
    }
    if text.is_empty() {
        return Ok(text);
    }
    Ok(format!("The conversation so far:\n\n{text}The user now says:\n\n"))
}

fn plain(index: usize, message: &ChatMessage) -> Result<String, Fault> {
    let mut text = String::new();
    for (at, part) in message.parts.iter().enumerate() {
        let place = PartPath { message: index, part: at };
        match part {
            Part::Text { content } | Part::Reasoning { content } => text.push_str(content),
            Part::Native(_) => {}
            Part::ToolCallResponse { response, .. } => text.push_str(response.get()),
            Part::ToolCall { name, arguments, .. } => {
                let arguments = serde_json::to_string(arguments).unwrap_or_default();
                text.push_str(&format!("{name}({arguments})"));
            }
            Part::Uri { uri, .. } => text.push_str(&format!("\n{uri}\n")),
            Part::Blob { .. } | Part::File { .. } => {
                return Err(refused(
                    place,
                    part,
                    "can reach this agent only with prompt = \"stream-json\"",
                ));
            }
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use capstan_protocol::Modality;

    use super::*;

    #[test]
    fn history_comes_before_the_prompt_unless_it_is_switched_off() {
        let turn = Turn::talk(vec![
            ChatMessage::user("a"),
            ChatMessage::assistant("b"),
            ChatMessage::user("c"),
        ]);
        let prompt = make(&turn, PromptBy::Stdin, true).unwrap();
        assert_eq!(
            prompt.input,
            "The conversation so far:\n\nUser: a\n\nAssistant: b\n\nThe user now says:\n\nc"
        );
        assert_eq!(make(&turn, PromptBy::Stdin, false).unwrap().input, "c");
    }

    #[test]
    fn a_prompt_is_never_an_option() {
        let prompt = make(&Turn::new("--yolo\0"), PromptBy::Argument, true).unwrap();
        assert_eq!(prompt.argument.as_deref(), Some(" --yolo\u{fffd}"));
    }

    #[test]
    fn a_prompt_is_never_a_command() {
        let sent = |by, text: &str| make(&Turn::new(text), by, true).unwrap();
        assert_eq!(sent(PromptBy::Stdin, "/clear").input, "The user says:\n\n/clear");
        assert_eq!(sent(PromptBy::Stdin, " !rm").input, "The user says:\n\n !rm");
        let argument = sent(PromptBy::Argument, "/clear").argument;
        assert_eq!(argument.as_deref(), Some("The user says:\n\n/clear"));
        assert!(
            sent(PromptBy::StreamJson, "/clear").input.contains(r#""The user says:\n\n/clear""#)
        );
        assert_eq!(sent(PromptBy::Stdin, "a/b").input, "a/b");
    }

    #[test]
    fn a_picture_goes_as_a_frame_or_is_refused() {
        let picture = Part::Blob {
            content: "QQ==".into(),
            modality: Modality::Image,
            mime_type: Some("image/png".into()),
            filename: None,
        };
        let message = ChatMessage { role: Role::User, parts: vec![picture], name: None };
        let turn = Turn::of(message);
        let sent = make(&turn, PromptBy::StreamJson, true).unwrap().input;
        assert!(sent.ends_with('\n') && sent.contains(r#""media_type":"image/png""#), "{sent}");
        assert_eq!(make(&turn, PromptBy::Stdin, true).unwrap_err().code(), "invalid_request");
    }
}

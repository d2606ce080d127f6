//! A UI message as a page sends it: its content for the agent, and its answers. Inputs and outputs
//! stay JSON text.

use capstan_protocol::agui::{ResumeEntry, ResumeStatus};
use capstan_protocol::{Arguments, ChatMessage, Modality, Part, RawJson, Role};
use serde::Deserialize;
use serde_json::json;

/// The tool that represents a question of the run. Its output is the answer.
pub(super) const INTERRUPT: &str = "interrupt";

#[derive(Debug, Clone, Deserialize)]
pub(super) struct UiMessage {
    #[serde(default)]
    pub(super) id: String,
    pub(super) role: UiRole,
    #[serde(default)]
    pub(super) parts: Vec<UiPart>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum UiRole {
    System,
    User,
    Assistant,
}

/// A part of any type, with the members that matter here.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct UiPart {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) text: Option<String>,
    pub(super) tool_call_id: Option<String>,
    tool_name: Option<String>,
    pub(super) state: Option<String>,
    pub(super) input: Option<RawJson>,
    pub(super) output: Option<RawJson>,
    pub(super) error_text: Option<String>,
    pub(super) approval: Option<Approval>,
    pub(super) media_type: Option<String>,
    pub(super) filename: Option<String>,
    pub(super) url: Option<String>,
    pub(super) source_id: Option<String>,
    pub(super) title: Option<String>,
    pub(super) id: Option<String>,
    pub(super) data: Option<RawJson>,
}

/// A person's decision about a call.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Approval {
    pub(super) id: String,
    approved: Option<bool>,
    reason: Option<String>,
}

impl UiPart {
    pub(super) fn is_step(&self) -> bool {
        self.kind == "step-start"
    }

    /// The name of the called tool.
    pub(super) fn tool(&self) -> Option<&str> {
        match self.kind.as_str() {
            "dynamic-tool" => self.tool_name.as_deref(),
            kind => kind.strip_prefix("tool-"),
        }
    }

    pub(super) fn is_dynamic(&self) -> bool {
        self.kind == "dynamic-tool"
    }

    /// The call's id, unless it is a question of the run, which no model has called.
    fn call(&self) -> Option<&str> {
        self.tool().filter(|tool| *tool != INTERRUPT)?;
        self.tool_call_id.as_deref()
    }

    fn is_answered(&self) -> bool {
        matches!(self.state.as_deref(), Some("output-available" | "output-error"))
    }

    /// The tool's result.
    fn result(&self) -> Option<ChatMessage> {
        let id = self.call()?;
        let output = match self.state.as_deref()? {
            "output-available" => self.output.clone()?,
            "output-error" => {
                json!({ "error": self.error_text.as_deref().unwrap_or("the tool failed") }).into()
            }
            _ => return None,
        };
        let part = Part::ToolCallResponse { response: output, id: Some(id.to_owned()) };
        Some(ChatMessage { role: Role::Tool, parts: vec![part], name: None })
    }

    /// The answer to a question of a run, if it is one.
    fn answer(&self) -> Option<ResumeEntry> {
        let entry = |id: &str, status, payload| ResumeEntry {
            interrupt_id: id.to_owned(),
            status,
            payload,
            metadata: None,
        };
        let state = self.state.as_deref()?;
        if let Some((approval, approved)) =
            self.approval.as_ref().and_then(|approval| Some((approval, approval.approved?)))
        {
            let decision = json!({ "approved": approved, "reason": approval.reason });
            return Some(entry(&approval.id, ResumeStatus::Resolved, Some(decision.into())));
        }
        let id = self.tool_call_id.as_deref().filter(|_| self.tool() == Some(INTERRUPT))?;
        match state {
            "output-available" => Some(entry(id, ResumeStatus::Resolved, self.output.clone())),
            "output-error" => Some(entry(id, ResumeStatus::Cancelled, None)),
            _ => None,
        }
    }

    /// The content other than calls.
    fn content(&self) -> Option<Part> {
        match self.kind.as_str() {
            "text" => self.text.clone().map(|content| Part::Text { content }),
            "reasoning" => self.text.clone().map(|content| Part::Reasoning { content }),
            "file" => self.file(),
            _ => None,
        }
    }

    fn file(&self) -> Option<Part> {
        let (url, mime_type) = (self.url.as_deref()?, self.media_type.clone());
        let modality = modality(mime_type.as_deref().unwrap_or_default());
        let filename = self.filename.clone();
        match url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
            Some((_, content)) => {
                Some(Part::Blob { content: content.to_owned(), modality, mime_type, filename })
            }
            None => Some(Part::Uri { uri: url.to_owned(), modality, mime_type, filename }),
        }
    }

    fn to_call(&self) -> Option<Part> {
        let (id, name) = (self.call()?, self.tool()?);
        let input = self.input.as_ref().map_or("{}", RawJson::get);
        let arguments = Arguments::Text(input.to_owned());
        Some(Part::ToolCall { name: name.to_owned(), arguments, id: Some(id.to_owned()) })
    }
}

fn modality(media_type: &str) -> Modality {
    match media_type.split('/').next() {
        Some("image") => Modality::Image,
        Some("audio") => Modality::Audio,
        Some("video") => Modality::Video,
        _ => Modality::Text,
    }
}

impl UiMessage {
    /// The last step: the output of the newest run, and the answers to it.
    fn last_step(&self) -> &[UiPart] {
        let begins = self.parts.iter().rposition(UiPart::is_step).map_or(0, |at| at + 1);
        self.parts.get(begins..).unwrap_or_default()
    }

    /// Answers to the questions of the last run.
    pub(super) fn answers(&self) -> Vec<ResumeEntry> {
        self.last_step().iter().filter_map(UiPart::answer).collect()
    }

    /// Results of the calls of the last run.
    pub(super) fn results(&self) -> Vec<ChatMessage> {
        self.last_step().iter().filter_map(UiPart::result).collect()
    }

    /// Converts the message for agents: one message for each step, and results after the calls that
    /// they answer. A call without an answer is left out, because a model would refuse the whole
    /// request, unless the run goes on with it.
    pub(super) fn to_chat(&self, is_last: bool) -> Vec<ChatMessage> {
        let role = match self.role {
            UiRole::System => Role::System,
            UiRole::User => Role::User,
            UiRole::Assistant => Role::Assistant,
        };
        let last_step = self.last_step().len();
        let mut messages = Vec::new();
        let steps = self.parts.split(UiPart::is_step);
        let mut rest = self.parts.len();
        for step in steps {
            let goes_on = is_last && rest == last_step;
            rest = rest.saturating_sub(step.len() + 1);
            let is_sent = |part: &&UiPart| part.is_answered() || goes_on;
            let parts: Vec<Part> = step
                .iter()
                .filter_map(|part| {
                    part.content().or_else(|| Some(part).filter(is_sent).and_then(UiPart::to_call))
                })
                .collect();
            if !parts.is_empty() {
                messages.push(ChatMessage { role, parts, name: None });
            }
            messages.extend(step.iter().filter_map(UiPart::result));
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn message(parts: Value) -> UiMessage {
        serde_json::from_value::<Value>(json!({ "id": "a", "role": "assistant", "parts": parts }))
            .map(|value| serde_json::from_str(&value.to_string()).unwrap())
            .unwrap()
    }

    fn roles(messages: &[ChatMessage]) -> Vec<Role> {
        messages.iter().map(|message| message.role).collect()
    }

    #[test]
    fn steps_become_messages_and_results_follow_their_calls() {
        let message = message(json!([
            { "type": "step-start" },
            { "type": "text", "text": "I look." },
            { "type": "tool-find", "toolCallId": "c", "state": "output-available",
            "input": { "q": 1 }, "output": [2] },
            { "type": "step-start" },
            { "type": "text", "text": "Two." },
            { "type": "dynamic-tool", "toolName": "left", "toolCallId": "d",
            "state": "input-available", "input": {} },
        ]));
        let chat = message.to_chat(false);
        assert_eq!(roles(&chat), [Role::Assistant, Role::Tool, Role::Assistant]);
        assert_eq!(
            (chat[0].parts.len(), chat[2].parts.len()),
            (2, 1),
            "nobody answered the last call"
        );
        assert_eq!(message.to_chat(true)[2].parts.len(), 2, "the run goes on with it");
        assert!(message.results().is_empty(), "the first step is history");
    }

    #[test]
    fn a_questions_answer_is_the_output_of_its_call() {
        let message = message(json!([
            { "type": "step-start" },
            { "type": "tool-interrupt", "toolCallId": "s:q", "state": "output-available",
            "input": {}, "output": { "ok": 1 } },
            { "type": "tool-pay", "toolCallId": "c", "state": "approval-responded", "input": {},
              "approval": { "id": "s:p", "approved": false, "reason": "too much" } },
        ]));
        let answers = message.answers();
        assert_eq!(answers.len(), 2);
        assert_eq!(answers[0].payload.as_ref().unwrap().get(), r#"{"ok":1}"#);
        let denied: Value =
            serde_json::from_str(answers[1].payload.as_ref().unwrap().get()).unwrap();
        assert_eq!(denied, json!({ "approved": false, "reason": "too much" }));
        assert_eq!(message.to_chat(true)[0].parts.len(), 1, "the call that is asked about stays");
    }

    #[test]
    fn files_are_bytes_or_addresses() {
        let message = message(json!([
            { "type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AA==" },
            { "type": "file", "mediaType": "text/plain", "url": "https://example.org/a" },
            { "type": "data-own", "data": 1 },
        ]));
        let [chat] = &message.to_chat(false)[..] else { panic!("one message") };
        assert!(matches!(&chat.parts[0], Part::Blob { modality: Modality::Image, .. }));
        assert!(matches!(&chat.parts[1], Part::Uri { .. }));
        assert_eq!(chat.parts.len(), 2);
    }
}

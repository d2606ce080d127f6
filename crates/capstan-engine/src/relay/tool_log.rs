//! What a run has said, as the messages that its session remembers: texts, calls and results, in
//! order.
//!
//! The text itself is kept elsewhere; here is only where in it tools were called and answered.

use capstan_protocol::{Arguments, ChatMessage, Event, Part, Role};
use serde_json::Value;

/// Calls and results of a stream, and what was said before each.
#[derive(Default)]
pub(super) struct ToolLog(Vec<Entry>, usize);

/// What is kept of calls and results: beyond it a session remembers no more of them.
const MOST_BYTES: usize = 4 * 1024 * 1024;

struct Entry {
    seq: u64,
    /// How much text stood before it.
    at: usize,
    id: String,
    kind: Kind,
}

enum Kind {
    Call { name: String, arguments: String },
    Result(Value),
}

impl ToolLog {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes note of an event, if it is about a tool.
    pub(super) fn note(&mut self, seq: u64, at: usize, event: &Event) {
        let text = |name: &str| event.data.get(name).and_then(Value::as_str).map(str::to_owned);
        let Some(id) = text("toolCallId") else { return };
        if self.1 > MOST_BYTES {
            return;
        }
        self.1 +=
            text("delta").map_or(0, |text| text.len()) + event.data.get("content").map_or(64, size);
        match event.kind.as_deref() {
            Some("TOOL_CALL_START") => {
                let name = text("toolCallName").unwrap_or_default();
                self.0.push(Entry {
                    seq,
                    at,
                    id,
                    kind: Kind::Call { name, arguments: String::new() },
                });
            }
            Some("TOOL_CALL_ARGS") => {
                let call = self.0.iter_mut().rev().find(|entry| entry.id == id);
                if let Some(Entry { kind: Kind::Call { arguments, .. }, .. }) = call {
                    arguments.push_str(&text("delta").unwrap_or_default());
                }
            }
            Some("TOOL_CALL_RESULT") => {
                let content = event.data.get("content").cloned().unwrap_or_default();
                self.0.push(Entry { seq, at, id, kind: Kind::Result(content) });
            }
            _ => {}
        }
    }

    /// About how much is kept.
    pub(super) fn bytes(&self) -> usize {
        self.1
    }

    /// Forgets everything after a packet.
    pub(super) fn reset(&mut self, after_seq: u64) {
        self.0.retain(|entry| entry.seq <= after_seq);
    }

    /// The messages that these calls and results make of a text.
    pub(super) fn messages(self, text: &str) -> Vec<ChatMessage> {
        let mut messages = Messages::default();
        let mut from = 0;
        for Entry { at, id, kind, .. } in self.0 {
            messages.text(text.get(from..at).unwrap_or_default());
            from = from.max(at);
            match kind {
                Kind::Call { name, arguments } => {
                    messages.part(Part::ToolCall {
                        name,
                        arguments: Arguments::Text(arguments),
                        id: Some(id),
                    });
                }
                Kind::Result(content) => messages.0.push(ChatMessage::tool(id, content)),
            }
        }
        messages.text(text.get(from..).unwrap_or_default());
        messages.0
    }
}

/// About how much a value takes.
fn size(value: &Value) -> usize {
    value.as_str().map_or_else(|| value.to_string().len(), str::len)
}

#[derive(Default)]
struct Messages(Vec<ChatMessage>);

impl Messages {
    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.part(Part::Text { content: text.to_owned() });
        }
    }

    /// Text and calls belong to one message until a result stands between them.
    fn part(&mut self, part: Part) {
        match self.0.last_mut() {
            Some(last) if last.role == Role::Assistant => last.parts.push(part),
            _ => self.0.push(ChatMessage { role: Role::Assistant, parts: vec![part], name: None }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, data: Value) -> Event {
        Event { id: None, kind: Some(kind.into()), data }
    }

    #[test]
    fn texts_calls_and_results_become_messages_in_their_order() {
        let mut log = ToolLog::default();
        log.note(
            2,
            4,
            &event("TOOL_CALL_START", json!({ "toolCallId": "c", "toolCallName": "f" })),
        );
        log.note(3, 4, &event("TOOL_CALL_ARGS", json!({ "toolCallId": "c", "delta": "{\"a\"" })));
        log.note(4, 4, &event("TOOL_CALL_ARGS", json!({ "toolCallId": "c", "delta": ":1}" })));
        log.note(5, 4, &event("TOOL_CALL_END", json!({ "toolCallId": "c" })));
        log.note(6, 4, &event("TOOL_CALL_RESULT", json!({ "toolCallId": "c", "content": "42" })));
        log.note(
            9,
            9,
            &event("TOOL_CALL_START", json!({ "toolCallId": "late", "toolCallName": "f" })),
        );
        log.reset(8);
        let said = log.messages("Wait. It is 42.");
        let call = Part::ToolCall {
            name: "f".into(),
            arguments: Arguments::Text("{\"a\":1}".into()),
            id: Some("c".into()),
        };
        assert_eq!(said[0].parts, [Part::Text { content: "Wait".into() }, call]);
        assert_eq!(said[1], ChatMessage::tool("c", "42"));
        assert_eq!(said[2], ChatMessage::assistant(". It is 42."));
        assert_eq!(said.len(), 3);
        assert_eq!(ToolLog::default().messages(""), []);
    }
}

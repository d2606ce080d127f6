//! Collects the tool calls and results of a run, to build the messages of its session in order.
//!
//! The text is stored elsewhere. This log only has the position of each call and result in it.

use std::iter::Peekable;
use std::vec::IntoIter;

use capstan_protocol::{Arguments, ChatMessage, Event, Part, Role};
use serde_json::Value;

use super::native_log::Placed;

/// The calls and results of a stream, and their total size.
#[derive(Default)]
pub(super) struct ToolLog(Vec<Entry>, usize);

/// A session stores at most this many bytes of calls and results.
const MOST_BYTES: usize = 4 * 1024 * 1024;

struct Entry {
    seq: u64,
    /// The length of the text before it.
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

    /// Records an event, if it is about a tool.
    pub(super) fn record(&mut self, seq: u64, at: usize, event: &Event) {
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

    /// The approximate memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.1
    }

    /// Removes everything after a packet.
    pub(super) fn reset(&mut self, after_seq: u64) {
        self.0.retain(|entry| entry.seq <= after_seq);
    }

    /// Splits a text into messages at the calls, results and native parts.
    pub(super) fn messages(self, text: &str, native: Vec<Placed>) -> Vec<ChatMessage> {
        let mut messages = Messages::default();
        let mut text = Text { text, from: 0, native: native.into_iter().peekable() };
        for (tools, Entry { at, id, kind, .. }) in self.0.into_iter().enumerate() {
            text.up_to(at, tools, &mut messages);
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
        text.up_to(usize::MAX, usize::MAX, &mut messages);
        messages.0
    }
}

/// A text that is being split into messages.
struct Text<'a> {
    text: &'a str,
    from: usize,
    native: Peekable<IntoIter<Placed>>,
}

impl Text<'_> {
    /// Adds the text and native parts up to a position and a number of calls and results.
    fn up_to(&mut self, at: usize, tools: usize, messages: &mut Messages) {
        let is_before = |placed: &Placed| placed.at <= at && placed.tools <= tools;
        while let Some(placed) = self.native.next_if(is_before) {
            self.say(placed.at, messages);
            messages.part(placed.part);
        }
        self.say(at, messages);
    }

    fn say(&mut self, at: usize, messages: &mut Messages) {
        let at = at.min(self.text.len()).max(self.from);
        messages.text(self.text.get(self.from..at).unwrap_or_default());
        self.from = at;
    }
}

/// The approximate size of a value.
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

    /// Text and calls belong to one message until a result separates them.
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
        log.record(
            2,
            4,
            &event("TOOL_CALL_START", json!({ "toolCallId": "c", "toolCallName": "f" })),
        );
        log.record(3, 4, &event("TOOL_CALL_ARGS", json!({ "toolCallId": "c", "delta": "{\"a\"" })));
        log.record(4, 4, &event("TOOL_CALL_ARGS", json!({ "toolCallId": "c", "delta": ":1}" })));
        log.record(5, 4, &event("TOOL_CALL_END", json!({ "toolCallId": "c" })));
        log.record(6, 4, &event("TOOL_CALL_RESULT", json!({ "toolCallId": "c", "content": "42" })));
        log.record(
            9,
            9,
            &event("TOOL_CALL_START", json!({ "toolCallId": "late", "toolCallName": "f" })),
        );
        log.reset(8);
        let said = log.messages("Wait. It is 42.", vec![]);
        let call = Part::ToolCall {
            name: "f".into(),
            arguments: Arguments::Text("{\"a\":1}".into()),
            id: Some("c".into()),
        };
        assert_eq!(said[0].parts, [Part::Text { content: "Wait".into() }, call]);
        assert_eq!(said[1], ChatMessage::tool("c", "42"));
        assert_eq!(said[2], ChatMessage::assistant(". It is 42."));
        assert_eq!(said.len(), 3);
        assert_eq!(ToolLog::default().messages("", vec![]), []);
    }

    #[test]
    fn native_parts_stand_before_the_calls_and_texts_that_followed_them() {
        let native = |name: &str| {
            let part = json!({ "type": "native", "dialect": "openai-chat", "provider": "p",
                "model": "m", "part": { "name": name } });
            serde_json::from_value::<Part>(part).unwrap()
        };
        let placed = |at, tools, name| Placed { at, tools, part: native(name) };
        let mut log = ToolLog::default();
        for (seq, id) in [(2, "a"), (3, "b")] {
            let data = json!({ "toolCallId": id, "toolCallName": "f" });
            log.record(seq, 2, &event("TOOL_CALL_START", data));
        }
        let parts = vec![placed(0, 0, "first"), placed(2, 1, "between"), placed(2, 2, "last")];
        let said = log.messages("Hm!", parts);
        let call = |id: &str| Part::ToolCall {
            name: "f".into(),
            arguments: Arguments::Text(String::new()),
            id: Some(id.into()),
        };
        let text = |content: &str| Part::Text { content: content.into() };
        let expected = [
            native("first"),
            text("Hm"),
            call("a"),
            native("between"),
            call("b"),
            native("last"),
            text("!"),
        ];
        assert_eq!(said[0].parts, expected);
    }

    #[test]
    fn native_part_behind_a_result_stands_behind_it() {
        let part = json!({ "type": "native", "dialect": "anthropic-messages", "provider": "p",
            "model": "m", "part": {} });
        let native: Part = serde_json::from_value(part).unwrap();
        let mut log = ToolLog::default();
        let call = json!({ "toolCallId": "s", "toolCallName": "search" });
        log.record(1, 0, &event("TOOL_CALL_START", call));
        log.record(2, 0, &event("TOOL_CALL_RESULT", json!({ "toolCallId": "s", "content": "" })));
        let placed = |tools| Placed { at: 0, tools, part: native.clone() };
        let said = log.messages("Found.", vec![placed(0), placed(1), placed(2)]);
        assert_eq!(said.iter().map(|message| message.parts.len()).collect::<Vec<_>>(), [3, 1, 2]);
        assert_eq!(said[2].parts[0], native);
    }
}

//! OpenAI's Responses.

use serde_json::{Value, json};

use super::{Frame, Mark, Part};
use crate::answer::ToolCall;
use crate::output::{Output, Piece};
use crate::protocol::Complaint;
use crate::question::Question;

pub(super) fn frames(question: &Question, output: &Output) -> Vec<Frame> {
    let mut events = Events { output, frames: Vec::new(), open: None };
    let begun = json!({ "id": id(output), "object": "response", "status": "in_progress",
    "model": question.model, "output": [] });
    events.push(Mark::Open, None, "response.created", json!({ "response": begun }));
    for piece in output.pieces() {
        events.piece(&piece);
    }
    events.close();
    let response = json!({ "response": collected(question, output) });
    events.push(Mark::Finish, None, "response.completed", response);
    events.frames
}

fn id(output: &Output) -> String {
    format!("resp_{}", output.id)
}

struct Events<'a> {
    output: &'a Output,
    frames: Vec<Frame>,
    /// The item that is open, by its place in the output.
    open: Option<(usize, Item)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Item {
    Reasoning,
    Message,
    Call(usize),
}

impl Events<'_> {
    fn push(&mut self, mark: Mark, part: Option<Part>, kind: &'static str, mut event: Value) {
        if let Some(event) = event.as_object_mut() {
            event.insert("type".into(), kind.into());
            event.insert("sequence_number".into(), self.frames.len().into());
        }
        self.frames.push(Frame { part, ..Frame::named(mark, kind, &event) });
    }

    fn piece(&mut self, piece: &Piece) {
        let part = Part::of(piece);
        match piece {
            Piece::Reasoning(text) => {
                let place = self.within(Item::Reasoning, Mark::Open);
                let event = json!({ "item_id": self.item_id(Item::Reasoning),
                "output_index": place, "summary_index": 0, "delta": text });
                let kind = "response.reasoning_summary_text.delta";
                self.push(Mark::Token, Some(part), kind, event);
            }
            Piece::Seal(_) => {
                self.within(Item::Reasoning, Mark::Open);
            }
            Piece::Redacted(_) => {}
            Piece::Text(text) => {
                let place = self.within(Item::Message, Mark::Open);
                let event = json!({ "item_id": self.item_id(Item::Message),
                "output_index": place, "content_index": 0, "delta": text });
                self.push(Mark::Token, Some(part), "response.output_text.delta", event);
            }
            Piece::Call { index, .. } => {
                self.within(Item::Call(*index), Mark::Token);
            }
            Piece::Arguments { index, part: written } => {
                let place = self.within(Item::Call(*index), Mark::Token);
                let event = json!({ "item_id": self.item_id(Item::Call(*index)),
                "output_index": place, "delta": written });
                let kind = match self.is_custom(*index) {
                    true => "response.custom_tool_call_input.delta",
                    false => "response.function_call_arguments.delta",
                };
                self.push(Mark::Token, Some(part), kind, event);
            }
        }
    }

    /// Opens an item, unless it is the one that is open.
    fn within(&mut self, item: Item, mark: Mark) -> usize {
        if let Some((place, open)) = self.open
            && open == item
        {
            return place;
        }
        let place = self.open.map_or(0, |(place, _)| place + 1);
        self.close();
        self.open = Some((place, item));
        let part = Some(self.part(item));
        let added = json!({ "output_index": place, "item": self.item(item, false) });
        self.push(mark, part, "response.output_item.added", added);
        if let Some((kind, at, empty)) = self.inner(item, false) {
            let id = self.item_id(item);
            let event = json!({ "item_id": id, "output_index": place, at: 0, "part": empty });
            self.push(Mark::Open, part, kind, event);
        }
        place
    }

    /// Closes the open item, with the complete item.
    fn close(&mut self) {
        let Some((place, item)) = self.open else { return };
        let (part, id) = (Some(self.part(item)), self.item_id(item));
        for (kind, mut event) in self.done(item) {
            if let Some(event) = event.as_object_mut() {
                event.insert("item_id".into(), id.as_str().into());
                event.insert("output_index".into(), place.into());
            }
            self.push(Mark::Open, part, kind, event);
        }
        let item = json!({ "output_index": place, "item": self.item(item, true) });
        self.push(Mark::Open, part, "response.output_item.done", item);
    }

    /// The events before the end of an item.
    fn done(&self, item: Item) -> Vec<(&'static str, Value)> {
        let written = |index| self.call(index).map(|call| self.output.written(call));
        match item {
            Item::Reasoning => {
                let Some((_, _, part)) = self.inner(item, true) else { return Vec::new() };
                let text = &self.output.answer.reasoning;
                vec![
                    (
                        "response.reasoning_summary_text.done",
                        json!({ "summary_index": 0, "text": text }),
                    ),
                    (
                        "response.reasoning_summary_part.done",
                        json!({ "summary_index": 0, "part": part }),
                    ),
                ]
            }
            Item::Message => {
                let text = &self.output.answer.text;
                let part = text_part(text);
                vec![
                    ("response.output_text.done", json!({ "content_index": 0, "text": text })),
                    ("response.content_part.done", json!({ "content_index": 0, "part": part })),
                ]
            }
            Item::Call(index) if self.is_custom(index) => {
                vec![("response.custom_tool_call_input.done", json!({ "input": written(index) }))]
            }
            Item::Call(index) => vec![(
                "response.function_call_arguments.done",
                json!({ "arguments": written(index) }),
            )],
        }
    }

    /// The part of an item that opens with it, the member that counts such parts, and the part.
    fn inner(&self, item: Item, is_complete: bool) -> Option<(&'static str, &'static str, Value)> {
        match item {
            Item::Reasoning => {
                let text = self.output.answer.reasoning.as_deref().filter(|it| !it.is_empty())?;
                let part = summary(if is_complete { text } else { "" });
                Some(("response.reasoning_summary_part.added", "summary_index", part))
            }
            Item::Message => Some(("response.content_part.added", "content_index", text_part(""))),
            Item::Call(_) => None,
        }
    }

    fn part(&self, item: Item) -> Part {
        match item {
            Item::Reasoning => Part::Thinking,
            Item::Message => Part::Text,
            Item::Call(_) => Part::Call,
        }
    }

    fn call(&self, index: usize) -> Option<&ToolCall> {
        self.output.answer.tool_calls.get(index)
    }

    fn is_custom(&self, index: usize) -> bool {
        self.call(index).is_some_and(|call| call.input.is_some())
    }

    fn item_id(&self, item: Item) -> String {
        item_id(self.output, item)
    }

    fn item(&self, item: Item, is_complete: bool) -> Value {
        make(self.output, item, is_complete)
    }
}

fn item_id(output: &Output, item: Item) -> String {
    match item {
        Item::Reasoning => format!("rs_{}", output.id),
        Item::Message => format!("msg_{}", output.id),
        Item::Call(index) => {
            let call = output.answer.tool_calls.get(index);
            let is_custom = call.is_some_and(|call| call.input.is_some());
            output.call_id(index).replacen("call", if is_custom { "ctc" } else { "fc" }, 1)
        }
    }
}

/// An item at its start, or complete.
fn make(output: &Output, item: Item, is_complete: bool) -> Value {
    let (id, answer) = (item_id(output, item), &output.answer);
    let status = if is_complete { "completed" } else { "in_progress" };
    match item {
        Item::Reasoning => {
            let text = answer.reasoning.as_deref().filter(|text| is_complete && !text.is_empty());
            let parts: Vec<Value> = text.map(summary).into_iter().collect();
            let mut item = json!({ "type": "reasoning", "id": id, "summary": parts });
            if let (Some(item), Some(seal)) = (item.as_object_mut(), &output.seal) {
                // The seal at the start of an item must not come back.
                let seal = if is_complete { seal.clone() } else { format!("{seal}unfinished") };
                item.insert("encrypted_content".into(), seal.into());
            }
            item
        }
        Item::Message => {
            let content: Vec<Value> =
                is_complete.then(|| text_part(&answer.text)).into_iter().collect();
            json!({ "type": "message", "id": id, "role": "assistant", "status": status,
            "content": content })
        }
        Item::Call(index) => {
            let call = answer.tool_calls.get(index);
            let (kind, member) = match call.and_then(|call| call.input.as_ref()) {
                Some(_) => ("custom_tool_call", "input"),
                None => ("function_call", "arguments"),
            };
            let written = call.filter(|_| is_complete).map(|call| output.written(call));
            json!({ "type": kind, "id": id, "call_id": output.call_id(index), "status": status,
            "name": call.map(|call| call.name.as_str()), member: written.unwrap_or_default() })
        }
    }
}

fn summary(text: &str) -> Value {
    json!({ "type": "summary_text", "text": text })
}

fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [] })
}

pub(super) fn collected(question: &Question, output: &Output) -> Value {
    let has_text = !output.answer.text.is_empty();
    let items =
        [output.has_thinking().then_some(Item::Reasoning), has_text.then_some(Item::Message)];
    let calls = (0..output.answer.tool_calls.len()).map(Item::Call);
    let items = items.into_iter().flatten().chain(calls);
    let items: Vec<Value> = items.map(|item| make(output, item, true)).collect();
    let (input, tokens) = (question.prompt_tokens, output.tokens());
    json!({ "id": id(output), "object": "response", "status": "completed", "model": question.model,
    "output": items,
        "usage": { "input_tokens": input, "output_tokens": tokens,
        "total_tokens": input + tokens } })
}

pub(super) fn error_frame(complaint: &Complaint) -> Frame {
    let code = complaint.code.unwrap_or(complaint.kind);
    let event =
        json!({ "type": "error", "code": code, "message": complaint.message, "param": null });
    Frame::named(Mark::Finish, "error", &event)
}

pub(super) fn empty_delta() -> Frame {
    let event = json!({ "type": "response.output_text.delta", "item_id": "msg_fake",
    "output_index": 0, "content_index": 0, "delta": "" });
    Frame::named(Mark::Token, "response.output_text.delta", &event)
}

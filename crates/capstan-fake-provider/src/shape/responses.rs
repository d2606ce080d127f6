//! OpenAI's Responses.

use serde_json::{Value, json};

use super::{Complaint, Frame, Mark};
use crate::answer::{Answer, Piece, call_id};
use crate::asked::Asked;

const ID: &str = "resp_fake";

pub(super) fn frames(asked: &Asked, answer: &Answer) -> Vec<Frame> {
    let mut events = Events::default();
    let begun = json!({ "id": ID, "object": "response", "status": "in_progress",
    "model": asked.model, "output": [] });
    events.push(Mark::Open, "response.created", json!({ "response": begun }));
    for piece in answer.pieces() {
        events.piece(&piece, answer);
    }
    events.push(Mark::Finish, "response.completed", json!({ "response": whole(asked, answer) }));
    events.frames
}

#[derive(Default)]
struct Events {
    frames: Vec<Frame>,
    /// The item that is open, by its place in the output.
    open: Option<(usize, Item)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Item {
    Reasoning,
    Message,
    Call(usize),
}

impl Events {
    fn push(&mut self, mark: Mark, kind: &'static str, mut event: Value) {
        if let Some(event) = event.as_object_mut() {
            event.insert("type".into(), kind.into());
            event.insert("sequence_number".into(), self.frames.len().into());
        }
        self.frames.push(Frame::named(mark, kind, &event));
    }

    fn piece(&mut self, piece: &Piece, answer: &Answer) {
        match piece {
            Piece::Reasoning(text) => {
                let place = self.within(
                    Mark::Open,
                    Item::Reasoning,
                    || json!({ "type": "reasoning", "id": "rs_fake", "summary": [] }),
                );
                let event = json!({ "item_id": "rs_fake", "output_index": place,
                "summary_index": 0, "delta": text });
                self.push(Mark::Token, "response.reasoning_summary_text.delta", event);
            }
            Piece::Text(text) => {
                let item = || {
                    json!({ "type": "message", "id": "msg_fake", "role": "assistant",
                "status": "in_progress", "content": [] })
                };
                let place = self.within(Mark::Open, Item::Message, item);
                let event = json!({ "item_id": "msg_fake", "output_index": place,
                "content_index": 0, "delta": text });
                self.push(Mark::Token, "response.output_text.delta", event);
            }
            Piece::Call { index, .. } => {
                self.within(Mark::Token, Item::Call(*index), || {
                    item_of(answer, *index, "in_progress", false)
                });
            }
            Piece::Arguments { index, json } => {
                let place = self.open.map_or(0, |(place, _)| place);
                let event = json!({ "item_id": format!("fc_{}", index + 1), "output_index": place,
                "delta": json });
                self.push(Mark::Token, "response.function_call_arguments.delta", event);
                if self.is_last_part(answer, *index) {
                    let item = item_of(answer, *index, "completed", true);
                    self.push(
                        Mark::Open,
                        "response.output_item.done",
                        json!({ "output_index": place, "item": item }),
                    );
                }
            }
        }
    }

    fn within(&mut self, mark: Mark, item: Item, value: impl FnOnce() -> Value) -> usize {
        if let Some((place, open)) = self.open
            && open == item
        {
            return place;
        }
        let place = self.open.map_or(0, |(place, _)| place + 1);
        self.push(
            mark,
            "response.output_item.added",
            json!({ "output_index": place, "item": value() }),
        );
        self.open = Some((place, item));
        place
    }

    /// Whether all arguments of a call have been written.
    fn is_last_part(&self, answer: &Answer, index: usize) -> bool {
        let parts =
            |piece: &Piece| matches!(piece, Piece::Arguments { index: own, .. } if *own == index);
        let all = answer.pieces().iter().filter(|piece| parts(piece)).count();
        let name = format!("\"fc_{}\"", index + 1);
        let is_part = |frame: &&Frame| {
            frame.event == Some("response.function_call_arguments.delta")
                && frame.data.contains(&name)
        };
        self.frames.iter().filter(is_part).count() == all
    }
}

fn item_of(answer: &Answer, index: usize, status: &str, is_whole: bool) -> Value {
    let call = answer.tool_calls.get(index);
    let arguments =
        call.filter(|_| is_whole).map(crate::answer::ToolCall::json).unwrap_or_default();
    json!({ "type": "function_call", "id": format!("fc_{}", index + 1), "call_id": call_id(index),
    "status": status,
        "name": call.map(|call| call.name.as_str()), "arguments": arguments })
}

pub(super) fn whole(asked: &Asked, answer: &Answer) -> Value {
    let content = json!([{ "type": "output_text", "text": answer.text, "annotations": [] }]);
    let mut output = vec![
        json!({ "type": "message", "id": "msg_fake", "role": "assistant", "status": "completed",
        "content": content }),
    ];
    output.extend(
        (0..answer.tool_calls.len()).map(|index| item_of(answer, index, "completed", true)),
    );
    let (input, tokens) = (asked.prompt_tokens, answer.tokens());
    json!({ "id": ID, "object": "response", "status": "completed", "model": asked.model,
    "output": output,
        "usage": { "input_tokens": input, "output_tokens": tokens,
        "total_tokens": input + tokens } })
}

pub(super) fn error_frame(complaint: Complaint) -> Frame {
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

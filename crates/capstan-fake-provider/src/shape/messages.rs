//! Anthropic's Messages.

use serde_json::{Value, json};

use super::{Complaint, Frame, Mark};
use crate::answer::{Answer, Piece, call_id};
use crate::asked::Asked;

pub(super) fn frames(asked: &Asked, answer: &Answer) -> Vec<Frame> {
    let message = json!({ "id": "msg_fake", "type": "message", "role": "assistant",
    "model": asked.model, "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": { "input_tokens": asked.prompt_tokens,
        "output_tokens": 1 } });
    let start = json!({ "type": "message_start", "message": message });
    let mut blocks =
        Blocks { frames: vec![Frame::named(Mark::Open, "message_start", &start)], open: None };
    for piece in answer.pieces() {
        blocks.piece(&piece);
    }
    blocks.stop(Mark::Finish);
    let delta = json!({ "type": "message_delta", "delta": { "stop_reason": stop_reason(answer),
    "stop_sequence": null },
        "usage": { "output_tokens": answer.tokens() } });
    let mut frames = blocks.frames;
    frames.push(Frame::named(Mark::Finish, "message_delta", &delta));
    frames.push(Frame::named(Mark::Done, "message_stop", &json!({ "type": "message_stop" })));
    frames
}

/// The frames so far, and the block that is open: its index, and whose it is.
struct Blocks {
    frames: Vec<Frame>,
    open: Option<(usize, &'static str)>,
}

impl Blocks {
    fn piece(&mut self, piece: &Piece) {
        match piece {
            Piece::Reasoning(text) => {
                self.within("thinking", || json!({ "type": "thinking", "thinking": "" }));
                self.delta(&json!({ "type": "thinking_delta", "thinking": text }));
            }
            Piece::Text(text) => {
                self.within("text", || json!({ "type": "text", "text": "" }));
                self.delta(&json!({ "type": "text_delta", "text": text }));
            }
            // Each call is a block of its own; its beginning is a token.
            Piece::Call { id, name, .. } => {
                let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                self.start(Mark::Token, "tool_use", &block);
            }
            Piece::Arguments { json, .. } => {
                self.delta(&json!({ "type": "input_json_delta", "partial_json": json }));
            }
        }
    }

    fn within(&mut self, kind: &'static str, block: impl FnOnce() -> Value) {
        if self.open.is_none_or(|(_, open)| open != kind) {
            self.start(Mark::Open, kind, &block());
        }
    }

    fn start(&mut self, mark: Mark, kind: &'static str, block: &Value) {
        let index = self.open.map_or(0, |(index, _)| index + 1);
        self.stop(Mark::Open);
        let start =
            json!({ "type": "content_block_start", "index": index, "content_block": block });
        self.frames.push(Frame::named(mark, "content_block_start", &start));
        self.open = Some((index, kind));
    }

    fn delta(&mut self, delta: &Value) {
        let index = self.open.map_or(0, |(index, _)| index);
        let delta = json!({ "type": "content_block_delta", "index": index, "delta": delta });
        self.frames.push(Frame::named(Mark::Token, "content_block_delta", &delta));
    }

    fn stop(&mut self, mark: Mark) {
        if let Some((index, _)) = self.open {
            let stop = json!({ "type": "content_block_stop", "index": index });
            self.frames.push(Frame::named(mark, "content_block_stop", &stop));
        }
    }
}

fn stop_reason(answer: &Answer) -> &'static str {
    if answer.tool_calls.is_empty() { "end_turn" } else { "tool_use" }
}

pub(super) fn whole(asked: &Asked, answer: &Answer) -> Value {
    let mut content = vec![json!({ "type": "text", "text": answer.text })];
    content.extend(answer.tool_calls.iter().enumerate().map(|(index, call)| {
        json!({ "type": "tool_use", "id": call_id(index), "name": call.name,
        "input": call.arguments })
    }));
    json!({ "id": "msg_fake", "type": "message", "role": "assistant", "model": asked.model,
    "content": content,
        "stop_reason": stop_reason(answer), "stop_sequence": null,
        "usage": { "input_tokens": asked.prompt_tokens, "output_tokens": answer.tokens() } })
}

/// Anthropic has types alone; some of them are named otherwise than OpenAI's.
pub(super) fn error(complaint: Complaint) -> Value {
    let kind = match (complaint.status, complaint.code) {
        (401, _) => "authentication_error",
        (404, _) => "not_found_error",
        (429, Some("insufficient_quota")) => "billing_error",
        (429, _) => "rate_limit_error",
        (503 | 529, _) => "overloaded_error",
        (500.., _) => "api_error",
        _ => "invalid_request_error",
    };
    json!({ "type": "error", "error": { "type": kind, "message": complaint.message } })
}

pub(super) fn empty_delta() -> Frame {
    let delta = json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta",
    "text": "" } });
    Frame::named(Mark::Token, "content_block_delta", &delta)
}

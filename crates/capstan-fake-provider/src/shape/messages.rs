//! Anthropic's Messages.

use serde_json::{Value, json};

use super::{Frame, Mark, Part};
use crate::answer::Answer;
use crate::output::{Output, Piece};
use crate::protocol::Complaint;
use crate::question::Question;

pub(super) fn frames(question: &Question, output: &Output) -> Vec<Frame> {
    let message = json!({ "id": id(output), "type": "message", "role": "assistant",
    "model": question.model, "content": [], "stop_reason": null, "stop_sequence": null,
    "usage": usage(question, 1) });
    let start = json!({ "type": "message_start", "message": message });
    let mut blocks =
        Blocks { frames: vec![Frame::named(Mark::Open, "message_start", &start)], open: None };
    for piece in output.pieces() {
        blocks.piece(&piece);
    }
    blocks.stop(Mark::Finish);
    let delta = json!({ "type": "message_delta", "delta": {
        "stop_reason": stop_reason(&output.answer), "stop_sequence": null,
        "stop_details": stop_details(&output.answer) },
        "usage": { "input_tokens": input_tokens(question).0,
        "cache_creation_input_tokens": input_tokens(question).1, "cache_read_input_tokens": 0,
        "output_tokens": output.tokens() } });
    let mut frames = blocks.frames;
    frames.push(Frame::named(Mark::Finish, "message_delta", &delta));
    frames.push(Frame::named(Mark::Done, "message_stop", &json!({ "type": "message_stop" })));
    frames
}

fn id(output: &Output) -> String {
    format!("msg_{}", output.id)
}

/// Tokens of the prompt that are not cached, and those that go into the cache.
fn input_tokens(question: &Question) -> (usize, usize) {
    if question.marks_cache { (1, question.prompt_tokens) } else { (question.prompt_tokens, 0) }
}

fn usage(question: &Question, output_tokens: usize) -> Value {
    let (input, cached) = input_tokens(question);
    json!({ "input_tokens": input, "cache_creation_input_tokens": cached,
    "cache_read_input_tokens": 0,
    "cache_creation": { "ephemeral_5m_input_tokens": cached, "ephemeral_1h_input_tokens": 0 },
    "output_tokens": output_tokens, "service_tier": "standard" })
}

/// The frames so far, and the open block: its index, its kind and its part.
struct Blocks {
    frames: Vec<Frame>,
    open: Option<(usize, &'static str, Part)>,
}

impl Blocks {
    fn piece(&mut self, piece: &Piece) {
        let part = Part::of(piece);
        match piece {
            Piece::Reasoning(text) => {
                self.within("thinking", part, || thinking(""));
                let delta = json!({ "type": "thinking_delta", "thinking": text });
                self.delta(Mark::Token, part, &delta);
            }
            Piece::Seal(signature) => {
                self.within("thinking", part, || thinking(""));
                let delta = json!({ "type": "signature_delta", "signature": signature });
                self.delta(Mark::Open, part, &delta);
            }
            Piece::Redacted(data) => {
                let block = json!({ "type": "redacted_thinking", "data": data });
                self.start(Mark::Open, "redacted_thinking", part, &block);
            }
            Piece::Text(text) => {
                self.within("text", part, || json!({ "type": "text", "text": "" }));
                self.delta(Mark::Token, part, &json!({ "type": "text_delta", "text": text }));
            }
            // Each call is a block of its own; its beginning is a token.
            Piece::Call { id, name, .. } => {
                let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                self.start(Mark::Token, "tool_use", part, &block);
            }
            Piece::Arguments { part: json, .. } => {
                let delta = json!({ "type": "input_json_delta", "partial_json": json });
                self.delta(Mark::Token, part, &delta);
            }
        }
    }

    fn within(&mut self, kind: &'static str, part: Part, block: impl FnOnce() -> Value) {
        if self.open.is_none_or(|(_, open, _)| open != kind) {
            self.start(Mark::Open, kind, part, &block());
        }
    }

    fn start(&mut self, mark: Mark, kind: &'static str, part: Part, block: &Value) {
        let index = self.open.map_or(0, |(index, ..)| index + 1);
        self.stop(Mark::Open);
        let start =
            json!({ "type": "content_block_start", "index": index, "content_block": block });
        self.frames.push(Frame::named(mark, "content_block_start", &start).of(part));
        if index == 0 {
            self.frames.push(Frame::named(Mark::Open, "ping", &json!({ "type": "ping" })).of(part));
        }
        self.open = Some((index, kind, part));
    }

    fn delta(&mut self, mark: Mark, part: Part, delta: &Value) {
        let index = self.open.map_or(0, |(index, ..)| index);
        let delta = json!({ "type": "content_block_delta", "index": index, "delta": delta });
        self.frames.push(Frame::named(mark, "content_block_delta", &delta).of(part));
    }

    fn stop(&mut self, mark: Mark) {
        if let Some((index, _, part)) = self.open {
            let stop = json!({ "type": "content_block_stop", "index": index });
            self.frames.push(Frame::named(mark, "content_block_stop", &stop).of(part));
        }
    }
}

fn thinking(text: &str) -> Value {
    json!({ "type": "thinking", "thinking": text, "signature": "" })
}

fn stop_reason(answer: &Answer) -> &'static str {
    match answer {
        Answer { refusal: Some(_), .. } => "refusal",
        _ if answer.tool_calls.is_empty() => "end_turn",
        _ => "tool_use",
    }
}

fn stop_details(answer: &Answer) -> Value {
    match &answer.refusal {
        Some(category) => json!({ "type": "refusal", "category": category, "explanation": null }),
        None => Value::Null,
    }
}

pub(super) fn collected(question: &Question, output: &Output) -> Value {
    let answer = &output.answer;
    let mut content = Vec::new();
    if output.has_thinking() {
        let mut block = thinking(answer.reasoning.as_deref().unwrap_or_default());
        if let Some(signature) = block.get_mut("signature") {
            *signature = output.seal.as_deref().unwrap_or_default().into();
        }
        content.push(block);
    }
    content.extend(
        output.redacted.iter().map(|data| json!({ "type": "redacted_thinking", "data": data })),
    );
    if !answer.text.is_empty() {
        content.push(json!({ "type": "text", "text": answer.text }));
    }
    content.extend(answer.tool_calls.iter().enumerate().map(|(index, call)| {
        json!({ "type": "tool_use", "id": output.call_id(index), "name": call.name,
        "input": call.object() })
    }));
    json!({ "id": id(output), "type": "message", "role": "assistant", "model": question.model,
    "content": content, "stop_reason": stop_reason(answer), "stop_sequence": null,
    "stop_details": stop_details(answer), "usage": usage(question, output.tokens()) })
}

/// Anthropic's errors have types and own texts; clients match both.
pub(super) fn error(complaint: &Complaint) -> Value {
    let kind = match (complaint.status, complaint.code) {
        (401, _) => "authentication_error",
        (404, _) => "not_found_error",
        (429, Some("insufficient_quota")) => "billing_error",
        (429, _) => "rate_limit_error",
        (503 | 529, _) => "overloaded_error",
        (500.., _) => "api_error",
        _ => "invalid_request_error",
    };
    let message = match kind {
        "authentication_error" => "invalid x-api-key",
        "rate_limit_error" => {
            "This request would exceed your account's rate limit. Please try again later."
        }
        "overloaded_error" => "Overloaded",
        "api_error" => "Internal server error",
        _ => &complaint.message,
    };
    json!({ "type": "error", "error": { "type": kind, "message": message },
    "request_id": "req_fake" })
}

pub(super) fn empty_delta() -> Frame {
    let delta = json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta",
    "text": "" } });
    Frame::named(Mark::Token, "content_block_delta", &delta)
}

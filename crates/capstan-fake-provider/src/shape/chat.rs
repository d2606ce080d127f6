//! OpenAI's Chat Completions, and how servers that claim to be compatible write it.

use serde_json::{Value, json};

use super::{Complaint, Frame, Mark};
use crate::answer::{Answer, Piece, call_id};
use crate::asked::Asked;
use crate::fault::Fault;

const ID: &str = "chatcmpl-fake";

pub(super) fn frames(asked: &Asked, answer: &Answer, fault: Option<Fault>) -> Vec<Frame> {
    let writer = Writer { asked, fault };
    let mut frames =
        vec![writer.chunk(Mark::Open, &json!({ "role": "assistant", "content": "" }), None)];
    if fault == Some(Fault::NoIndexToolCalls) {
        let text = Answer { tool_calls: Vec::new(), ..answer.clone() };
        frames.extend(text.pieces().iter().map(|piece| writer.token(piece)));
        frames.extend((0..answer.tool_calls.len()).map(|index| writer.whole_call(answer, index)));
    } else {
        frames.extend(answer.pieces().iter().map(|piece| writer.token(piece)));
    }
    frames.push(writer.chunk(Mark::Finish, &json!({}), Some(finish(answer))));
    frames.push(Frame::new(
        Mark::Usage,
        &json!({ "id": ID, "object": "chat.completion.chunk", "model": asked.model,
        "choices": [], "usage": usage(asked, answer) }),
    ));
    frames.push(Frame { mark: Mark::Done, event: None, data: "[DONE]".into() });
    frames
}

struct Writer<'a> {
    asked: &'a Asked,
    fault: Option<Fault>,
}

impl Writer<'_> {
    fn chunk(&self, mark: Mark, delta: &Value, finish: Option<&str>) -> Frame {
        let unfinished = (self.fault == Some(Fault::FinishNull)).then_some("null");
        let name = if self.fault == Some(Fault::MessageForDelta) { "message" } else { "delta" };
        let choice = json!({ "index": 0, name: delta, "finish_reason": finish.or(unfinished) });
        Frame::new(
            mark,
            &json!({ "id": ID, "object": "chat.completion.chunk", "model": self.asked.model,
            "choices": [choice] }),
        )
    }

    fn token(&self, piece: &Piece) -> Frame {
        let delta = match piece {
            Piece::Reasoning(text) => json!({ "reasoning_content": text }),
            Piece::Text(text) if self.fault == Some(Fault::ContentParts) => {
                json!({ "content": [{ "type": "text", "text": text }] })
            }
            Piece::Text(text) => json!({ "content": text }),
            Piece::Call { name, .. } if self.is_legacy() => {
                json!({ "function_call": { "name": name, "arguments": "" } })
            }
            Piece::Arguments { json, .. } if self.is_legacy() => {
                json!({ "function_call": { "arguments": json } })
            }
            Piece::Call { index, id, name } => {
                let function = json!({ "name": name, "arguments": "" });
                json!({ "tool_calls": [{ "index": self.index(*index), "id": id, "type": "function",
                "function": function }] })
            }
            Piece::Arguments { index, json } => {
                json!({ "tool_calls": [{ "index": self.index(*index),
                "function": { "arguments": json } }] })
            }
        };
        self.chunk(Mark::Token, &delta, None)
    }

    fn whole_call(&self, answer: &Answer, index: usize) -> Frame {
        let call =
            answer.tool_calls.get(index).map(|call| tool_call(index, &call.name, &call.json()));
        self.chunk(Mark::Token, &json!({ "tool_calls": [call] }), None)
    }

    fn is_legacy(&self) -> bool {
        self.fault == Some(Fault::LegacyFunctionCall)
    }

    fn index(&self, index: usize) -> usize {
        if self.fault == Some(Fault::SameIndexToolCalls) { 0 } else { index }
    }
}

fn tool_call(index: usize, name: &str, arguments: &str) -> Value {
    json!({ "id": call_id(index), "type": "function", "function": { "name": name,
    "arguments": arguments } })
}

fn finish(answer: &Answer) -> &'static str {
    if answer.tool_calls.is_empty() { "stop" } else { "tool_calls" }
}

fn usage(asked: &Asked, answer: &Answer) -> Value {
    let (prompt, completion) = (asked.prompt_tokens, answer.tokens());
    json!({ "prompt_tokens": prompt, "completion_tokens": completion,
    "total_tokens": prompt + completion })
}

pub(super) fn whole(asked: &Asked, answer: &Answer) -> Value {
    let mut message = json!({ "role": "assistant", "content": answer.text });
    if !answer.tool_calls.is_empty() {
        let calls = answer.tool_calls.iter().enumerate();
        let calls: Vec<Value> =
            calls.map(|(index, call)| tool_call(index, &call.name, &call.json())).collect();
        if let Some(message) = message.as_object_mut() {
            message.insert("tool_calls".into(), calls.into());
        }
    }
    let choice = json!({ "index": 0, "message": message, "finish_reason": finish(answer) });
    json!({ "id": ID, "object": "chat.completion", "model": asked.model, "choices": [choice],
    "usage": usage(asked, answer) })
}

pub(super) fn error(complaint: Complaint) -> Value {
    let Complaint { kind, code, message, .. } = complaint;
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}

pub(super) fn empty_delta(asked: &Asked) -> Frame {
    Writer { asked, fault: None }.chunk(Mark::Token, &json!({ "content": "" }), None)
}

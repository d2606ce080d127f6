//! OpenAI's Chat Completions, and how servers that claim to be compatible write it.

use serde_json::{Value, json};

use super::{Frame, Mark, Part};
use crate::answer::{Answer, ToolCall};
use crate::fault::Fault;
use crate::output::{Output, Piece};
use crate::protocol::{Complaint, Shape};
use crate::question::Question;

pub(super) fn frames(question: &Question, output: &Output, fault: Option<Fault>) -> Vec<Frame> {
    let writer = Writer { question, output, fault };
    let mut frames =
        vec![writer.chunk(Mark::Open, &json!({ "role": "assistant", "content": "" }), None)];
    let (calls, pieces): (Vec<Piece>, Vec<Piece>) =
        output.pieces().into_iter().partition(|piece| {
            fault == Some(Fault::NoIndexToolCalls)
                && matches!(piece, Piece::Call { .. } | Piece::Arguments { .. })
        });
    frames.extend(pieces.iter().filter_map(|piece| writer.token(piece)));
    if !calls.is_empty() {
        frames.extend((0..output.answer.tool_calls.len()).map(|index| writer.whole_call(index)));
    }
    frames.push(writer.chunk(Mark::Finish, &json!({}), Some(finish(&output.answer))));
    frames.push(Frame::new(
        Mark::Usage,
        &json!({ "id": writer.id(), "object": "chat.completion.chunk", "model": question.model,
        "choices": [], "usage": usage(question, output) }),
    ));
    frames.push(Frame { mark: Mark::Done, part: None, event: None, data: "[DONE]".into() });
    frames
}

struct Writer<'a> {
    question: &'a Question,
    output: &'a Output,
    fault: Option<Fault>,
}

impl Writer<'_> {
    fn id(&self) -> String {
        id(self.output)
    }

    fn chunk(&self, mark: Mark, delta: &Value, finish: Option<&str>) -> Frame {
        let unfinished = (self.fault == Some(Fault::FinishNull)).then_some("null");
        let name = if self.fault == Some(Fault::MessageForDelta) { "message" } else { "delta" };
        let choice = json!({ "index": 0, name: delta, "finish_reason": finish.or(unfinished) });
        Frame::new(
            mark,
            &json!({ "id": self.id(), "object": "chat.completion.chunk",
            "model": self.question.model, "choices": [choice] }),
        )
    }

    fn token(&self, piece: &Piece) -> Option<Frame> {
        let delta = match piece {
            Piece::Seal(_) | Piece::Redacted(_) => return None,
            Piece::Reasoning(text) => json!({ "reasoning_content": text }),
            Piece::Text(text) if self.fault == Some(Fault::ContentParts) => {
                json!({ "content": [{ "type": "text", "text": text }] })
            }
            Piece::Text(text) => json!({ "content": text }),
            Piece::Call { name, .. } if self.is_legacy() => {
                json!({ "function_call": { "name": name, "arguments": "" } })
            }
            Piece::Arguments { part, .. } if self.is_legacy() => {
                json!({ "function_call": { "arguments": part } })
            }
            Piece::Call { index, id, name } => {
                let (kind, written) = kind_of(self.call(*index));
                json!({ "tool_calls": [{ "index": self.index(*index), "id": id, "type": kind,
                kind: { "name": name, written: "" } }] })
            }
            Piece::Arguments { index, part } => {
                let (kind, written) = kind_of(self.call(*index));
                json!({ "tool_calls": [{ "index": self.index(*index), kind: { written: part } }] })
            }
        };
        Some(self.chunk(Mark::Token, &delta, None).of(Part::of(piece)))
    }

    fn call(&self, index: usize) -> Option<&ToolCall> {
        self.output.answer.tool_calls.get(index)
    }

    fn whole_call(&self, index: usize) -> Frame {
        let call = self.call(index).map(|call| tool_call(self.output.call_id(index), call));
        self.chunk(Mark::Token, &json!({ "tool_calls": [call] }), None).of(Part::Call)
    }

    fn is_legacy(&self) -> bool {
        self.fault == Some(Fault::LegacyFunctionCall)
    }

    fn index(&self, index: usize) -> usize {
        if self.fault == Some(Fault::SameIndexToolCalls) { 0 } else { index }
    }
}

/// A call's type, which is also the name of its member, and the member with its arguments.
fn kind_of(call: Option<&ToolCall>) -> (&'static str, &'static str) {
    match call {
        Some(ToolCall { input: Some(_), .. }) => ("custom", "input"),
        _ => ("function", "arguments"),
    }
}

fn tool_call(id: &str, call: &ToolCall) -> Value {
    let (kind, written) = kind_of(Some(call));
    let body = json!({ "name": call.name, written: call.written(Shape::Chat) });
    json!({ "id": id, "type": kind, kind: body })
}

fn id(output: &Output) -> String {
    format!("chatcmpl-{}", output.id)
}

fn finish(answer: &Answer) -> &'static str {
    if answer.tool_calls.is_empty() { "stop" } else { "tool_calls" }
}

fn usage(question: &Question, output: &Output) -> Value {
    let (prompt, completion) = (question.prompt_tokens, output.tokens());
    json!({ "prompt_tokens": prompt, "completion_tokens": completion,
    "total_tokens": prompt + completion })
}

pub(super) fn collected(question: &Question, output: &Output) -> Value {
    let answer = &output.answer;
    let mut message = json!({ "role": "assistant", "content": answer.text });
    let mut add = |name: &str, value: Value| {
        if let Some(message) = message.as_object_mut() {
            message.insert(name.to_owned(), value);
        }
    };
    if let Some(reasoning) = &answer.reasoning {
        add("reasoning_content", reasoning.as_str().into());
    }
    if !answer.tool_calls.is_empty() {
        let calls = answer.tool_calls.iter().enumerate();
        let calls = calls.map(|(index, call)| tool_call(output.call_id(index), call));
        add("tool_calls", calls.collect());
    }
    let choice = json!({ "index": 0, "message": message, "finish_reason": finish(answer) });
    json!({ "id": id(output), "object": "chat.completion", "model": question.model,
    "choices": [choice], "usage": usage(question, output) })
}

pub(super) fn error(complaint: &Complaint) -> Value {
    let Complaint { kind, code, message, .. } = complaint;
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}

pub(super) fn empty_delta(question: &Question) -> Frame {
    let choice = json!({ "index": 0, "delta": { "content": "" }, "finish_reason": null });
    let chunk = json!({ "id": "chatcmpl-fake", "object": "chat.completion.chunk",
    "model": question.model, "choices": [choice] });
    Frame::new(Mark::Token, &chunk)
}

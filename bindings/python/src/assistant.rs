//! Assistant frames (ADR 0004): lines of stream-json, decoded by the Rust types and returned as
//! members.

use capstan_protocol::assistant::{AdrError, AssistantError, Block, Frame, Line};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::{failure, json};

/// Decodes one line of stream-json output: the frame's class and members, or `None` for other
/// lines.
#[pyfunction]
pub(crate) fn parse_frame<'py>(
    py: Python<'py>,
    line: &str,
) -> PyResult<Option<(&'static str, Bound<'py, PyAny>)>> {
    let wrong = |error| failure::invalid(py, &error);
    let Line::Object(object) = Line::decode(line).map_err(wrong)? else { return Ok(None) };
    let frame = Frame::from_object(&object).map_err(wrong)?;
    let mut members = members_of(&frame);
    if let Value::Object(members) = &mut members {
        members.insert("raw".into(), Value::Object(object));
    }
    Ok(Some((frame.class().unwrap_or("UnknownFrame"), json::read(py, &members.to_string())?)))
}

fn members_of(frame: &Frame) -> Value {
    match frame {
        Frame::Assistant(m) => json!({
            "id": m.id, "model": m.model, "blocks": blocks(&m.blocks), "text": m.text(),
            "error": error(m.error.as_ref()), "any_error": error(m.any_error()),
            "adr_error": adr(m.any_error()),
            "parent_tool_use_id": m.parent_tool_use_id,
        }),
        Frame::User(m) => {
            json!({ "blocks": blocks(&m.blocks), "parent_tool_use_id": m.parent_tool_use_id })
        }
        Frame::System(m) => json!({ "subtype": m.subtype }),
        Frame::Result(m) => json!({
            "subtype": m.subtype, "is_error": m.is_error, "api_error_status": m.api_error_status,
            "result": m.result, "terminal_reason": m.terminal_reason, "errors": m.errors,
            "usage": m.usage,
            "total_cost_usd": m.total_cost_usd,
        }),
        Frame::StreamEvent(m) => json!({
            "event": m.event, "error": error(m.error.as_ref()),
            "parent_tool_use_id": m.parent_tool_use_id,
        }),
        Frame::RateLimit(m) => json!({ "status": m.status, "resets_at": m.resets_at }),
        Frame::ConversationReset => json!({}),
        Frame::Unknown(kind) => json!({ "type": kind }),
    }
}

fn error(error: Option<&AssistantError>) -> Option<&str> {
    error.map(AssistantError::as_str)
}

fn adr(error: Option<&AssistantError>) -> Option<AdrError> {
    error.and_then(AssistantError::adr)
}

fn blocks(blocks: &[Block]) -> Vec<Value> {
    let block = |block: &Block| match block {
        Block::Text(text) => json!({ "type": "text", "text": text }),
        Block::Thinking(thinking) => json!({ "type": "thinking", "thinking": thinking }),
        Block::ToolUse { id, name, input } => {
            json!({ "type": "tool_use", "id": id, "name": name, "input": input })
        }
        Block::ToolResult { tool_use_id, content, is_error } => {
            json!({ "type": "tool_result", "tool_use_id": tool_use_id, "content": content,
            "is_error": is_error })
        }
    };
    blocks.iter().map(block).collect()
}

//! The provider's own members of calls and results: those of its server tools, for example. They
//! come back to the model that made them, as the blocks that they were.

use std::collections::HashMap;

use capstan_protocol::{ChatMessage, NativeOrigin, Part};
use serde_json::{Map, Value};

use crate::native;

/// The members of a block of Messages.
type Block = Map<String, Value>;

/// The blocks of calls and results without their input and content, by the id of the call.
#[derive(Default)]
pub(super) struct OwnTools {
    calls: HashMap<String, Block>,
    results: HashMap<String, Block>,
}

impl OwnTools {
    /// Collects those that this upstream made.
    pub(super) fn of<'a>(
        conversation: impl Iterator<Item = &'a ChatMessage>,
        origin: &NativeOrigin,
    ) -> Self {
        let mut tools = Self::default();
        for part in conversation.flat_map(|message| &message.parts) {
            let Part::Native(part) = part else { continue };
            if let Some(block) = native::own(part, Some(origin)).filter(is_of_tool) {
                tools.add(block);
            }
        }
        // The provider refuses a call of its own without its result, and the reverse.
        let Self { calls, results } = &mut tools;
        calls.retain(|id, call| is_callers(call) || results.contains_key(id));
        results.retain(|id, _| calls.contains_key(id));
        tools
    }

    fn add(&mut self, block: Value) {
        let (of, id) = match kind_of(&block).ends_with("result") {
            true => (&mut self.results, "tool_use_id"),
            false => (&mut self.calls, "id"),
        };
        if let (Some(id), Value::Object(block)) = (text(&block, id), block) {
            of.insert(id, block);
        }
    }

    /// Returns the block of a call or a result as the provider made it, with the role in whose
    /// message it stands.
    pub(super) fn own_form(&self, role: &'static str, block: Value) -> (&'static str, Value) {
        let found = |of: &HashMap<String, Block>, id| of.get(&text(&block, id)?).cloned();
        let (own, name) = match kind_of(&block) {
            "tool_use" => (found(&self.calls, "id"), "input"),
            "tool_result" => (found(&self.results, "tool_use_id"), "content"),
            _ => (None, ""),
        };
        let Some(mut own) = own else { return (role, block) };
        let content = block.get(name).cloned().unwrap_or_default();
        own.insert(name.to_owned(), if name == "content" { content_of(content) } else { content });
        ("assistant", own.into())
    }
}

/// Whether a block is one of a call or of its result.
pub(super) fn is_of_tool(block: &Value) -> bool {
    let kind = kind_of(block);
    kind.ends_with("tool_use") || kind.ends_with("tool_result")
}

/// Whether the caller answers this call.
fn is_callers(call: &Block) -> bool {
    call.get("type").is_some_and(|kind| kind == "tool_use")
}

pub(super) fn kind_of(block: &Value) -> &str {
    block.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn text(block: &Value, name: &str) -> Option<String> {
    block.get(name).and_then(Value::as_str).map(str::to_owned)
}

/// The content of a result: a list or an object, which CAP has as text.
fn content_of(content: Value) -> Value {
    let read: Option<Value> = content.as_str().and_then(|text| serde_json::from_str(text).ok());
    read.filter(|value| value.is_array() || value.is_object()).unwrap_or(content)
}

//! Tool calls as events. They carry AG-UI's names and members, which the AG-UI face passes through as they are.

use std::collections::BTreeMap;

use capstan_agent::Output;
use serde_json::{Value, json};

use crate::thoughts::make;

/// Tool calls of which pieces arrive, by their index in the answer.
#[derive(Debug, Default)]
pub(crate) struct Tools(BTreeMap<u64, Call>);

#[derive(Debug, Default)]
struct Call {
    id: String,
    arguments: String,
}

impl Tools {
    pub(crate) fn start(&mut self, index: u64, id: &str, name: &str, out: &mut Vec<Output>) {
        self.end(index, out);
        out.extend(make("TOOL_CALL_START", &json!({ "toolCallId": id, "toolCallName": name })));
        self.0.insert(index, Call { id: id.to_owned(), arguments: String::new() });
    }

    pub(crate) fn arguments(&mut self, index: u64, piece: &str) {
        if let Some(call) = self.0.get_mut(&index) {
            call.arguments.push_str(piece);
        }
    }

    pub(crate) fn is_open(&self, index: u64) -> bool {
        self.0.contains_key(&index)
    }

    pub(crate) fn end(&mut self, index: u64, out: &mut Vec<Output>) {
        let Some(call) = self.0.remove(&index) else { return };
        if !call.arguments.is_empty() {
            out.extend(make("TOOL_CALL_ARGS", &json!({ "toolCallId": call.id, "delta": call.arguments })));
        }
        out.extend(make("TOOL_CALL_END", &json!({ "toolCallId": call.id })));
    }

    pub(crate) fn end_all(&mut self, out: &mut Vec<Output>) {
        while let Some(index) = self.0.keys().next().copied() {
            self.end(index, out);
        }
    }
}

/// A call that is known as a whole.
pub(crate) fn whole(id: &str, name: &str, input: &Value, out: &mut Vec<Output>) {
    let mut tools = Tools::default();
    tools.start(0, id, name, out);
    tools.arguments(0, &input.to_string());
    tools.end(0, out);
}

/// What a tool answered.
pub(crate) fn result(id: &str, content: &Value, is_error: bool, out: &mut Vec<Output>) {
    let text = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
    let mut data = json!({ "messageId": format!("{id}:result"), "toolCallId": id, "content": text });
    if let (true, Some(members)) = (is_error, data.as_object_mut()) {
        members.insert("isError".into(), true.into());
    }
    out.extend(make("TOOL_CALL_RESULT", &data));
}

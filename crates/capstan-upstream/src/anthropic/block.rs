//! The content blocks of an answer that are not over yet.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::native::without;

/// An open block.
#[derive(Debug)]
pub(super) enum Block {
    /// Reasoning: its members but for the text, its signature among them.
    Thinking(Map<String, Value>),
    /// Encrypted reasoning, all of it.
    Redacted(Value),
    /// The result of a tool of the provider's own.
    Result(Value),
    /// A call, with the input that its beginning already has.
    Call(Value),
    /// CAP has all of it.
    Known,
    /// A block of a type that CAP does not have.
    Unknown(String),
}

/// The open blocks, and whether the last one was a text.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    open: BTreeMap<u64, Block>,
    was_text: bool,
}

impl Blocks {
    /// Begins a block. Returns true for a text after a text: these are two blocks.
    pub(super) fn begin(&mut self, index: u64, kind: &str, block: &Value) -> bool {
        let follows_text = self.was_text && kind == "text";
        self.was_text = kind == "text";
        let open = match kind {
            "thinking" => Block::Thinking(without(block, &["thinking"])),
            "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                Block::Call(block.get("input").cloned().unwrap_or_default())
            }
            "redacted_thinking" => Block::Redacted(block.clone()),
            "text" => Block::Known,
            kind if kind.ends_with("tool_result") => Block::Result(block.clone()),
            kind => Block::Unknown(kind.to_owned()),
        };
        self.open.insert(index, open);
        follows_text
    }

    /// Adds a piece of a signature.
    pub(super) fn sign(&mut self, index: u64, piece: &str) {
        if let Some(Block::Thinking(block)) = self.open.get_mut(&index) {
            let known = block.get("signature").and_then(Value::as_str).unwrap_or_default();
            let signature = format!("{known}{piece}");
            block.insert("signature".into(), signature.into());
        }
    }

    /// Returns the type of an open block that CAP does not have.
    pub(super) fn unknown(&self, index: u64) -> Option<&str> {
        match self.open.get(&index)? {
            Block::Unknown(kind) => Some(kind),
            Block::Thinking(_)
            | Block::Redacted(_)
            | Block::Result(_)
            | Block::Call(_)
            | Block::Known => None,
        }
    }

    /// The open blocks whose beginning has all of their content.
    pub(super) fn complete(&self) -> Vec<u64> {
        let is_complete = |block: &Block| matches!(block, Block::Redacted(_) | Block::Result(_));
        self.open.iter().filter(|(_, block)| is_complete(block)).map(|(index, _)| *index).collect()
    }

    /// Whether the model thinks, readable or not.
    pub(super) fn has_thinking(&self) -> bool {
        self.open.values().any(|block| matches!(block, Block::Thinking(_) | Block::Redacted(_)))
    }

    pub(super) fn end(&mut self, index: u64) -> Option<Block> {
        self.open.remove(&index)
    }
}

//! An event of Messages on the wire, read without a tree of values.

use serde::Deserialize;

use crate::json_text::Raw;

#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Raw<'a>,
    index: Option<u64>,
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(super) content_block: Raw<'a>,
    #[serde(borrow)]
    pub(super) message: Raw<'a>,
    #[serde(borrow)]
    pub(super) usage: Raw<'a>,
}

#[derive(Deserialize, Default)]
pub(super) struct Delta<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Raw<'a>,
    #[serde(borrow)]
    pub(super) text: Raw<'a>,
    #[serde(borrow)]
    pub(super) thinking: Raw<'a>,
    #[serde(borrow)]
    pub(super) estimated_tokens: Raw<'a>,
    #[serde(borrow)]
    pub(super) partial_json: Raw<'a>,
    #[serde(borrow)]
    pub(super) citation: Raw<'a>,
    #[serde(borrow)]
    pub(super) signature: Raw<'a>,
    #[serde(borrow)]
    pub(super) stop_reason: Raw<'a>,
}

impl Event<'_> {
    pub(super) fn index(&self) -> u64 {
        self.index.unwrap_or(0)
    }
}

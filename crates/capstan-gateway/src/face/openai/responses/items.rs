//! What an answer was asked with, item by item.

use capstan_protocol::{DecodeError, Fault, RawJson, decode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::super::content::TextOr;
use super::object::item_id;
use crate::ask::invalid;

/// A page of the list has this many, unless asked for more or less, and at most so many.
const PAGE: usize = 20;
const MOST: usize = 100;

/// Which page.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct PageParams {
    /// Only what follows this item.
    after: Option<String>,
    /// How many, 20 unless said and 100 at most.
    limit: Option<usize>,
    /// `asc`, or `desc` as it is unless said.
    order: Option<String>,
}

/// A page.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ItemPage {
    object: &'static str,
    #[schemars(with = "Vec<serde_json::Value>")]
    data: Vec<Box<RawValue>>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

impl ItemPage {
    /// Of the request of a run.
    pub(super) fn of(stream: Uuid, body: &[u8], params: &PageParams) -> Result<Self, Fault> {
        #[derive(Deserialize)]
        struct Request {
            input: TextOr<RawJson>,
        }
        let request: Request = decode::from_slice(body).map_err(|error| invalid(&error))?;
        let mut items = inputs(stream, request.input);
        match params.order.as_deref() {
            Some("asc") => {}
            None | Some("desc") => items.reverse(),
            Some(_) => return Err(invalid(&DecodeError::value("order", "must be asc or desc"))),
        }
        if let Some(after) = &params.after {
            let at = items.iter().position(|(id, _)| id == after);
            let at =
                at.ok_or_else(|| invalid(&DecodeError::value("after", "names no item of this response")))?;
            items.drain(..=at);
        }
        let limit = params.limit.unwrap_or(PAGE).clamp(1, MOST);
        let has_more = items.len() > limit;
        items.truncate(limit);
        let id = |item: Option<&(String, String)>| item.map(|(id, _)| id.clone());
        let (first_id, last_id) = (id(items.first()), id(items.last()));
        let data = items.into_iter().filter_map(|(_, item)| RawValue::from_string(item).ok()).collect();
        Ok(Self { object: "list", data, first_id, last_id, has_more })
    }
}

/// The items that an answer was asked with, each with its id.
pub(super) fn inputs(stream: Uuid, input: TextOr<RawJson>) -> Vec<(String, String)> {
    match input {
        TextOr::Text(text) => vec![of_text(stream, &text)],
        TextOr::Many(items) => (0..).zip(&items).map(|(n, item)| with_id(stream, n, item)).collect(),
    }
}

fn of_text(stream: Uuid, text: &str) -> (String, String) {
    let id = item_id("msg", stream, 0);
    let content = [serde_json::json!({ "type": "input_text", "text": text })];
    let item = serde_json::json!({ "id": id, "type": "message", "role": "user", "status": "completed",
        "content": content });
    (id, item.to_string())
}

/// An item as it was sent, with what it lacks put before.
fn with_id(stream: Uuid, n: u64, item: &RawJson) -> (String, String) {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Head {
        id: Option<String>,
        #[serde(rename = "type")]
        kind: Option<String>,
    }
    let head: Head = item.decode().unwrap_or_default();
    let id = head.id.clone().unwrap_or_else(|| item_id("in", stream, n));
    let mut before = String::new();
    if head.id.is_none() {
        before.push_str(&format!("\"id\":\"{id}\","));
    }
    if head.kind.is_none() {
        before.push_str("\"type\":\"message\",");
    }
    let members = item.get().trim_start().strip_prefix('{').unwrap_or("}");
    let comma = if members.trim_start().starts_with('}') { before.trim_end_matches(',') } else { &before };
    (id, format!("{{{comma}{members}"))
}

//! What an answer was asked with, item by item.

use std::collections::BTreeMap;

use capstan_protocol::{DecodeError, Fault, RawJson, decode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

use super::item::item_id;
use crate::text_or::TextOr;
use capstan_engine::ask::invalid;

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
        Self::among(inputs(stream, request.input), params)
    }

    /// Of these, oldest first.
    pub(super) fn among(
        mut items: Vec<(String, String)>,
        params: &PageParams,
    ) -> Result<Self, Fault> {
        match params.order.as_deref() {
            Some("asc") => {}
            None | Some("desc") => items.reverse(),
            Some(_) => return Err(invalid(&DecodeError::value("order", "must be asc or desc"))),
        }
        if let Some(after) = &params.after {
            let at = items.iter().position(|(id, _)| id == after);
            let at =
                at.ok_or_else(|| invalid(&DecodeError::value("after", "names no item of it")))?;
            items.drain(..=at);
        }
        let limit = params.limit.unwrap_or(PAGE).clamp(1, MOST);
        let has_more = items.len() > limit;
        items.truncate(limit);
        let id = |item: Option<&(String, String)>| item.map(|(id, _)| id.clone());
        let (first_id, last_id) = (id(items.first()), id(items.last()));
        let data =
            items.into_iter().filter_map(|(_, item)| RawValue::from_string(item).ok()).collect();
        Ok(Self { object: "list", data, first_id, last_id, has_more })
    }
}

/// The items that an answer was asked with, each with its id.
pub(super) fn inputs(stream: Uuid, input: TextOr<RawJson>) -> Vec<(String, String)> {
    match input {
        TextOr::Text(text) => vec![of_text(stream, &text)],
        TextOr::Many(items) => {
            (0..).zip(&items).map(|(n, item)| with_id(stream, n, item)).collect()
        }
    }
}

fn of_text(stream: Uuid, text: &str) -> (String, String) {
    let id = item_id("msg", stream, 0);
    let content = [json!({ "type": "input_text", "text": text })];
    let item = json!({ "id": id, "type": "message", "role": "user", "status": "completed",
        "content": content });
    (id, item.to_string())
}

/// An item as it was sent, with what it lacks. A message's content is a list, whichever way it
/// came.
fn with_id(stream: Uuid, n: u64, item: &RawJson) -> (String, String) {
    let mut members: BTreeMap<String, Value> = item.decode().unwrap_or_default();
    let word = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
    let (id, role) = (word("id").unwrap_or_else(|| item_id("in", stream, n)), word("role"));
    members.insert("id".into(), id.clone().into());
    let kind = members.entry("type".into()).or_insert_with(|| "message".into());
    if kind == "message" {
        if let Some(text) = members.get("content").and_then(Value::as_str) {
            let kind =
                if role.as_deref() == Some("assistant") { "output_text" } else { "input_text" };
            let content = json!([{ "type": kind, "text": text }]);
            members.insert("content".into(), content);
        }
        members.entry("status".into()).or_insert_with(|| "completed".into());
    }
    (id, serde_json::to_string(&members).unwrap_or_default())
}

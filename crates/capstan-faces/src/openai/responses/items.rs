//! The input items of a response, in pages.

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

/// The default and the largest number of items on a page.
const PAGE: usize = 20;
const MOST: usize = 100;

/// The parameters of a page.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct PageParams {
    /// Only items after this one.
    after: Option<String>,
    /// The number of items: 20 by default, 100 at most.
    limit: Option<usize>,
    /// `asc` or `desc`, which is the default.
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
    /// A page of a run's input items.
    pub(super) fn of(stream: Uuid, body: &[u8], params: &PageParams) -> Result<Self, Fault> {
        #[derive(Deserialize)]
        struct Request {
            input: TextOr<RawJson>,
        }
        let request: Request = decode::from_slice(body).map_err(|error| invalid(&error))?;
        Self::among(inputs(stream, request.input), params)
    }

    /// A page of these items, which are sorted oldest first.
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

/// The input items of a response, each with its id.
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

/// An item of a request, with an id and other members that it lacks. The content of a message
/// becomes a list.
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

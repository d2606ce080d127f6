//! The items of a response as JSON, in the gateway's own form or in the provider's.

use std::borrow::Cow;
use std::collections::BTreeMap;

use capstan_agent::sealed::{self, Sealer};
use capstan_protocol::NativePart;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::super::output::Offered;
use super::super::parameters::INPUT;
use super::answer::{Answer, Entry, What};

/// The data on which the form of an item depends.
#[derive(Clone, Copy)]
pub(super) struct ItemForm<'a> {
    /// The tools that the request offers.
    pub(super) offered: &'a Offered,
    /// Seals reasoning that another agent could get in the next turn.
    pub(super) sealer: Option<&'a Sealer>,
}

/// An item of a response.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Item<'a> {
    Message {
        id: String,
        status: &'static str,
        role: &'static str,
        content: Vec<TextPart<'a>>,
    },
    Reasoning {
        id: String,
        summary: Vec<Summary<'a>>,
    },
    FunctionCall {
        id: String,
        status: &'static str,
        call_id: &'a str,
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<&'a str>,
        arguments: &'a str,
    },
    CustomToolCall {
        id: String,
        status: &'static str,
        call_id: &'a str,
        name: &'a str,
        input: Cow<'a, str>,
    },
    /// An item in the provider's form.
    #[serde(untagged)]
    Native(Map<String, Value>),
}

impl Item<'_> {
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Message { id, .. }
            | Self::Reasoning { id, .. }
            | Self::FunctionCall { id, .. }
            | Self::CustomToolCall { id, .. } => id,
            Self::Native(members) => members.get("id").and_then(Value::as_str).unwrap_or_default(),
        }
    }
}

/// A text with its sources.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TextPart<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
    annotations: Vec<&'a Value>,
    logprobs: &'a Value,
    /// Members that only the provider knows.
    #[serde(flatten)]
    more: BTreeMap<&'a str, &'a Value>,
}

/// No probabilities of tokens.
pub(super) static NO_LOGPROBS: Value = Value::Array(Vec::new());

impl<'a> TextPart<'a> {
    /// A part without text yet.
    pub(super) fn empty() -> Self {
        let (annotations, more) = (Vec::new(), BTreeMap::new());
        Self { kind: "output_text", text: "", annotations, logprobs: &NO_LOGPROBS, more }
    }

    pub(super) fn of(entry: &'a Entry) -> Self {
        let more = entry.part_members.iter().filter(|(name, _)| *name != "logprobs");
        Self {
            text: &entry.text,
            annotations: entry.sources().collect(),
            logprobs: entry.part_members.get("logprobs").unwrap_or(&NO_LOGPROBS),
            more: more.map(|(name, value)| (name.as_str(), value)).collect(),
            ..Self::empty()
        }
    }

    pub(super) fn logprobs(&self) -> &'a Value {
        self.logprobs
    }
}

/// A part of a summary of reasoning.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Summary<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

impl<'a> Summary<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { kind: "summary_text", text }
    }
}

/// All items in the order of their indices: first the ones in a stream, as they began. Then the
/// calls of other tools, because only the end shows that the agent has not answered them.
pub(super) fn items<'a>(
    stream: Uuid,
    answer: &'a Answer,
    form: ItemForm<'a>,
    status: &'static str,
) -> Vec<Item<'a>> {
    let all = answer.items.iter();
    let early = all.clone().filter(|entry| is_streamed(entry, form.offered));
    let late = all.filter(|entry| is_late(entry, form.offered));
    early.chain(late).map(|entry| item(stream, entry, form, status)).collect()
}

/// Whether the stream has an item from its beginning. A call is such an item if the request offers
/// its tool.
pub(super) fn is_streamed(entry: &Entry, offered: &Offered) -> bool {
    match &entry.what {
        What::Call { name, is_question, .. } => {
            !is_question && (offered.has(name) || !entry.native.is_empty())
        }
        What::Message | What::Reasoning | What::Native => true,
    }
}

/// Whether an item is a complete call that the agent has not answered, of a tool that the request
/// does not offer.
pub(super) fn is_late(entry: &Entry, offered: &Offered) -> bool {
    let is_open = matches!(entry.what, What::Call { is_answered: false, .. });
    is_open && entry.is_complete() && !is_streamed(entry, offered)
}

/// An item in a response of this status.
pub(super) fn item<'a>(
    stream: Uuid,
    entry: &'a Entry,
    form: ItemForm<'a>,
    status: &'static str,
) -> Item<'a> {
    let item = known_item(stream, entry, form, status);
    if entry.end_members.is_empty() {
        return item;
    }
    let Ok(Value::Object(mut members)) = serde_json::to_value(&item) else { return item };
    members.extend(entry.end_members.clone());
    Item::Native(members)
}

/// The item without the members that only its end has.
fn known_item<'a>(
    stream: Uuid,
    entry: &'a Entry,
    form: ItemForm<'a>,
    status: &'static str,
) -> Item<'a> {
    let status = status_of(entry, status);
    match &entry.what {
        What::Message => message(stream, entry, status),
        What::Reasoning => reasoning(stream, entry, form.sealer),
        What::Call { id, name, .. } => {
            call(Place { stream, entry, status }, id, name, form.offered)
        }
        What::Native => Item::Native(entry.native.members.clone()),
    }
}

fn status_of(entry: &Entry, status: &'static str) -> &'static str {
    let is_call = matches!(entry.what, What::Call { .. });
    let is_over = entry.is_done() || status == "completed";
    match status {
        _ if is_over && (!is_call || entry.is_complete()) => "completed",
        "completed" => "incomplete",
        status => status,
    }
}

fn message<'a>(stream: Uuid, entry: &'a Entry, status: &'static str) -> Item<'a> {
    let id = id_of_entry("msg", stream, entry);
    // While the message is open, the stream has its parts one by one.
    let is_begun = !entry.text.is_empty() || entry.sources().next().is_some();
    let content = if is_begun { vec![TextPart::of(entry)] } else { Vec::new() };
    if entry.native.is_empty() {
        return Item::Message { id, status, role: "assistant", content };
    }
    let mut members = entry.native.members.clone();
    members.insert("id".into(), id.into());
    members.insert("status".into(), status.into());
    members.insert("content".into(), serde_json::to_value(content).unwrap_or_default());
    Item::Native(members)
}

fn reasoning<'a>(stream: Uuid, entry: &'a Entry, sealer: Option<&Sealer>) -> Item<'a> {
    if entry.native.is_empty() {
        let parts = entry.thoughts.texts(&entry.text);
        let summary = parts.map(|(_, text)| Summary::new(text)).collect();
        return Item::Reasoning { id: item_id("rs", stream, entry.seq), summary };
    }
    let mut members = Value::Object(entry.native.members.clone());
    let place = entry.native.text_at.as_deref().and_then(|at| members.pointer_mut(at));
    if let Some(place) = place {
        *place = entry.text.as_str().into();
    }
    if let Some(sealed) = sealer.and_then(|sealer| sealed_by_maker(entry, &members, sealer)) {
        members = sealed;
    }
    let Value::Object(mut members) = members else { return Item::Native(Map::new()) };
    members.insert("id".into(), id_of_entry("rs", stream, entry).into());
    if !entry.native.is_whole {
        add_thoughts(entry, &mut members);
    }
    Item::Native(members)
}

/// A reasoning item of OpenAI that another agent could get in the next turn: sealed, and without
/// its id, which that agent would not know.
fn sealed_by_maker(entry: &Entry, item: &Value, sealer: &Sealer) -> Option<Value> {
    let origin = entry.native.origin.clone().filter(|origin| sealer.seals(origin))?;
    let (part, text_at, text) = (item.clone().into(), None, String::new());
    let sealed = sealed::seal(&NativePart { origin, part, text_at, text });
    let mut item = item.clone();
    item.as_object_mut()?.insert("encrypted_content".into(), sealed.into());
    Some(item)
}

/// Adds the thoughts of an item whose complete form has not come.
fn add_thoughts(entry: &Entry, members: &mut Map<String, Value>) {
    for (part, text) in entry.thoughts.texts(&entry.text) {
        let (name, kind) = match part.is_summary() {
            true => ("summary", "summary_text"),
            false => ("content", "reasoning_text"),
        };
        let parts = members.entry(name).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(parts) = parts {
            parts.push(json!({ "type": kind, "text": text }));
        }
    }
}

/// A call and its status.
struct Place<'a> {
    stream: Uuid,
    entry: &'a Entry,
    status: &'static str,
}

fn call<'a>(place: Place<'a>, call_id: &'a str, name: &'a str, offered: &'a Offered) -> Item<'a> {
    let Place { stream, entry, status } = place;
    if !entry.native.is_empty() {
        let is_custom = entry.native.word("type") == "custom_tool_call";
        let mut members = entry.native.members.clone();
        let prefix = if is_custom { "ctc" } else { "fc" };
        members.insert("id".into(), id_of_entry(prefix, stream, entry).into());
        members.insert("status".into(), status.into());
        members.insert("call_id".into(), call_id.into());
        let input = if is_custom { "input" } else { "arguments" };
        members.insert(input.into(), entry.text.as_str().into());
        return Item::Native(members);
    }
    let tool = offered.tool(name);
    let name = tool.map_or(name, |tool| &tool.name);
    if tool.is_some_and(|tool| tool.is_free_text) {
        let (id, input) = (item_id("ctc", stream, entry.seq), free_text(&entry.text));
        return Item::CustomToolCall { id, status, call_id, name, input };
    }
    let namespace = tool.and_then(|tool| tool.namespace.as_deref());
    let (id, arguments) = (item_id("fc", stream, entry.seq), entry.text.as_str());
    Item::FunctionCall { id, status, call_id, name, namespace, arguments }
}

/// The text for a free-text tool, out of the arguments of the function that replaced the tool.
fn free_text(arguments: &str) -> Cow<'_, str> {
    let members: Option<Map<String, Value>> = serde_json::from_str(arguments).ok();
    match members.and_then(|mut members| members.remove(INPUT)) {
        Some(Value::String(input)) => input.into(),
        Some(_) | None => arguments.into(),
    }
}

/// The id of an item in its response.
pub(super) fn entry_id(stream: Uuid, entry: &Entry, offered: &Offered) -> String {
    let kind = match &entry.what {
        What::Message => "msg",
        What::Reasoning => "rs",
        What::Call { name, .. } => {
            let is_custom = entry.native.word("type") == "custom_tool_call";
            let is_free_text = offered.tool(name).is_some_and(|tool| tool.is_free_text);
            if is_custom || is_free_text { "ctc" } else { "fc" }
        }
        What::Native => "item",
    };
    id_of_entry(kind, stream, entry)
}

/// The provider's id, or the gateway's.
fn id_of_entry(kind: &str, stream: Uuid, entry: &Entry) -> String {
    let own = Some(entry.native.word("id")).filter(|id| !id.is_empty());
    own.map_or_else(|| item_id(kind, stream, entry.seq), str::to_owned)
}

/// An id made of the packet that began the item, so that it is the same in every answer.
pub(super) fn item_id(kind: &str, stream: Uuid, seq: u64) -> String {
    format!("{kind}_{}_{seq}", stream.simple())
}

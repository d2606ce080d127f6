//! An event of a Responses stream, read without a tree.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::json_text::Raw;

/// The members of an event as they stand on the wire.
#[derive(Debug, Default)]
pub(super) struct Event<'a> {
    pub(super) kind: Raw<'a>,
    pub(super) sequence_number: Option<u64>,
    pub(super) output_index: Option<u64>,
    /// The part of a reasoning item to which a delta belongs.
    pub(super) part_index: Option<u64>,
    pub(super) delta: Raw<'a>,
    pub(super) item: Raw<'a>,
    pub(super) response: Raw<'a>,
    pub(super) annotation: Raw<'a>,
    /// Members that only a client of the same protocol understands.
    others: Vec<(Cow<'a, str>, Raw<'a>)>,
}

impl Event<'_> {
    /// The members that only a client of the same protocol understands, without empty ones.
    pub(super) fn others(&self) -> Map<String, Value> {
        let members = self.others.iter().filter_map(|(name, raw)| Some((name, (*raw)?.get())));
        let members = members.filter(|(_, json)| !matches!(*json, "[]" | "{}"));
        members
            .filter_map(|(name, json)| Some((name.to_string(), serde_json::from_str(json).ok()?)))
            .collect()
    }
}

/// The name of a member.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Event<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Event<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Event<'de>, A::Error> {
                let mut event = Event::default();
                while let Some(Name(name)) = members.next_key()? {
                    match &*name {
                        "type" => event.kind = members.next_value()?,
                        "sequence_number" => event.sequence_number = members.next_value()?,
                        "output_index" => event.output_index = members.next_value()?,
                        "summary_index" => event.part_index = members.next_value()?,
                        "content_index" => event.part_index = members.next_value()?,
                        "delta" => event.delta = members.next_value()?,
                        "item" => event.item = members.next_value()?,
                        "response" => event.response = members.next_value()?,
                        "annotation" => event.annotation = members.next_value()?,
                        "item_id" | "obfuscation" => drop(members.next_value::<IgnoredAny>()?),
                        _ => event.others.push((name, members.next_value()?)),
                    }
                }
                Ok(event)
            }
        }
        deserializer.deserialize_map(Members)
    }
}

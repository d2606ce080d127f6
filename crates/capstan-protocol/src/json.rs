//! JSON that stays the text in which it arrived: event payloads, free-form bodies, state.
//!
//! The text preserves every number and unknown member exactly, and a replay can copy bytes.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::decode::{self, DecodeError, MAX_DEPTH, check};

/// A JSON object as text: valid, at most [`MAX_DEPTH`] deep, without a line break outside of
/// strings.
#[derive(Clone)]
pub struct RawObject(Text);

#[derive(Clone)]
enum Text {
    /// serde_json has checked it.
    Raw(Box<RawValue>),
    /// Its owner has checked it. serde_json checks it again if somebody serialises it.
    Checked(Box<str>),
}

impl Text {
    fn into_raw(self) -> Result<Box<RawValue>, serde_json::Error> {
        match self {
            Self::Raw(raw) => Ok(raw),
            Self::Checked(text) => RawValue::from_string(text.into()),
        }
    }
}

impl RawObject {
    /// Reads an object from JSON text.
    pub fn parse(text: &str) -> Result<Self, DecodeError> {
        Self::from_raw(decode::from_str::<Box<RawValue>>(text)?)
    }

    /// Takes over text that serde_json has already found to be one JSON value.
    pub fn from_raw(raw: Box<RawValue>) -> Result<Self, DecodeError> {
        Self::from_raw_within(raw, MAX_DEPTH)
    }

    pub(crate) fn from_raw_within(raw: Box<RawValue>, depth: usize) -> Result<Self, DecodeError> {
        let text = raw.get();
        check_is_object(text)?;
        if check(text, depth)?.is_compact {
            return Ok(Self(Text::Raw(raw)));
        }
        RawValue::from_string(compact(text))
            .map(|raw| Self(Text::Raw(raw)))
            .map_err(|e| DecodeError::value("", e.to_string()))
    }

    /// Copies text that the caller has checked already: one JSON value of less than [`MAX_DEPTH`]
    /// levels whose strings have no lone surrogates. Nothing is parsed here.
    pub fn from_checked(text: &str) -> Result<Self, DecodeError> {
        let text = text.trim_ascii();
        check_is_object(text)?;
        // A valid text has line breaks between tokens only.
        let is_compact = memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_none();
        let text = if is_compact { text.into() } else { compact(text).into() };
        Ok(Self(Text::Checked(text)))
    }

    /// Serialises a value that becomes a JSON object.
    pub fn from_serialize(value: &impl Serialize) -> Result<Self, DecodeError> {
        let raw = serde_json::value::to_raw_value(value)
            .map_err(|e| DecodeError::value("", e.to_string()))?;
        Self::from_raw(raw)
    }

    /// The text, on one line.
    pub fn get(&self) -> &str {
        match &self.0 {
            Text::Raw(raw) => raw.get(),
            Text::Checked(text) => text,
        }
    }

    /// Decodes the object into a type of the caller's.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        decode::from_str(self.get())
    }

    /// The object as a tree of values; large numbers lose precision here, not in [`Self::get`].
    /// Empty if a number is too large for any tree, such as `1e999`.
    pub fn to_map(&self) -> Map<String, Value> {
        self.tree().unwrap_or_default()
    }

    fn tree(&self) -> Option<Map<String, Value>> {
        let mut reader = serde_json::Deserializer::from_str(self.get());
        // The text's depth was checked at its arrival, and serde_json's own limit is one level
        // lower.
        reader.disable_recursion_limit();
        Map::deserialize(&mut reader).ok()
    }
}

/// The empty object.
impl Default for RawObject {
    fn default() -> Self {
        Self(Text::Checked("{}".into()))
    }
}

impl std::fmt::Debug for RawObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.get())
    }
}

impl PartialEq for RawObject {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get() || self.tree().is_some_and(|tree| other.tree() == Some(tree))
    }
}

impl Serialize for RawObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Text::Raw(raw) => raw.serialize(serializer),
            Text::Checked(text) => {
                let raw: &RawValue = serde_json::from_str(text).map_err(S::Error::custom)?;
                raw.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_raw(raw).map_err(decode::nested)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for RawObject {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Object".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "object", "additionalProperties": true })
    }
}

/// Any JSON value as text, for what is only passed on: a tool's schema, an agent's state.
///
/// Like every raw text it cannot be read inside of an enum with serde's `tag`, because serde has
/// taken those apart by then. Clones share the text.
#[derive(Clone)]
pub struct RawJson(Arc<RawValue>);

impl RawJson {
    /// Serialises a value.
    pub fn from_serialize(value: &impl Serialize) -> Result<Self, DecodeError> {
        let raw = serde_json::value::to_raw_value(value);
        raw.map(|raw| Self(raw.into())).map_err(|e| DecodeError::value("", e.to_string()))
    }

    /// The text.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Decodes the value into a type of the caller's.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        decode::from_str(self.get())
    }

    /// The value as a tree; null if a number is too large for any tree.
    pub fn to_value(&self) -> Value {
        serde_json::from_str(self.get()).unwrap_or_default()
    }
}

impl From<RawObject> for RawJson {
    fn from(object: RawObject) -> Self {
        let raw = object.0.into_raw().unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self(raw.into())
    }
}

impl From<Value> for RawJson {
    fn from(value: Value) -> Self {
        // A tree can always be written.
        Self::from_serialize(&value).unwrap_or_else(|_| Self(RawValue::NULL.to_owned().into()))
    }
}

impl std::fmt::Debug for RawJson {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.get())
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get() || self.to_value() == other.to_value()
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        check(raw.get(), MAX_DEPTH).map_err(decode::nested)?;
        Ok(Self(raw.into()))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for RawJson {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Any".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        true.into()
    }
}

fn check_is_object(text: &str) -> Result<(), DecodeError> {
    if text.starts_with('{') {
        return Ok(());
    }
    Err(DecodeError::value("", format!("expected an object, found {}", kind_of(text))))
}

/// The JSON type of a value's text, as our error messages name it.
pub(crate) fn kind_of(text: &str) -> &'static str {
    match text.trim_start().as_bytes().first() {
        Some(b'"') => "a string",
        Some(b'[') => "an array",
        Some(b'{') => "an object",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

/// Drops white space between tokens.
fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if c == '"' {
            in_string = true;
        } else if c.is_ascii_whitespace() {
            continue;
        }
        out.push(c);
    }
    out
}

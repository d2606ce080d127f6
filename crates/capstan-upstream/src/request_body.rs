//! The body of a request to a provider: its members in order, each as JSON text.
//!
//! The client's members are copied as text. Nothing is parsed and written again, so that numbers,
//! the order of a schema's properties, and unknown members stay unchanged.

use std::fmt;

use bytes::Bytes;
use capstan_protocol::RawObject;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// A value as JSON text.
pub(crate) type Raw = Box<RawValue>;

/// Encodes a value. The gateway's own values can always be encoded.
pub(crate) fn raw(value: &impl Serialize) -> Raw {
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Members in order.
#[derive(Default)]
pub(crate) struct RequestBody(Vec<(String, Raw)>);

impl RequestBody {
    /// Sets a member. An earlier one with this name is replaced in its place.
    pub(crate) fn set(&mut self, name: &str, value: &impl Serialize) {
        self.put(name, raw(value));
    }

    /// Sets a member to JSON text.
    pub(crate) fn put(&mut self, name: &str, value: Raw) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// Sets all members of another body.
    pub(crate) fn extend(&mut self, other: Self) {
        other.0.into_iter().for_each(|(name, value)| self.put(&name, value));
    }

    pub(crate) fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Decodes a member. `None` if it does not exist or has another type.
    pub(crate) fn read<'a, T: Deserialize<'a>>(&'a self, name: &str) -> Option<T> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// Removes a member.
    pub(crate) fn take(&mut self, name: &str) -> Option<Raw> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    /// The names of the members.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The elements of a member that is a list; empty if it is no list.
    pub(crate) fn list(&self, name: &str) -> Vec<Raw> {
        self.read::<Vec<&RawValue>>(name)
            .map(|items| items.into_iter().map(ToOwned::to_owned).collect())
            .unwrap_or_default()
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        serde_json::to_vec(self).map(Bytes::from).unwrap_or_default()
    }
}

impl From<&RawObject> for RequestBody {
    fn from(object: &RawObject) -> Self {
        serde_json::from_str(object.get()).unwrap_or_default()
    }
}

/// A value that is no object has no members.
impl From<Value> for RequestBody {
    fn from(value: Value) -> Self {
        let Value::Object(members) = value else { return Self::default() };
        Self(members.iter().map(|(name, value)| (name.clone(), raw(value))).collect())
    }
}

impl Serialize for RequestBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            members.serialize_entry(name, value)?;
        }
        members.end()
    }
}

impl<'de> Deserialize<'de> for RequestBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = RequestBody;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<RequestBody, A::Error> {
                let mut body = RequestBody::default();
                while let Some((name, value)) = members.next_entry::<String, Raw>()? {
                    body.put(&name, value);
                }
                Ok(body)
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_client_wrote_stays_as_it_came() {
        let text = r#"{"z":1.50,"a":[ 1,2 ],"z":{"y":1,"x":2}}"#;
        let mut body = RequestBody::from(&RawObject::parse(text).unwrap());
        body.set("m", &json!("ours"));
        assert_eq!(body.list("a").len(), 2);
        assert_eq!(body.to_bytes(), r#"{"z":{"y":1,"x":2},"a":[ 1,2 ],"m":"ours"}"#);
        assert_eq!(body.take("z").unwrap().get(), r#"{"y":1,"x":2}"#);
        assert_eq!(body.names().collect::<Vec<_>>(), ["a", "m"]);
    }
}

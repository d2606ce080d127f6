//! The hash that identifies a repeated request. A body that is still text is hashed in one pass,
//! without a tree in memory.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use sha2::{Digest as _, Sha256};

/// Hashes the JSON value, the agent in the path, and the face. Headers, whitespace and the order of
/// members do not count. Every run stores its hash, so the result for a given body must never
/// change.
pub fn body_hash(body: &[u8], agent: Option<&str>, face: &str) -> [u8; 32] {
    match canonical(body) {
        Ok(text) => hash_of(&text, agent, face),
        // A body that serde_json cannot hold, for example a number out of range, is hashed byte by
        // byte.
        Err(_) => hash_of(body, agent, face),
    }
}

/// The hash of a JSON object that was decoded already, for faces that ignore some of its members.
/// It equals [`body_hash`] of the object's text.
pub fn decoded_body_hash(
    members: &Map<String, Value>,
    agent: Option<&str>,
    face: &str,
) -> [u8; 32] {
    let mut text = Vec::new();
    // A decoded value has a canonical form, because every number in it is finite.
    let _ = Canonical(&mut text).deserialize(members);
    hash_of(&text, agent, face)
}

fn hash_of(text: &[u8], agent: Option<&str>, face: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(text);
    for part in [agent.unwrap_or_default(), face] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// The canonical form of a JSON value: members sorted by name, each value after a byte for its
/// type.
fn canonical(body: &[u8]) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(body.len());
    let mut reader = serde_json::Deserializer::from_slice(body);
    Canonical(&mut out).deserialize(&mut reader)?;
    reader.end()?;
    Ok(out)
}

/// Appends the canonical form of a value.
struct Canonical<'a>(&'a mut Vec<u8>);

impl Canonical<'_> {
    fn text(&mut self, mark: u8, text: &str) {
        self.0.push(mark);
        self.0.extend_from_slice(&(text.len() as u64).to_be_bytes());
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Begins a value whose length is not known yet. Returns the offset of its length field.
    fn begin(&mut self, mark: u8) -> usize {
        self.0.push(mark);
        let at = self.0.len();
        self.0.extend_from_slice(&[0; 8]);
        at
    }

    fn set_length(&mut self, at: usize, length: usize) {
        if let Some(place) = self.0.get_mut(at..at + 8) {
            place.copy_from_slice(&(length as u64).to_be_bytes());
        }
    }

    /// Sorts the members, which are at the end of the buffer, by name. Of two members with the same
    /// name the later one counts.
    fn sort(&mut self, mut members: Vec<Member>) -> usize {
        if members.is_sorted_by(|a, b| a.name < b.name) {
            return members.len();
        }
        let first = members.first().map_or(0, |member| member.start);
        let read = self.0.split_off(first);
        members.sort_by(|a, b| a.name.cmp(&b.name).then(b.start.cmp(&a.start)));
        members.dedup_by(|later, first| later.name == first.name);
        for member in &members {
            let text = read.get(member.start - first..member.end - first);
            self.0.extend_from_slice(text.unwrap_or_default());
        }
        members.len()
    }
}

/// The range of a member in the buffer.
struct Member {
    name: String,
    start: usize,
    end: usize,
}

impl<'de> DeserializeSeed<'de> for Canonical<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Canonical<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.push(b'n');
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.0.push(if value { b't' } else { b'f' });
        Ok(())
    }

    fn visit_u64<E: Error>(mut self, value: u64) -> Result<(), E> {
        self.text(b'#', &Number::from(value).to_string());
        Ok(())
    }

    fn visit_i64<E: Error>(mut self, value: i64) -> Result<(), E> {
        self.text(b'#', &Number::from(value).to_string());
        Ok(())
    }

    fn visit_f64<E: Error>(mut self, value: f64) -> Result<(), E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("not a number"))?;
        self.text(b'#', &number.to_string());
        Ok(())
    }

    fn visit_str<E: Error>(mut self, value: &str) -> Result<(), E> {
        self.text(b'"', value);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let (at, mut length) = (self.begin(b'['), 0);
        while items.next_element_seed(Canonical(self.0))?.is_some() {
            length += 1;
        }
        self.set_length(at, length);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let (at, mut members) = (self.begin(b'{'), Vec::new());
        while let Some(name) = map.next_key::<String>()? {
            let start = self.0.len();
            self.text(b':', &name);
            map.next_value_seed(Canonical(self.0))?;
            members.push(Member { name, start, end: self.0.len() });
        }
        let length = self.sort(members);
        self.set_length(at, length);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(text: &str) -> [u8; 32] {
        body_hash(text.as_bytes(), None, "cap")
    }

    #[test]
    fn equal_values_have_equal_hashes_whatever_their_spacing_and_order() {
        assert_eq!(hash(r#"{"a":1,"b":[1,2]}"#), hash("{ \"b\": [1, 2],\n \"a\": 1 }"));
        for other in
            [r#"{"a":1,"b":[2,1]}"#, r#"{"a":"1","b":[1,2]}"#, r#"{"a":1,"b":[1,2],"c":null}"#]
        {
            assert_ne!(hash(r#"{"a":1,"b":[1,2]}"#), hash(other));
        }
        assert_ne!(body_hash(b"{}", Some("x"), "cap"), body_hash(b"{}", None, "cap"));
        assert_ne!(body_hash(b"{}", None, "ag-ui"), body_hash(b"{}", None, "cap"));
    }

    #[test]
    fn what_no_tree_can_hold_has_a_hash_of_its_own() {
        assert_ne!(hash(r#"{"a":1e999}"#), hash(r#"{"a":2e999}"#));
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert_ne!(hash(&deep(1000)), hash(&deep(1001)));
    }

    /// The hash as it was first computed, from a tree. A client that returns after an upgrade must
    /// find its run, so the result may not change.
    fn hash_of_tree(out: &mut Vec<u8>, value: &Value) {
        let text = |out: &mut Vec<u8>, mark: u8, text: &str| {
            out.push(mark);
            out.extend((text.len() as u64).to_be_bytes());
            out.extend(text.as_bytes());
        };
        match value {
            Value::Null => out.push(b'n'),
            Value::Bool(b) => out.push(if *b { b't' } else { b'f' }),
            Value::Number(n) => text(out, b'#', &n.to_string()),
            Value::String(s) => text(out, b'"', s),
            Value::Array(items) => {
                out.push(b'[');
                out.extend((items.len() as u64).to_be_bytes());
                items.iter().for_each(|item| hash_of_tree(out, item));
            }
            Value::Object(members) => {
                out.push(b'{');
                out.extend((members.len() as u64).to_be_bytes());
                let mut names: Vec<&String> = members.keys().collect();
                names.sort();
                for name in names {
                    text(out, b':', name);
                    hash_of_tree(out, &members[name]);
                }
            }
        }
    }

    #[test]
    fn stored_hashes_stay_what_they_were() {
        for text in [
            "null",
            r#"{"b":{"z":1,"a":[true,false,null]},"a":-0.0,"é":"\u00e9\n","":1.5e300,"aa":-7}"#,
            r#"{"b":1,"a":2,"b":{"y":3,"x":[]},"c":18446744073709551615,"d":1e20,"e":123456789012345678901234567890}"#,
            r#"[{"a":{}},{"a":{}},{},[],[[]],"\ud83d\ude00",-0,0.1,1E2]"#,
        ] {
            let mut expected = Vec::new();
            hash_of_tree(&mut expected, &serde_json::from_str(text).unwrap());
            assert_eq!(canonical(text.as_bytes()).unwrap(), expected, "{text}");
            if let Ok(members) = serde_json::from_str(text) {
                let decoded = decoded_body_hash(&members, Some("a"), "cap");
                assert_eq!(decoded, body_hash(text.as_bytes(), Some("a"), "cap"), "{text}");
            }
        }
    }
}

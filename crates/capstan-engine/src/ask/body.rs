//! The body of a request. One pass counts its values, checks that it is JSON, and hashes it.
//! Another pass makes the typed request of a face. Nothing else reads the bytes.

use bytes::Bytes;
use capstan_protocol::{DecodeError, Fault, FaultKind, RawObject, decode};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::canonical::{Canonical, finish};
use super::invalid;

/// A body whose bytes were checked and hashed.
#[derive(Clone)]
pub struct RequestBody {
    bytes: Bytes,
    /// The digest of the value as the client sent it, without agent and face.
    digest: Sha256,
    /// The bytes are JSON of a form that serde_json can hold.
    is_json: bool,
}

impl RequestBody {
    /// Reads a posted body. Refuses one with more than `most` JSON values, because parsed values
    /// take far more memory than text. A body that is not JSON is refused later, with the place.
    pub fn read(bytes: Bytes, most: usize) -> Result<Self, Fault> {
        let form = std::str::from_utf8(&bytes).ok().and_then(|text| Canonical::of_text(text, most));
        if form.is_none() && count_up_to(&bytes, most) > most {
            return Err(Fault::new(FaultKind::PayloadTooLarge)
                .with_message(format!("The request holds more than {most} JSON values.")));
        }
        Ok(Self::of_form(bytes, form.as_ref()))
    }

    /// A body that serde_json cannot hold, for example with a number out of range, is hashed byte
    /// by byte.
    fn of_form(bytes: Bytes, form: Option<&Canonical>) -> Self {
        let digest = form.map_or_else(|| Sha256::new_with_prefix(&bytes), Canonical::digest);
        Self { bytes, digest, is_json: form.is_some() }
    }

    /// The bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The number of bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Hashes the JSON value that the client sent, the agent in the path, and the face. Headers,
    /// whitespace and the order of members do not count.
    pub fn hash(&self, agent: Option<&str>, face: &str) -> [u8; 32] {
        finish(self.digest.clone(), agent, face)
    }

    /// Decodes the body strictly into the typed request of a face.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        decode::from_slice(&self.bytes).map_err(|error| invalid(&error))
    }

    /// [`Self::decode`] without the reason of a refusal, which takes a second pass to find. For
    /// faces that try several models.
    pub fn try_decode<T: DeserializeOwned>(&self) -> Option<T> {
        decode::try_from_slice(&self.bytes)
    }

    /// The body as the text of an object. Nothing is parsed if the body is JSON.
    pub fn object(&self) -> Result<RawObject, Fault> {
        let object = match std::str::from_utf8(&self.bytes) {
            Ok(text) if self.is_json => RawObject::from_checked(text),
            Ok(_) | Err(_) => decode::from_slice(&self.bytes),
        };
        object.map_err(|error: DecodeError| invalid(&error))
    }

    /// Puts members before those of the object. Of equal names the object's own count. The hash
    /// stays that of the body as the client sent it. Any other body is returned unchanged.
    #[must_use]
    pub fn with_members(&self, members: Map<String, Value>) -> Self {
        let bytes = spliced(&self.bytes, members).unwrap_or_else(|| self.bytes.clone());
        Self { bytes, ..self.clone() }
    }
}

/// A stored body, or one that a face has composed.
impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        let text = std::str::from_utf8(&bytes).ok();
        let form = text.and_then(|text| Canonical::of_text(text, usize::MAX));
        Self::of_form(bytes, form.as_ref())
    }
}

impl From<Value> for RequestBody {
    fn from(value: Value) -> Self {
        Bytes::from(value.to_string()).into()
    }
}

fn spliced(bytes: &Bytes, members: Map<String, Value>) -> Option<Bytes> {
    let rest = bytes.trim_ascii_start().strip_prefix(b"{")?;
    if members.is_empty() || !rest.trim_ascii_start().starts_with(b"\"") {
        return None;
    }
    let head = Value::Object(members).to_string();
    let head = head.strip_suffix('}')?.as_bytes();
    Some([head, b",", rest].concat().into())
}

/// Counts the values of a body that is no JSON of a known form, as [`Canonical`] counts those of
/// the others. Stops at `most + 1`.
fn count_up_to(body: &[u8], most: usize) -> usize {
    let (mut values, mut is_text, mut is_escaped) = (1_usize, false, false);
    for byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'{' | b'[' | b',' if !is_text => {
                values += 1;
                if values > most {
                    break;
                }
            }
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body(text: &str) -> RequestBody {
        Bytes::copy_from_slice(text.as_bytes()).into()
    }

    fn hash(text: &str) -> [u8; 32] {
        body(text).hash(None, "cap")
    }

    #[test]
    fn equal_values_have_equal_hashes_whatever_their_spacing_and_order() {
        assert_eq!(hash(r#"{"a":1,"b":[1,2]}"#), hash("{ \"b\": [1, 2],\n \"a\": 1 }"));
        for other in
            [r#"{"a":1,"b":[2,1]}"#, r#"{"a":"1","b":[1,2]}"#, r#"{"a":1,"b":[1,2],"c":null}"#]
        {
            assert_ne!(hash(r#"{"a":1,"b":[1,2]}"#), hash(other));
        }
        assert_ne!(body("{}").hash(Some("x"), "cap"), body("{}").hash(None, "cap"));
        assert_ne!(body("{}").hash(None, "ag-ui"), body("{}").hash(None, "cap"));
    }

    #[test]
    fn what_no_tree_can_hold_has_a_hash_of_its_own() {
        assert_ne!(hash(r#"{"a":1e999}"#), hash(r#"{"a":2e999}"#));
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert_ne!(hash(&deep(1000)), hash(&deep(1001)));
    }

    #[test]
    fn values_are_counted_and_what_stands_in_text_is_none() {
        let many = format!("[{}1]", "1,".repeat(1000));
        for (text, count) in [
            ("1", 1),
            (r#""a,b{[\",[""#, 1),
            (r#"{"a":{}}"#, 3),
            (r#"[{"a":{}},{"a":{}}]"#, 7),
            (r#"{"a":[1,2,3],"b":"\\"}"#, 6),
            (r#"{"a":1,"a":2}"#, 3),
            (&many, 1002),
            // No JSON, or none that serde_json can hold.
            ("{,,", 4),
            ("[1e999,2]", 3),
        ] {
            let read = |most| RequestBody::read(Bytes::copy_from_slice(text.as_bytes()), most);
            assert!(read(count).is_ok(), "{text}");
            let fault = read(count - 1).map(drop).unwrap_err();
            assert_eq!(fault.kind(), FaultKind::PayloadTooLarge, "{text}");
        }
    }

    #[test]
    fn the_object_is_what_a_parser_makes_of_the_body() {
        let deep = |n: usize| format!("{}1{}", r#"{"a":"#.repeat(n), "}".repeat(n));
        for text in [
            "{}",
            " \n{\"a\": \"x\\n y\",\r\n \"b\": [1,\n 2] }\t",
            r#"{"a":1,"a":2}"#,
            r#"{"a":1e999}"#,
            r#"{"a":"\ud800"}"#,
            "[1]",
            "\"{}\"",
            "{\"a\":\"\n\"}",
            "{} {}",
            "{",
            "",
            &deep(127),
            &deep(128),
            &deep(129),
        ] {
            let parsed: Result<RawObject, DecodeError> = decode::from_str(text);
            let object = body(text).object();
            match parsed {
                Ok(parsed) => assert_eq!(object.unwrap().get(), parsed.get(), "{text}"),
                Err(error) => {
                    assert_eq!(object.unwrap_err().message(), error.to_string(), "{text}");
                }
            }
        }
    }

    #[test]
    fn added_members_stand_first_and_leave_the_hash() {
        let members = json!({ "v": [1] }).as_object().unwrap().clone();
        let own = body(r#" { "a": 1 }"#);
        let more = own.with_members(members.clone());
        assert_eq!(more.object().unwrap().get(), r#"{"v":[1], "a": 1 }"#);
        assert_eq!(more.hash(None, "cap"), own.hash(None, "cap"));
        for other in ["{}", "[1]", "x", ""] {
            assert_eq!(body(other).with_members(members.clone()).bytes(), other);
        }
        assert_eq!(own.with_members(Map::new()).bytes(), own.bytes());
    }
}

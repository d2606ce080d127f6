//! Headers that an agent's provider needs, as members of the request's body. The headers of a
//! request are not stored with its run, and an attempt after a crash must send the same.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value};

/// The items of a header that is a list.
pub(crate) fn items(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    let items = values.flat_map(|value| value.split(',')).map(str::trim);
    items.filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// Puts members before an object's own. Of equal names the object's own count.
pub(crate) fn spliced(body: &Bytes, members: Map<String, Value>) -> Option<Bytes> {
    let rest = body.trim_ascii_start().strip_prefix(b"{")?;
    if members.is_empty() || !rest.trim_ascii_start().starts_with(b"\"") {
        return None;
    }
    let head = Value::Object(members).to_string();
    let head = head.strip_suffix('}')?.as_bytes();
    Some([head, b",", rest].concat().into())
}

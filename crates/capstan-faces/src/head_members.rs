//! Headers that an agent's provider needs, as members of the request's body. The headers of a
//! request are not stored with its run, and an attempt after a crash must send the same.

use http::HeaderMap;

/// The items of a header that is a list.
pub(crate) fn items(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    let items = values.flat_map(|value| value.split(',')).map(str::trim);
    items.filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

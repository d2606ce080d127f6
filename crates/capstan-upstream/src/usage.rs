//! Token counts as servers of OpenAI's protocols report them, under the names that all agents use.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::json_text::value;

/// The places of each count: as Chat Completions, Responses, and servers of their kind name it.
const COUNTS: [(&str, &[&str]); 5] = [
    ("input_tokens", &["/prompt_tokens", "/input_tokens"]),
    ("output_tokens", &["/completion_tokens", "/output_tokens", "/predicted_n"]),
    ("total_tokens", &["/total_tokens"]),
    (
        "cached_input_tokens",
        &[
            "/prompt_tokens_details/cached_tokens",
            "/input_tokens_details/cached_tokens",
            "/cached_tokens",
            "/prompt_cache_hit_tokens",
            "/cache_n",
        ],
    ),
    (
        "reasoning_tokens",
        &["/completion_tokens_details/reasoning_tokens", "/output_tokens_details/reasoning_tokens"],
    ),
];

/// Reads the counts of an object. `None` if it has none.
pub(crate) fn counts(usage: &Value) -> Option<Map<String, Value>> {
    let find = |places: &[&str]| places.iter().find_map(|at| count(usage.pointer(at)?));
    let mut counts = Map::new();
    for (name, places) in COUNTS {
        counts.extend(find(places).map(|count| (name.to_owned(), count.into())));
    }
    // The timings of llama.cpp have the prompt in two parts: new tokens, and those of its cache.
    if let Some(new) = usage.get("prompt_n").and_then(count) {
        let cached = usage.get("cache_n").and_then(count).unwrap_or(0);
        counts.entry("input_tokens").or_insert_with(|| new.saturating_add(cached).into());
    }
    Some(counts).filter(|counts| !counts.is_empty())
}

/// Reads the counts of a member with another name than `usage`: the object is the usage itself, or
/// holds it.
pub(crate) fn counts_in(member: &RawValue) -> Option<Map<String, Value>> {
    let text = member.get();
    if !text.starts_with('{') || !(text.contains("_tokens\"") || text.contains("predicted_n")) {
        return None;
    }
    let member = value(member);
    let counts = counts(member.get("usage").unwrap_or(&member))?;
    counts.contains_key("output_tokens").then_some(counts)
}

/// A count. Some servers write whole numbers as floats.
fn count(value: &Value) -> Option<u64> {
    let whole = |number: f64| {
        let is_whole = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
        is_whole.then_some(number as u64)
    };
    value.as_u64().or_else(|| value.as_f64().and_then(whole))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(usage: Value) -> Value {
        counts(&usage).map_or(Value::Null, Value::Object)
    }

    #[test]
    fn counts_are_read_by_all_their_names() {
        let both = json!({ "input_tokens": 11, "output_tokens": 22 });
        assert_eq!(read(json!({ "prompt_tokens": 11, "completion_tokens": 22 })), both);
        assert_eq!(read(both.clone()), both);
        assert_eq!(read(json!({ "prompt_tokens": 11.0, "completion_tokens": 22.0 })), both);
        let odd = json!({ "prompt_tokens": 11, "completion_tokens": null, "total_tokens": -1,
            "reasoning_tokens": 1.5, "cached_tokens": 4 });
        assert_eq!(read(odd), json!({ "input_tokens": 11, "cached_input_tokens": 4 }));
        let timings = json!({ "cache_n": 5, "prompt_n": 6, "predicted_n": 22, "prompt_ms": 1.5 });
        let counted = json!({ "input_tokens": 11, "output_tokens": 22, "cached_input_tokens": 5 });
        assert_eq!(read(timings), counted);
        for nothing in [json!(null), json!({}), json!({ "queue_time": 1.0 }), json!([1])] {
            assert_eq!(read(nothing), Value::Null);
        }
    }

    #[test]
    fn counts_are_found_in_members_of_a_servers_own() {
        let find = |json: &str| counts_in(serde_json::from_str(json).unwrap());
        let usage = r#"{"prompt_tokens":11,"completion_tokens":22}"#;
        assert!(find(usage).is_some());
        assert!(find(&format!(r#"{{"id":"r","usage":{usage}}}"#)).is_some());
        for nothing in [r#""x_tokens""#, r#"{"id":"r"}"#, r#"{"total_tokens":5}"#, "[1]"] {
            assert!(find(nothing).is_none(), "{nothing}");
        }
    }
}

//! Documented members of a request that the gateway only checks: types, bounds and words. A client
//! that works here must also work with OpenAI.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use capstan_protocol::DecodeError;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

/// OpenAI's documented limits: the number of pairs, and the lengths of a key and a value.
const PAIRS: usize = 16;
const KEY: usize = 64;
const VALUE: usize = 512;

/// The bounds of members that are numbers.
pub(super) const TEMPERATURE: RangeInclusive<f64> = 0.0..=2.0;
pub(super) const TOP_P: RangeInclusive<f64> = 0.0..=1.0;
pub(super) const PENALTY: RangeInclusive<f64> = -2.0..=2.0;

/// The words for the length of an answer.
pub(super) const VERBOSITY: &[&str] = &["low", "medium", "high"];

/// A string of any content.
#[derive(Debug)]
pub(super) struct Text;

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl Visitor<'_> for Any {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, _: &str) -> Result<Text, E> {
                Ok(Text)
            }
        }

        deserializer.deserialize_str(Any)
    }
}

/// An object of any content.
#[derive(Debug)]
pub(super) struct Object;

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Object, A::Error> {
                while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Object)
            }
        }

        deserializer.deserialize_map(Any)
    }
}

/// A few pairs of short texts.
#[derive(Debug)]
pub(super) struct Metadata;

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pairs = BTreeMap::<String, String>::deserialize(deserializer)?;
        if pairs.len() > PAIRS {
            let what = format!("has {} members; {PAIRS} at most", pairs.len());
            return Err(D::Error::custom(what));
        }
        for (key, value) in pairs {
            if key.chars().count() > KEY {
                return Err(D::Error::custom(format!("has a key of more than {KEY} characters")));
            }
            if value.chars().count() > VALUE {
                let what = format!("the value of {key:?} has more than {VALUE} characters");
                return Err(D::Error::custom(what));
            }
        }
        Ok(Self)
    }
}

/// Checks the bounds of a number.
pub(super) fn check_range(
    place: &str,
    number: Option<f64>,
    range: RangeInclusive<f64>,
) -> Result<(), DecodeError> {
    if number.is_none_or(|number| range.contains(&number)) {
        return Ok(());
    }
    let what = format!("must be a number from {} to {}", range.start(), range.end());
    Err(DecodeError::value(place, what))
}

/// Checks a limit on tokens or calls.
pub(super) fn check_limit(place: &str, limit: Option<u64>) -> Result<(), DecodeError> {
    if limit != Some(0) {
        return Ok(());
    }
    Err(DecodeError::value(place, "must be an integer of 1 or more"))
}

/// Checks a word.
pub(super) fn check_word(
    place: &str,
    word: Option<&str>,
    known: &[&str],
) -> Result<(), DecodeError> {
    if word.is_none_or(|word| known.contains(&word)) {
        return Ok(());
    }
    Err(DecodeError::value(place, format!("must be {}", known.join(" or "))))
}

#[cfg(test)]
mod tests {
    use capstan_protocol::decode;
    use serde_json::{Value, json};

    use super::*;

    #[derive(serde::Deserialize)]
    #[expect(dead_code, reason = "only checked")]
    struct Request {
        metadata: Option<Metadata>,
        user: Option<Text>,
        stream_options: Option<Object>,
    }

    fn check(name: &str, value: &Value) -> Result<(), String> {
        let body = json!({ name: value }).to_string();
        decode::from_str::<Request>(&body).map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn a_member_of_the_wrong_type_is_named() {
        let many: BTreeMap<String, &str> = (0..17).map(|n| (n.to_string(), "")).collect();
        for (name, value, expected) in [
            ("metadata", json!("x"), "metadata: expected a map, found string \"x\""),
            ("metadata", json!({ "k": 1 }), "metadata.k: expected a string, found integer 1"),
            ("metadata", json!(many), "metadata: has 17 members; 16 at most"),
            (
                "metadata",
                json!({ "k".repeat(65): "" }),
                "metadata: has a key of more than 64 characters",
            ),
            (
                "metadata",
                json!({ "k": "ü".repeat(513) }),
                "metadata: the value of \"k\" has more than 512 characters",
            ),
            ("user", json!(5), "user: expected a string, found integer 5"),
            ("stream_options", json!([]), "stream_options: expected an object, found sequence"),
        ] {
            assert_eq!(check(name, &value).unwrap_err(), expected, "{value}");
        }
    }

    #[test]
    fn bounds_and_words_are_named() {
        let error = |checked: Result<(), DecodeError>| checked.unwrap_err().to_string();
        let expected = "temperature: must be a number from 0 to 2";
        assert_eq!(error(check_range("temperature", Some(2.5), TEMPERATURE)), expected);
        let expected = "max_tokens: must be an integer of 1 or more";
        assert_eq!(error(check_limit("max_tokens", Some(0))), expected);
        let expected = "verbosity: must be low or medium or high";
        assert_eq!(error(check_word("verbosity", Some("huge"), VERBOSITY)), expected);
    }

    #[test]
    fn a_member_that_is_right_null_or_unknown_passes() {
        let full: BTreeMap<String, String> =
            (0..16).map(|n| (format!("{n:0>64}"), "ü".repeat(512))).collect();
        for (name, value) in [
            ("metadata", json!(full)),
            ("metadata", json!(null)),
            ("a_member_of_tomorrow", json!([1, "two"])),
        ] {
            check(name, &value).unwrap();
        }
        check_range("temperature", Some(2.0), TEMPERATURE).unwrap();
        check_limit("max_tokens", None).unwrap();
        check_word("verbosity", Some("low"), VERBOSITY).unwrap();
    }
}

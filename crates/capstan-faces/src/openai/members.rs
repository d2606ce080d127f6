//! What documented members of a request have to be, whether something here works with them, an
//! answer only repeats them, or neither. One of the wrong type is a mistake that OpenAI would name,
//! and a client that was tried here must not find it there. Looked at when they come, not when a
//! run is read again that an older build has let in.

use std::collections::BTreeMap;

use capstan_protocol::DecodeError;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// What a member has to be, unless it is null.
#[derive(Debug, Clone, Copy)]
pub(super) enum Is {
    Text,
    Flag,
    Object,
    /// A whole number, this or more.
    Whole(i64),
    /// A number from one to another.
    Number(f64, f64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A few pairs of short texts.
    Metadata,
}

/// A member's name, and what it has to be.
pub(super) type Member = (&'static str, Is);

/// As many pairs, with keys and values as long, as OpenAI documents.
const PAIRS: usize = 16;
const KEY: usize = 64;
const VALUE: usize = 512;

/// Those of both APIs.
const SHARED: &[Member] = &[
    ("metadata", Is::Metadata),
    ("parallel_tool_calls", Is::Flag),
    ("prompt_cache_key", Is::Text),
    ("safety_identifier", Is::Text),
    ("service_tier", Is::Text),
    ("store", Is::Flag),
    ("stream", Is::Flag),
    ("stream_options", Is::Object),
    ("temperature", Is::Number(0.0, 2.0)),
    ("top_logprobs", Is::Whole(0)),
    ("top_p", Is::Number(0.0, 1.0)),
    ("user", Is::Text),
];

/// Those of a chat.
pub(super) const CHAT: &[Member] = &[
    ("frequency_penalty", Is::Number(-2.0, 2.0)),
    ("logit_bias", Is::Object),
    ("max_completion_tokens", Is::Whole(1)),
    ("max_tokens", Is::Whole(1)),
    ("prediction", Is::Object),
    ("presence_penalty", Is::Number(-2.0, 2.0)),
    ("seed", Is::Whole(i64::MIN)),
    ("verbosity", VERBOSITY),
];

/// Those of a response.
pub(super) const RESPONSES: &[Member] = &[
    ("max_output_tokens", Is::Whole(1)),
    ("max_tool_calls", Is::Whole(1)),
    ("truncation", Is::Word(&["auto", "disabled"])),
];

/// The words for how much is said.
pub(super) const VERBOSITY: Is = Is::Word(&["low", "medium", "high"]);

/// Names the first member of a body that is not what it has to be. What is no object is told when
/// it is decoded.
pub(super) fn check(body: &[u8], own: &[Member]) -> Result<(), DecodeError> {
    let Ok(all) = serde_json::from_slice::<BTreeMap<String, &RawValue>>(body) else {
        return Ok(());
    };
    SHARED.iter().chain(own).try_for_each(|(name, is)| {
        all.get(*name).map_or(Ok(()), |value| {
            is.check(value.get()).map_err(|what| DecodeError::value(*name, what))
        })
    })
}

impl Is {
    /// What is wrong with a value, if anything is.
    pub(super) fn check(self, value: &str) -> Result<(), String> {
        fn read<'a, T: serde::Deserialize<'a>>(value: &'a str) -> Option<T> {
            serde_json::from_str(value).ok()
        }
        let is_right = match self {
            _ if value == "null" => true,
            Self::Text => read::<String>(value).is_some(),
            Self::Flag => read::<bool>(value).is_some(),
            Self::Object => read::<BTreeMap<String, IgnoredAny>>(value).is_some(),
            Self::Whole(least) => read::<i64>(value).is_some_and(|n| n >= least),
            Self::Number(least, most) => {
                read::<f64>(value).is_some_and(|n| (least..=most).contains(&n))
            }
            Self::Word(words) => {
                read::<String>(value).is_some_and(|word| words.contains(&word.as_str()))
            }
            Self::Metadata => return metadata(value),
        };
        if is_right { Ok(()) } else { Err(format!("must be {}", self.name())) }
    }

    fn name(self) -> String {
        match self {
            Self::Text => "a string".into(),
            Self::Flag => "true or false".into(),
            Self::Object | Self::Metadata => "an object".into(),
            Self::Whole(i64::MIN) => "an integer".into(),
            Self::Whole(least) => format!("an integer of {least} or more"),
            Self::Number(least, most) => format!("a number from {least} to {most}"),
            Self::Word(words) => words.join(" or "),
        }
    }
}

fn metadata(value: &str) -> Result<(), String> {
    let all: BTreeMap<String, &RawValue> =
        serde_json::from_str(value).map_err(|_| "must be an object of strings".to_owned())?;
    if all.len() > PAIRS {
        return Err(format!("has {} members; {PAIRS} at most", all.len()));
    }
    for (key, value) in all {
        if key.chars().count() > KEY {
            return Err(format!("has a key of more than {KEY} characters"));
        }
        let text: String = serde_json::from_str(value.get())
            .map_err(|_| format!("the value of {key:?} must be a string"))?;
        if text.chars().count() > VALUE {
            return Err(format!("the value of {key:?} has more than {VALUE} characters"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check_member(name: &'static str, value: Value) -> Result<(), String> {
        let body = json!({ name: value }).to_string();
        let own: Vec<Member> = CHAT.iter().chain(RESPONSES).copied().collect();
        check(body.as_bytes(), &own).map_err(|error| error.to_string())
    }

    #[test]
    fn a_member_of_the_wrong_type_is_named() {
        let many: BTreeMap<String, &str> = (0..17).map(|n| (n.to_string(), "")).collect();
        for (name, value, expected) in [
            ("metadata", json!("x"), "metadata: must be an object of strings"),
            ("metadata", json!([]), "metadata: must be an object of strings"),
            ("metadata", json!({ "k": 1 }), "metadata: the value of \"k\" must be a string"),
            ("metadata", json!({ "k": null }), "metadata: the value of \"k\" must be a string"),
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
            ("temperature", json!(2.5), "temperature: must be a number from 0 to 2"),
            ("top_p", json!("0.5"), "top_p: must be a number from 0 to 1"),
            ("parallel_tool_calls", json!("no"), "parallel_tool_calls: must be true or false"),
            ("user", json!(5), "user: must be a string"),
            ("stream_options", json!([]), "stream_options: must be an object"),
            ("seed", json!(1.5), "seed: must be an integer"),
            ("truncation", json!("some"), "truncation: must be auto or disabled"),
        ] {
            assert_eq!(check_member(name, value.clone()).unwrap_err(), expected, "{value}");
        }
    }

    #[test]
    fn what_is_right_null_or_unknown_passes() {
        let full: BTreeMap<String, String> =
            (0..16).map(|n| (format!("{n:0>64}"), "ü".repeat(512))).collect();
        for (name, value) in [
            ("metadata", json!(full)),
            ("metadata", json!(null)),
            ("temperature", json!(2)),
            ("truncation", json!("auto")),
            ("seed", json!(-1)),
            ("a_member_of_tomorrow", json!([1, "two"])),
        ] {
            check_member(name, value).unwrap();
        }
    }
}

//! Finds the description of a failure in an upstream's error. There is no standard, so one reader
//! knows all shapes.

use std::time::Duration;

use serde_json::Value;

use crate::upstream_failure::UpstreamFailure;

/// Members that have a code, best first.
const WORDS: [&str; 8] =
    ["code", "type", "status", "error_code", "error_type", "errorCode", "reason", "__type"];
/// Members that have a status as a number, or as digits.
const NUMBERS: [&str; 7] =
    ["code", "status", "status_code", "statusCode", "error_code", "http_status", "httpCode"];
/// Members that have a message.
const PROSE: [&str; 10] = [
    "message",
    "msg",
    "error_message",
    "error_msg",
    "errorMessage",
    "err_msg",
    "detail",
    "description",
    "faultstring",
    "status_msg",
];
/// Members that show that a document without an `error` member is a failure.
const SIGNS: [&str; 8] = [
    "error_code",
    "error_msg",
    "error_message",
    "errorCode",
    "errorMessage",
    "err_msg",
    "error_type",
    "__type",
];
/// Members of answers: a document with one of these is no failure, unless it has an `error`.
const ANSWERS: [&str; 3] = ["choices", "output", "content"];

impl UpstreamFailure {
    /// The failure that a document describes; `None` if it describes none.
    pub fn found_in(document: &Value) -> Option<Self> {
        let object = match document {
            // Some servers wrap each document of a stream in a list, errors included.
            Value::Array(items) => return items.iter().find_map(Self::found_in),
            Value::Object(object) => object,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
        let is_told = |error: &&Value| match error {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty(),
            Value::Object(members) => !members.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Bool(true) | Value::Number(_) => true,
        };
        let named =
            ["error", "errors", "fault"].iter().find_map(|name| object.get(*name).filter(is_told));
        if let Some(error) = named {
            let first = error.as_array().and_then(|errors| errors.first()).unwrap_or(error);
            return Some(Self::from_error(first).or(Self::from_error(document)));
        }
        let is = |name: &str, words: &[&str]| {
            object.get(name).and_then(Value::as_str).is_some_and(|word| words.contains(&word))
        };
        let says = |name: &str| object.get(name).is_some_and(Value::is_string);
        let is_answer = ANSWERS.iter().any(|name| object.contains_key(*name));
        let is_failure = is("object", &["error"])
            || is("type", &["error"])
            || is("status", &["error", "failed"])
            || object.get("success") == Some(&Value::Bool(false))
            || object.get("detail").is_some_and(|detail| !detail.is_null())
            || SIGNS.iter().any(|name| object.contains_key(*name))
            || says("message")
                && NUMBERS.iter().chain(&["type"]).any(|name| object.contains_key(*name));
        (is_failure && !is_answer).then(|| Self::from_error(document))
    }

    /// Reads an error object of any provider, or a plain string.
    pub fn from_error(error: &Value) -> Self {
        if let Some(text) = error.as_str() {
            return Self { text: text.to_owned(), wait: wait_in_text(text), ..Self::default() };
        }
        let text_at = |name: &&str| error.get(*name).and_then(Value::as_str).map(str::to_owned);
        let mut words: Vec<String> = WORDS.iter().filter_map(text_at).collect();
        words.extend(error.pointer("/innererror/code").and_then(Value::as_str).map(str::to_owned));
        // OpenRouter's sign that a moderation before the model refused.
        let is_flagged = ["/metadata/reasons", "/metadata/flagged_input"]
            .iter()
            .any(|at| error.pointer(at).is_some());
        words.extend(is_flagged.then(|| "moderation".to_owned()));
        let number = |name: &&str| {
            let value = error.get(*name)?;
            let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
            u16::try_from(number).ok().filter(|status| (400..=599).contains(status))
        };
        let text = PROSE.iter().find_map(text_at).or_else(|| inner_prose(error));
        let text = text.unwrap_or_default();
        Self {
            status: NUMBERS.iter().find_map(number),
            wait: wait_in(error).or_else(|| wait_in_text(&text)),
            words,
            text,
            param: text_at(&"param"),
            ..Self::default()
        }
    }

    /// Fills the gaps from another failure.
    fn or(self, other: Self) -> Self {
        let is_mute = self.text.is_empty();
        Self {
            status: self.status.or(other.status),
            words: if self.words.is_empty() { other.words } else { self.words },
            text: if is_mute { other.text } else { self.text },
            wait: self.wait.or(other.wait),
            param: self.param.or(other.param),
            ..self
        }
    }
}

/// A message one level deeper: `{"detail": [{"msg": …}]}`, `{"detail": {"message": …}}`, `{"error":
/// {"error": …}}`.
fn inner_prose(error: &Value) -> Option<String> {
    let inner =
        ["detail", "error", "message", "metadata"].iter().filter_map(|name| error.get(*name));
    let first =
        |value: &Value| value.as_array().and_then(|list| list.first()).unwrap_or(value).clone();
    let prose = |value: Value| {
        PROSE.iter().chain(&["raw"]).find_map(|name| Some(value.get(*name)?.as_str()?.to_owned()))
    };
    inner.map(first).find_map(|value| value.as_str().map(str::to_owned).or_else(|| prose(value)))
}

/// The wait among an error's members. Google's `retryDelay` is in its details.
fn wait_in(error: &Value) -> Option<Duration> {
    let seconds = |value: &Value| {
        value.as_f64().or_else(|| value.as_str()?.trim_end_matches('s').parse().ok())
    };
    let at = |object: &Value| {
        let whole = ["retryDelay", "retry_after", "retryAfter", "retry_after_seconds"];
        let whole = whole.iter().find_map(|name| object.get(*name).and_then(seconds));
        let parts = || object.get("retryDelay")?.get("seconds").and_then(seconds);
        let milliseconds = || Some(object.get("retry_after_ms").and_then(seconds)? / 1000.0);
        whole.or_else(parts).or_else(milliseconds)
    };
    let details = error.get("details").and_then(Value::as_array).into_iter().flatten();
    let found = std::iter::once(error).chain(details).chain(error.get("metadata")).find_map(at)?;
    Duration::try_from_secs_f64(found).ok()
}

/// The wait in a message: "Please try again in 6m0.5s", "… in 20ms".
fn wait_in_text(text: &str) -> Option<Duration> {
    let lower = text.to_ascii_lowercase();
    let (_, rest) = lower.split_once("try again in ").or_else(|| lower.split_once("retry in "))?;
    let word = rest.split_whitespace().next()?.trim_end_matches(['.', ',', ';']);
    let unit = rest.split_whitespace().nth(1).unwrap_or_default();
    if let Ok(number) = word.parse::<f64>() {
        let scale = if unit.starts_with("milli") || unit.starts_with("ms") {
            0.001
        } else if unit.starts_with("min") {
            60.0
        } else {
            1.0
        };
        return Duration::try_from_secs_f64(number * scale).ok();
    }
    let (mut seconds, mut number) = (0.0, String::new());
    let mut letters = word.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter.is_ascii_digit() || letter == '.' {
            number.push(letter);
            continue;
        }
        let scale = match letter {
            'h' => 3600.0,
            'm' if letters.next_if_eq(&'s').is_some() => 0.001,
            'm' => 60.0,
            's' => 1.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * scale;
        number.clear();
    }
    Duration::try_from_secs_f64(seconds).ok().filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_is_found_in_whatever_shape() {
        for (document, status, words) in [
            (json!({ "error": { "message": "boom", "code": 500 } }), Some(500), "boom"),
            (
                json!([{ "error": { "message": "boom", "status": "UNAVAILABLE", "code": 503 } }]),
                Some(503),
                "boom",
            ),
            (
                json!({ "object": "error", "message": "boom", "type": "BadRequest", "code": 400 }),
                Some(400),
                "boom",
            ),
            (json!({ "error": "boom", "statusCode": 429 }), Some(429), "boom"),
            (json!({ "detail": "boom" }), None, "boom"),
            (json!({ "detail": [{ "loc": ["body"], "msg": "boom" }] }), None, "boom"),
            (json!({ "detail": { "error": { "x": 1 }, "message": "boom" } }), None, "boom"),
            (json!({ "error_code": 336003, "error_msg": "boom" }), None, "boom"),
            (json!({ "message": "boom", "code": "503" }), Some(503), "boom"),
            (json!({ "__type": "ThrottlingException", "message": "boom" }), None, "boom"),
            (json!({ "errors": [{ "message": "boom" }] }), None, "boom"),
            (json!({ "success": false, "message": "boom" }), None, "boom"),
        ] {
            let failure =
                UpstreamFailure::found_in(&document).unwrap_or_else(|| panic!("{document}"));
            assert_eq!((failure.status, failure.text.as_str()), (status, words), "{document}");
        }
        for fine in [
            json!({ "choices": [], "error": null }),
            json!({ "id": "1", "object": "chat.completion.chunk", "usage": {} }),
            json!({ "output": [], "status": "completed", "error": null }),
            json!({ "type": "message", "content": [], "message": "x" }),
        ] {
            assert_eq!(UpstreamFailure::found_in(&fine), None, "{fine}");
        }
    }

    #[test]
    fn a_wait_is_read_from_details_and_from_prose() {
        let google = json!({ "error": { "code": 429, "message": "Quota exceeded",
        "status": "RESOURCE_EXHAUSTED",
            "details": [{ "@type": "x/QuotaFailure" },
            { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s" }] } });
        assert_eq!(
            UpstreamFailure::found_in(&google).unwrap().wait,
            Some(Duration::from_millis(7500))
        );
        for (text, millis) in [
            ("Rate limit reached. Please try again in 1.242s. Visit", Some(1242)),
            ("Please try again in 20ms.", Some(20)),
            ("Please try again in 6m0s", Some(360_000)),
            ("try again in 5 seconds", Some(5000)),
            ("Please retry in 2 minutes", Some(120_000)),
            ("Please try again in a while", None),
        ] {
            assert_eq!(wait_in_text(text).map(|wait| wait.as_millis()), millis, "{text}");
        }
    }
}

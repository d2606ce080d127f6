//! The evidence for a broken promise: the request, the expectation, and the answer.

use serde::Serialize;

/// Why a check is broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The request.
    pub sent: String,
    /// What the contract promises.
    pub expected: String,
    /// What the server sent instead; shortened, and without keys.
    pub came: String,
}

/// The longest text of each, enough to recognise the mistake.
const LONGEST: usize = 400;

impl Evidence {
    /// Makes the evidence printable: without secrets, short, and without control characters.
    pub(crate) fn presentable(self, secrets: &[String]) -> Self {
        let clean = |text: String| shorten(&harmless(&redact(text, secrets)));
        Self { sent: clean(self.sent), expected: clean(self.expected), came: clean(self.came) }
    }
}

fn redact(text: String, secrets: &[String]) -> String {
    let known = secrets.iter().filter(|secret| !secret.is_empty());
    known.fold(text, |text, secret| text.replace(secret.as_str(), "[secret]"))
}

/// Control characters, and those that look like line ends, as escapes.
fn harmless(text: &str) -> String {
    let is_odd = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    text.chars()
        .flat_map(|c| if is_odd(c) { c.escape_default().collect::<Vec<_>>() } else { vec![c] })
        .collect()
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(LONGEST).and_then(|(at, _)| text.get(..at)) {
        Some(start) => format!("{start}…"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_is_short_harmless_and_without_secrets() {
        let came = format!("key sk_1 \u{1b}[2J\u{2028}{}", "x".repeat(1000));
        let evidence = Evidence { sent: "Bearer sk_1".into(), expected: "a\nb".into(), came };
        let shown = evidence.presentable(&["sk_1".into(), String::new()]);
        assert_eq!((shown.sent.as_str(), shown.expected.as_str()), ("Bearer [secret]", "a\\nb"));
        assert!(shown.came.starts_with("key [secret] \\u{1b}[2J\\u{2028}xxx"), "{}", shown.came);
        assert_eq!(shown.came.chars().count(), LONGEST + 1);
    }
}

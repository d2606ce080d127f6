//! Most chunks of an answer differ in their text only. This remembers the bytes around the text of
//! the last chunk. If the next chunk has the same bytes, only its text is parsed.

use serde_json::value::RawValue;

/// The bytes before and after the text, quotes included. Empty before the first chunk.
#[derive(Debug, Default)]
pub(crate) struct Wrapping {
    before: String,
    after: String,
}

impl Wrapping {
    /// The text of a chunk that otherwise equals the last one; `None` if the chunk has to be
    /// parsed.
    pub(crate) fn text<'a>(&self, chunk: &'a str) -> Option<&'a str> {
        let is_known = !self.before.is_empty();
        let text = chunk.strip_prefix(self.before.as_str()).filter(|_| is_known)?;
        let text = text.strip_suffix(self.after.as_str())?;
        // Escapes, control characters and the end of the string need a real parser.
        text.bytes().all(|byte| byte >= b' ' && !matches!(byte, b'"' | b'\\')).then_some(text)
    }

    /// Remembers the bytes around this string. No other part of the chunk may have content.
    pub(crate) fn learn(&mut self, chunk: &str, text: &RawValue) {
        self.before.clear();
        if let Some((before, after)) = around(chunk, text.get()) {
            self.before.push_str(before);
            self.after.clear();
            self.after.push_str(after);
        }
    }
}

fn around<'a>(chunk: &'a str, text: &str) -> Option<(&'a str, &'a str)> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let at = inner.as_ptr().addr().checked_sub(chunk.as_ptr().addr())?;
    let (before, rest) = chunk.split_at_checked(at)?;
    Some((before, rest.get(inner.len()..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(chunk: &str) -> Wrapping {
        #[derive(serde::Deserialize)]
        struct Chunk<'a> {
            #[serde(borrow)]
            text: &'a RawValue,
        }
        let mut wrapping = Wrapping::default();
        wrapping.learn(chunk, serde_json::from_str::<Chunk<'_>>(chunk).unwrap().text);
        wrapping
    }

    #[test]
    fn a_chunk_with_only_another_text_is_not_parsed() {
        let wrapping = learned(r#"{"id":1, "text": "a\n", "n":[]}"#);
        for text in ["", " b", "größer 😀", "}"] {
            assert_eq!(
                wrapping.text(&format!(r#"{{"id":1, "text": "{text}", "n":[]}}"#)),
                Some(text)
            );
        }
    }

    #[test]
    fn other_chunks_are_parsed() {
        let wrapping = learned(r#"{"id":1,"text":"a","n":0}"#);
        let others = [
            r#"{"id":1,"text":"a\n","n":0}"#,
            r#"{"id":1,"text":"a","x":"b","n":0}"#,
            "{\"id\":1,\"text\":\"a\u{1}\",\"n\":0}",
            r#"{"id":2,"text":"a","n":0}"#,
            r#"{"id":1,"text":"a","n":1}"#,
            r#"{"id":1,"text":","n":0}"#,
            r#"{"id":1,"text":null,"n":0}"#,
            "",
        ];
        for chunk in others {
            assert_eq!(wrapping.text(chunk), None, "{chunk}");
        }
        assert_eq!(Wrapping::default().text("a"), None);
        assert_eq!(learned(r#"{"text":["a"]}"#).text(r#"{"text":["b"]}"#), None);
    }
}

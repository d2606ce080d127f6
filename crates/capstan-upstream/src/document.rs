//! Reads a JSON body where a stream was requested: a complete answer, an error, or the chunks of a
//! stream without SSE frames. Another call would get the same.

use capstan_agent::Output;
use capstan_protocol::Fault;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api_key::ApiKey;
use crate::decode::{Decode, malformed, truncated};
use crate::json_text::mend;
use crate::upstream_failure::UpstreamFailure;

/// The largest document, in bytes.
const LONGEST: usize = 16 * 1024 * 1024;

#[derive(Default)]
pub(crate) struct Document(Vec<u8>);

impl Document {
    /// Whether a body begins like JSON. No SSE stream does.
    pub(crate) fn begins(bytes: &[u8]) -> bool {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        bytes
            .iter()
            .find(|byte| !byte.is_ascii_whitespace())
            .is_some_and(|first| matches!(first, b'{' | b'['))
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if self.0.len() + bytes.len() > LONGEST {
            return Err(malformed(format!("a document of more than {LONGEST} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// Decodes the complete document.
    pub(crate) fn read(
        self,
        decoder: &mut impl Decode,
        secret: &ApiKey,
        out: &mut Vec<Output>,
    ) -> Result<(), Fault> {
        let text = String::from_utf8_lossy(&self.0);
        let text = text.trim_start_matches('\u{feff}');
        let value =
            serde_json::from_str::<Value>(text).or_else(|_| serde_json::from_str(&mend(text)));
        let Ok(value) = value else { return chunks(text, decoder, out) };
        if let Some(fault) = decoder.refusal(&value) {
            return Err(fault);
        }
        if let Some(failure) = UpstreamFailure::found_in(&value) {
            return Err(failure.to_fault(secret));
        }
        if let Some(outcome) = decoder.whole(text, out) {
            return outcome;
        }
        match value.as_array() {
            Some(items) => list(items, decoder, out),
            None => Err(malformed("a document instead of a stream")),
        }
    }
}

/// Decodes chunks that follow each other.
fn chunks(text: &str, decoder: &mut impl Decode, out: &mut Vec<Output>) -> Result<(), Fault> {
    for chunk in serde_json::Deserializer::from_str(text).into_iter::<&RawValue>() {
        let chunk =
            chunk.map_err(|error| malformed(format!("a document that is not JSON: {error}")))?;
        decoder.frame("", chunk.get(), out)?;
    }
    ended(decoder)
}

/// Decodes chunks in a list.
fn list(items: &[Value], decoder: &mut impl Decode, out: &mut Vec<Output>) -> Result<(), Fault> {
    for item in items {
        decoder.frame("", &item.to_string(), out)?;
    }
    ended(decoder)
}

fn ended(decoder: &impl Decode) -> Result<(), Fault> {
    if decoder.is_complete() { Ok(()) } else { Err(truncated()) }
}

//! Chunks that resemble the one before are read by their text alone: what comes of them is what
//! comes of reading each whole.

use capstan_agent::Output;
use capstan_upstream::{ApiKey, Decode, Step, anthropic, openai};
use proptest::prelude::*;

/// What a decoder makes of chunks, up to the first that it refuses.
fn read(
    mut decoder: impl Decode,
    chunks: impl Iterator<Item = String>,
) -> (Vec<Output>, Vec<Option<Step>>) {
    let (mut outputs, mut steps) = (Vec::new(), Vec::new());
    for chunk in chunks {
        let step = decoder.frame("", &chunk, &mut outputs).ok();
        steps.push(step);
        if step.is_none() {
            break;
        }
    }
    for output in &mut outputs {
        // An event says when it was made.
        if let Output::Event { payload, .. } = output {
            let data = payload.to_map()["data"].to_string();
            *output = Output::Event {
                kind: data,
                payload: capstan_protocol::RawObject::parse("{}").unwrap(),
            };
        }
    }
    (outputs, steps)
}

/// A string as it stands in JSON, without its quotes: plain, escaped, half a character.
fn text() -> impl Strategy<Value = String> {
    let escaped = |text: String| serde_json::to_string(&text).unwrap().trim_matches('"').to_owned();
    prop_oneof![
        4 => "[a-z ]{0,4}".prop_map(escaped),
        2 => any::<String>().prop_filter_map("ends with a quote",
        move |text| (!text.contains('"')).then(|| escaped(text))),
        1 => Just(r"\ud83d".to_owned()),
        1 => Just(r"\ude00!".to_owned()),
        1 => Just(r#"say \"it\""#.to_owned()),
    ]
}

/// A member that nobody reads makes each chunk unlike the one before.
fn unlike(n: usize, chunk: &str) -> String {
    chunk.replacen('{', &format!("{{\"n\":{n},"), 1)
}

fn chat() -> impl Strategy<Value = String> {
    let chunk = |delta: String, finish: &str| {
        format!(
            r#"{{"model":"m","choices":[{{"index":0,"delta":{{{delta}}},"finish_reason":{finish}}}]}}"#
        )
    };
    (text(), 0..9_u8).prop_map(move |(text, kind)| match kind {
        0 | 5 => chunk(format!(r#""reasoning_content":"hm ","content":"{text}""#), "null"),
        1 => chunk(
            format!(
                r#""tool_calls":[{{"index":0,"id":"c","function":{{"name":"f","arguments":"{text}"}}}}]"#
            ),
            "null",
        ),
        2 => chunk(format!(r#""content":[{{"text":"{text}"}}]"#), "null"),
        3 => chunk(format!(r#""content":"{text}""#), r#""length""#),
        4 => format!(r#"{{"model":"m","choices":[],"usage":{{"prompt_tokens":{}}}}}"#, text.len()),
        _ => chunk(format!(r#""content":"{text}""#), "null"),
    })
}

fn messages() -> impl Strategy<Value = String> {
    (text(), 0..10_u8).prop_map(|(text, kind)| {
        let (index, delta) = match kind {
            0 => (0, format!(r#""type":"thinking_delta","thinking":"{text}""#)),
            1 => (1, format!(r#""type":"text_delta","text":"{text}""#)),
            2 => (0, r#""type":"text_delta""#.to_owned()),
            _ => (0, format!(r#""type":"text_delta","text":"{text}""#)),
        };
        format!(r#"{{"type":"content_block_delta","index":{index},"delta":{{{delta}}}}}"#)
    })
}

proptest! {
    #[test]
    fn shortcuts_parse_chat_chunks_like_full_parsing(
        chunks in prop::collection::vec(chat(), 1..20),
    ) {
        let whole = chunks.iter().enumerate().map(|(n, chunk)| unlike(n, chunk));
        let whole = read(openai::Decoder::new(ApiKey::none()), whole);
        prop_assert_eq!(read(openai::Decoder::new(ApiKey::none()), chunks.iter().cloned()), whole);
    }

    #[test]
    fn shortcuts_parse_messages_like_full_parsing(chunks in prop::collection::vec(messages(),
    1..20)) {
        let whole = chunks.iter().enumerate().map(|(n, chunk)| unlike(n, chunk));
        let whole = read(anthropic::Decoder::new(ApiKey::none()), whole);
        prop_assert_eq!(read(anthropic::Decoder::new(ApiKey::none()), chunks.iter().cloned()),
        whole);
    }
}

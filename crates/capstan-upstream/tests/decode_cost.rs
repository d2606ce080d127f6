//! What decoding a token costs: its text and little more, and no tree of its chunk.
//!
//! A program of its own, because it counts what its global allocator gives out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use cap::Cap;
use capstan_agent::Output;
use capstan_upstream::{ApiKey, Decode, anthropic, openai};

#[global_allocator]
static ALLOCATOR: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

const TOKENS: usize = 1000;

/// Bytes that are allocated for each of many chunks; where they are kept is made before.
fn cost(mut decoder: impl Decode, chunk: &str) -> usize {
    let mut out: Vec<Output> = Vec::with_capacity(2 * TOKENS);
    decoder.frame("", chunk, &mut out).unwrap();
    let before = ALLOCATOR.total_allocated();
    for _ in 0..TOKENS {
        decoder.frame("", chunk, &mut out).unwrap();
    }
    let after = ALLOCATOR.total_allocated();
    assert!(out.len() > TOKENS);
    (after - before) / TOKENS
}

#[test]
fn a_token_is_decoded_without_a_tree() {
    let chat = r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-made-up","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}],"usage":null}"#;
    let tree = {
        let before = ALLOCATOR.total_allocated();
        drop(serde_json::from_str::<serde_json::Value>(chat).unwrap());
        ALLOCATOR.total_allocated() - before
    };
    let own = cost(openai::Decoder::new(ApiKey::none()), chat);
    assert!(own < 64, "{own} bytes for a token, {tree} for its tree");
    let messages =
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" token"}}"#;
    let own = cost(anthropic::Decoder::new(ApiKey::none()), messages);
    assert!(own < 64, "{own} bytes for a token");
    let responses = r#"{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":" token"}"#;
    let own = cost(openai::responses::Decoder::new(ApiKey::none()), responses);
    assert!(own < 64, "{own} bytes for a token");
}

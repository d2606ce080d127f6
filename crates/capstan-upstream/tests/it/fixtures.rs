//! Golden fixtures: what upstreams send, and what it becomes, whatever the chunks it comes in.
//!
//! `CAPSTAN_WRITE_FIXTURES=1` writes what is expected from what is found; read it before you commit
//! it.

use std::path::{Path, PathBuf};

use capstan_agent::Output;
use capstan_protocol::{Exposure, Fault, sse};
use capstan_upstream::{ApiKey, Decode, Step, agui, anthropic, command, openai};
use serde_json::{Value, json};

fn shown(output: &Output) -> Value {
    match output {
        Output::Delta(text) => json!({ "delta": text }),
        Output::Event { kind, payload } => {
            json!({ "event": kind, "data": payload.to_map()["data"] })
        }
        Output::Again { keep } => json!({ "again": keep }),
        Output::Warning(error) => json!({ "warning": error }),
        Output::Model(model) => json!({ "model": model }),
        Output::Usage(usage) => json!({ "usage": usage }),
        Output::Reason(reason) => json!({ "reason": reason }),
        Output::FarId(id) => json!({ "far_id": id }),
        // A decoder makes no calls.
        Output::CallBegan(_) | Output::CallEnded(_) | Output::Member(_) | Output::Continued(_) => {
            Value::Null
        }
        Output::Interrupt(asked) => json!({ "interrupt": asked }),
    }
}

fn ended(outcome: Result<(), Fault>) -> Value {
    match outcome {
        Ok(()) => json!("complete"),
        Err(fault) => json!(fault.to_stream_error(Exposure::Production)),
    }
}

/// A body in chunks of a size, through a decoder of frames.
fn frames(mut decoder: impl Decode, body: &[u8], size: usize) -> Value {
    let (mut outputs, mut frames) = (Vec::new(), sse::Decoder::new());
    let mut outcome = None;
    'body: for chunk in body.chunks(size) {
        frames.push(chunk);
        while let Some(frame) = frames.next_frame() {
            let frame = frame.unwrap();
            match decoder.frame(&frame.event, &frame.data, &mut outputs) {
                Ok(Step::Done) => {
                    outcome = Some(Ok(()));
                    break 'body;
                }
                Ok(Step::Quiet | Step::Heard | Step::Ending) => {}
                Err(fault) => {
                    outcome = Some(Err(fault));
                    break 'body;
                }
            }
        }
    }
    let end = outcome
        .map(ended)
        .unwrap_or_else(|| json!(if decoder.is_complete() { "complete" } else { "cut" }));
    json!({ "outputs": outputs.iter().map(shown).collect::<Vec<_>>(), "end": end })
}

fn lines(body: &[u8], size: usize) -> Value {
    let (mut outputs, mut lines, mut decoder) =
        (Vec::new(), command::Lines::new(1 << 20), command::Decoder::new());
    let mut fault = None;
    for chunk in body.chunks(size) {
        lines.push(chunk);
        while let (None, Some(line)) = (&fault, lines.next_line().unwrap()) {
            fault = decoder.line(&line, &mut outputs).err();
        }
    }
    let outcome =
        fault.map(|fault| Some(Err(fault))).unwrap_or_else(|| decoder.finish(&mut outputs));
    let end = outcome.map_or(json!("cut"), ended);
    json!({ "outputs": outputs.iter().map(shown).collect::<Vec<_>>(), "end": end })
}

fn decoded(kind: &str, body: &[u8], size: usize) -> Value {
    match kind {
        "openai" => frames(openai::Decoder::new(ApiKey::none()), body, size),
        "anthropic" => frames(anthropic::Decoder::new(ApiKey::none()), body, size),
        "ag-ui" => frames(agui::Decoder::default(), body, size),
        "command" => lines(body, size),
        other => panic!("no decoder for {other}"),
    }
}

fn fixtures() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let mut found = Vec::new();
    for kind in ["openai", "anthropic", "ag-ui", "command"] {
        for entry in std::fs::read_dir(root.join(kind)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "sse" || extension == "jsonl")
            {
                found.push((kind.to_owned(), path));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn every_fixture_decodes_to_what_is_written_beside_it() {
    let all = fixtures();
    assert!(all.len() >= 10, "{}", all.len());
    for (kind, path) in all {
        let body = std::fs::read(&path).unwrap();
        let whole = decoded(&kind, &body, body.len());
        for size in [1, 7, 64] {
            assert_eq!(
                decoded(&kind, &body, size),
                whole,
                "{} in chunks of {size}",
                path.display()
            );
        }
        let beside = path.with_extension("json");
        if std::env::var_os("CAPSTAN_WRITE_FIXTURES").is_some() {
            std::fs::write(&beside, serde_json::to_string_pretty(&whole).unwrap() + "\n").unwrap();
        }
        let expected: Value =
            serde_json::from_str(&std::fs::read_to_string(&beside).unwrap()).unwrap();
        assert_eq!(whole, expected, "{}", path.display());
    }
}

//! Fills `corpus/` from the conformance vectors, so that the fuzzers start from documents that mean
//! something.

use std::fs;
use std::path::{Path, PathBuf};

use capstan_protocol::{StreamPacket, sse};
use serde_json::Value;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let packets =
        texts("cap/text.jsonl", "raw")?.into_iter().chain(texts("cap/models.jsonl", "input")?);
    // Spelled as our encoder spells them where that is possible: only those reach the short cut.
    let packets: Vec<String> = packets
        .map(|text| StreamPacket::decode(&text).map_or(text, |packet| packet.to_json()))
        .collect();
    plant("packet", packets.iter().map(|text| text.as_bytes().to_vec()))?;
    plant("sse", streams(&packets))?;
    plant("agui", texts("agui/events.jsonl", "event")?.into_iter().map(String::into_bytes))?;
    plant("agui", texts("agui/inputs.jsonl", "input")?.into_iter().map(String::into_bytes))?;
    plant(
        "stream_json",
        texts("claude/frames.jsonl", "input")?.into_iter().map(String::into_bytes),
    )?;
    plant("stream_json", texts("claude/lines.jsonl", "line")?.into_iter().map(String::into_bytes))?;
    plant("stream_json", transcripts()?.into_iter())
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors")
}

/// One member of every case: a string as it is, anything else as JSON.
fn texts(file: &str, member: &str) -> Outcome<Vec<String>> {
    let cases = fs::read_to_string(vectors().join(file))?;
    // Some cases nest deeper than serde_json reads; they are no loss here.
    let cases = cases.split('\n').filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Ok(cases.filter_map(|case| case.get(member).map(text)).collect())
}

/// Short streams of our own frames, behind the three bytes that say how to cut them.
fn streams(packets: &[String]) -> impl Iterator<Item = Vec<u8>> {
    let packets: Vec<_> =
        packets.iter().filter_map(|text| StreamPacket::decode(text).ok()).collect();
    (0..packets.len().div_ceil(3)).map(move |group| {
        let mut bytes = vec![7, 3, 255];
        for packet in packets.iter().skip(group * 3).take(3) {
            sse::encode_packet(packet, &mut bytes);
            bytes.extend_from_slice(sse::HEARTBEAT);
        }
        bytes
    })
}

fn transcripts() -> Outcome<Vec<Vec<u8>>> {
    let files = fs::read_dir(vectors().join("claude/transcripts"))?;
    files.map(|file| Ok(fs::read(file?.path())?)).collect()
}

/// Writes seeds under names that depend on nothing but their content.
fn plant(target: &str, seeds: impl Iterator<Item = Vec<u8>>) -> Outcome<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&folder)?;
    for seed in seeds {
        fs::write(folder.join(name_of(&seed)), seed)?;
    }
    Ok(())
}

fn name_of(seed: &[u8]) -> String {
    // FNV-1a: the same everywhere and forever, which the standard library's hasher does not
    // promise.
    let hash = seed.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("seed-{hash:016x}")
}

//! `decode`: an SSE body of CAP frames into `StreamPacket`s, ours beside two crates plus
//! serde_json.
//!
//! Three layers, on the same bytes: the whole way, framing alone, packets alone. The peers read the
//! very same `StreamPacket` by its strict `Deserialize`, the faster of them also by the leanest
//! serde we could write. Equal results come first: a contender that decodes something else is an
//! error, not a time. No time is asserted; machines differ.

use std::hint::black_box;

use capstan_protocol::StreamPacket;
use serde_json::{Value, json};

use crate::corpus::Corpus;
use crate::environment;
use crate::lean::Lean;
use crate::reader;
use crate::rounds::how_many;
use crate::stopwatch::{Contender, Times, race};
use crate::table::Table;

/// Odd, so that the median is one of the rounds.
const ROUNDS: usize = 31;

/// What an Ethernet frame leaves for the body, and so what a socket often yields.
const SEGMENT: usize = 1400;

const OURS: &str = "capstan";

/// The peers, and what the contenders share underneath.
const CRATES: &[&str] =
    &["eventsource-stream", "sse-stream", "serde_json", "serde", "memchr", "simdutf8"];

/// One line of the result: who took how long for what.
struct Heat {
    layer: &'static str,
    case: &'static str,
    form: &'static str,
    packets: usize,
    bytes: usize,
    times: Vec<Times>,
}

pub fn run() -> std::io::Result<()> {
    let mut heats = Vec::new();
    for (case, corpus) in [
        ("tokens", Corpus::tokens(20_000)),
        ("4 kB", Corpus::pages(2_000)),
        ("mixed", Corpus::mixed(20_000)),
    ] {
        heats.extend(measure(case, &corpus, "1400 B chunks", &corpus.chunks(SEGMENT)));
        heats.push(measure_packets(case, &corpus));
    }
    // eventsource-stream moves the rest of the chunk at every line, so a whole body costs it the
    // square of its length: these bodies are short enough to wait for.
    for (case, corpus) in [
        ("tokens", Corpus::tokens(2_000)),
        ("4 kB", Corpus::pages(200)),
        ("mixed", Corpus::mixed(2_000)),
    ] {
        heats.extend(measure(case, &corpus, "whole body", &[&corpus.body]));
    }
    heats.sort_by_key(|heat| {
        ["pipeline", "framing", "packet"].iter().position(|layer| *layer == heat.layer)
    });
    print(&heats);
    save(&heats)
}

/// The whole way, and framing alone.
fn measure(case: &'static str, corpus: &Corpus, form: &'static str, chunks: &[&[u8]]) -> [Heat; 2] {
    verify(corpus, chunks);
    let heat = |layer, contenders| Heat {
        layer,
        case,
        form,
        packets: corpus.packets.len(),
        bytes: corpus.body.len(),
        times: race(contenders, how_many(ROUNDS)),
    };
    let pipeline = vec![
        Contender::new("eventsource-stream + serde", || {
            reader::eventsource_stream(chunks, |data| drop(black_box(by_serde(data))));
        }),
        Contender::new("sse-stream + serde", || {
            reader::sse_stream(chunks, |data| drop(black_box(by_serde(data))));
        }),
        Contender::new("sse-stream + lean serde", || {
            reader::sse_stream(chunks, |data| drop(black_box(by_lean_serde(data))));
        }),
        Contender::new(OURS, || reader::capstan(chunks, |data| drop(black_box(by_capstan(data))))),
    ];
    let framing = vec![
        Contender::new("eventsource-stream", || reader::eventsource_stream(chunks, look)),
        Contender::new("sse-stream", || reader::sse_stream(chunks, look)),
        Contender::new(OURS, || reader::capstan(chunks, look)),
    ];
    [heat("pipeline", pipeline), heat("framing", framing)]
}

/// JSON alone.
fn measure_packets(case: &'static str, corpus: &Corpus) -> Heat {
    let texts: Vec<String> = corpus.packets.iter().map(StreamPacket::to_json).collect();
    let all = |decode: fn(&str) -> StreamPacket| {
        texts.iter().for_each(|text| drop(black_box(decode(text))))
    };
    let contenders = vec![
        Contender::new("serde", || all(by_serde)),
        Contender::new("lean serde", || all(by_lean_serde)),
        Contender::new(OURS, || all(by_capstan)),
    ];
    Heat {
        layer: "packet",
        case,
        form: "",
        packets: texts.len(),
        bytes: texts.iter().map(String::len).sum(),
        times: race(contenders, how_many(ROUNDS)),
    }
}

fn by_capstan(data: &str) -> StreamPacket {
    StreamPacket::decode(data).expect("a packet of ours")
}

fn by_serde(data: &str) -> StreamPacket {
    serde_json::from_str(data).expect("a packet of ours")
}

fn by_lean_serde(data: &str) -> StreamPacket {
    serde_json::from_str::<Lean>(data).expect("a packet of ours").0
}

fn look(data: &str) {
    black_box(data);
}

/// Hands the data of every frame to the closure.
type Read<'a> = &'a dyn Fn(&mut dyn FnMut(&str));

/// Every contender must give back the packets that were encoded.
fn verify(corpus: &Corpus, chunks: &[&[u8]]) {
    let check = |name: &str, read: Read<'_>, decode: fn(&str) -> StreamPacket| {
        let mut packets = Vec::new();
        read(&mut |data| packets.push(decode(data)));
        assert!(packets == corpus.packets, "{name} decodes other packets than were encoded");
    };
    check("eventsource-stream", &|take| reader::eventsource_stream(chunks, take), by_serde);
    check("sse-stream", &|take| reader::sse_stream(chunks, take), by_serde);
    check("lean serde", &|take| reader::sse_stream(chunks, take), by_lean_serde);
    check(OURS, &|take| reader::capstan(chunks, take), by_capstan);
}

impl Heat {
    fn nanos_per_packet(&self, times: &Times) -> f64 {
        times.median() as f64 / self.packets as f64
    }

    /// How many times faster we are than the fastest of the others.
    fn ratio(&self) -> f64 {
        let median = |ours: bool| {
            self.times.iter().filter(|t| (t.name == OURS) == ours).map(Times::median).min()
        };
        median(false).unwrap_or(0) as f64 / median(true).unwrap_or(1) as f64
    }

    fn to_json(&self) -> Value {
        let contenders: Vec<Value> =
            self.times.iter().map(|times| self.contender_json(times)).collect();
        json!({
            "layer": self.layer,
            "case": self.case,
            "form": self.form,
            "packets": self.packets,
            "bytes": self.bytes,
            "ratio_to_fastest_peer": self.ratio(),
            "contenders": contenders,
        })
    }

    fn contender_json(&self, times: &Times) -> Value {
        json!({
            "name": times.name,
            "median_ns_per_packet": self.nanos_per_packet(times),
            "fastest_ns_per_packet": times.fastest() as f64 / self.packets as f64,
            "rounds_ns": times.nanos,
        })
    }
}

fn print(heats: &[Heat]) {
    let mut table = Table::new(&["", "ns/packet", "packets/s", "MB/s", "ratio"]);
    for heat in heats {
        let title = [heat.layer, heat.case, heat.form].join("  ");
        table.row(vec![
            title.trim_end().to_owned(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
        ]);
        for times in &heat.times {
            let nanos = heat.nanos_per_packet(times);
            table.row(vec![
                format!("  {}", times.name),
                format!("{nanos:.0}"),
                format!("{:.0}", 1e9 / nanos),
                format!("{:.0}", heat.bytes as f64 * 1e3 / times.median() as f64),
                if times.name == OURS { format!("{:.2}x", heat.ratio()) } else { String::new() },
            ]);
        }
    }
    table.print();
}

fn save(heats: &[Heat]) -> std::io::Result<()> {
    let result = json!({
        "bench": "decode",
        "rounds": how_many(ROUNDS),
        "environment": environment::describe(CRATES),
        "heats": heats.iter().map(Heat::to_json).collect::<Vec<_>>(),
    });
    environment::save("decode", &result)
}

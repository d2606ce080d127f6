//! Streams of packets to measure with: made up, but the same in every run.

use capstan_protocol::{
    Close, ErrorSeverity, Payload, RawObject, StreamError, StreamPacket, Timestamp, sse,
};
use uuid::Uuid;

/// Microseconds of 2026-02-03T10:15:37Z, when all these streams begin.
const BEGIN: i64 = 1_770_113_737_000_000;

/// What a model writes most: words. Every one has its blank, as tokens do.
const WORDS: &[&str] = &[
    " the", " of", " a", "ing", " is", " stream", " agent", " first", ",", ".", " because",
    " answer", "s", " in",
];
const ESCAPED: &[&str] = &["\n", "\n\n", " \"", "\":", "\\", "\t", "\n- ", ".\n"];
const FOREIGN: &[&str] = &["é", " où", " für", "日本", "です", " Привет", "🐎", "—", "…"];

/// The encoded body of a stream, and the packets in it.
pub struct Corpus {
    pub packets: Vec<StreamPacket>,
    pub body: Vec<u8>,
}

impl Corpus {
    /// Token-sized DELTAs: 1 to 12 characters, a tenth each with escapes and with letters beyond
    /// ASCII.
    pub fn tokens(count: usize) -> Self {
        Self::build(count, |dice, _| Payload::Delta(token(dice)))
    }

    /// DELTAs of some 4 kB of prose with line breaks and quotes.
    pub fn pages(count: usize) -> Self {
        Self::build(count, |dice, _| {
            let mut text = String::new();
            while text.len() < 4096 {
                text.push_str(&token(dice));
            }
            Payload::Delta(text)
        })
    }

    /// An agent at work: mostly tokens, every tenth packet an EVENT, every twenty-fifth an ERROR, a
    /// CLOSE.
    pub fn mixed(count: usize) -> Self {
        Self::build(count, |dice, seq| match seq {
            _ if seq == count => Payload::Close(Close::Reason(Close::COMPLETED.to_owned())),
            _ if seq.is_multiple_of(25) => Payload::Error(warning(dice).into()),
            _ if seq.is_multiple_of(10) => Payload::Event(thought(dice)),
            _ => Payload::Delta(token(dice)),
        })
    }

    fn build(count: usize, payload: impl Fn(&mut Dice, usize) -> Payload) -> Self {
        let mut dice = Dice(0x00C0_FFEE);
        let stream_id = Uuid::from_u128(0x7c9e6679_7425_40de_944b_e07fc1f90ae7);
        let (mut packets, mut body) = (Vec::with_capacity(count), Vec::new());
        let mut micros = BEGIN;
        for seq in 1..=count {
            micros += 1 + dice.below(20_000);
            let payload = payload(&mut dice, seq);
            let packet = StreamPacket {
                stream_id,
                seq: seq as u64,
                t: Timestamp::from_micros(micros),
                payload,
            };
            sse::encode_packet(&packet, &mut body);
            packets.push(packet);
        }
        Self { packets, body }
    }

    /// The body as it comes off a socket in pieces of `size` bytes.
    pub fn chunks(&self, size: usize) -> Vec<&[u8]> {
        self.body.chunks(size).collect()
    }
}

fn token(dice: &mut Dice) -> String {
    let pieces = match dice.below(10) {
        0 => ESCAPED,
        1 => FOREIGN,
        _ => WORDS,
    };
    let mut text = String::new();
    for _ in 0..=dice.below(2) {
        text.push_str(dice.pick(pieces));
    }
    text.chars().take(12).collect()
}

fn warning(dice: &mut Dice) -> StreamError {
    let message =
        format!("The tool{}{} did not answer in time.", dice.pick(WORDS), dice.pick(WORDS));
    StreamError::new("tool_timeout", message, ErrorSeverity::Warning)
        .with_detail("retry_after", dice.below(60))
}

fn thought(dice: &mut Dice) -> RawObject {
    let event = serde_json::json!({
        "id": Uuid::from_u128(dice.next().into()),
        "timestamp": "2026-02-03T10:15:37.500000Z",
        "type": "THOUGHT_TRACE",
        "data": { "content": (0..12).map(|_| dice.pick(WORDS)).collect::<String>(),
        "complexity": 0.25 },
    });
    RawObject::from_serialize(&event).expect("a JSON object")
}

/// SplitMix64: enough to vary a text, and no dependency.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: i64) -> i64 {
        (self.next() % bound as u64) as i64
    }

    fn pick<'a>(&mut self, from: &'a [&'a str]) -> &'a str {
        from[self.next() as usize % from.len()]
    }
}

//! What the agent says: a pure function of seed, message and attempt. The agent performs it, the
//! model foretells it.

use std::time::Duration;

use fastrand::Rng;

/// How often a run may be tried.
pub(crate) const MAX_ATTEMPTS: u32 = 3;

/// Awkward on purpose: several bytes a character, line separators, quotes.
const WORDS: [&str; 8] =
    ["anchor ", "Bö ", "行 ", "drum ", "line\u{2028}", "\"rope\" ", "sail\n", "🚢 "];

/// One thing that the agent does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Say {
    Delta(String),
    Event(usize),
    Warning,
    Pause(Duration),
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum End {
    Complete,
    /// TRANSIENT; the gateway itself waits these seconds.
    Short(u64),
    /// TRANSIENT; the client has to come back.
    Long(u64),
    /// TRANSIENT, and the agent asks that the gateway does not try again by itself.
    Last,
    Fatal,
    /// Says nothing more until it is stopped or timed out.
    Hang,
}

impl End {
    /// The code of the fault that follows.
    pub(crate) fn code(self) -> Option<&'static str> {
        match self {
            Self::Complete => None,
            Self::Short(_) => Some("upstream_unreachable"),
            Self::Long(_) => Some("rate_limit_exceeded"),
            Self::Last => Some("upstream_truncated"),
            Self::Fatal => Some("content_refused"),
            Self::Hang => Some("timeout"),
        }
    }
}

/// One attempt's script.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) says: Vec<Say>,
    pub(crate) end: End,
}

impl Script {
    pub(crate) fn of(seed: u64, message: &str, attempt: u32) -> Self {
        let mixed = message.bytes().fold(seed, |mixed, byte| {
            (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(7)
        });
        let mut shared = Rng::with_seed(mixed);
        let words: Vec<&str> = (0..shared.usize(0..14)).map(|_| word(&mut shared)).collect();
        let events: Vec<usize> = (0..shared.usize(0..3)).map(|_| shared.usize(0..60)).collect();
        let mut own =
            Rng::with_seed(mixed ^ u64::from(attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut says = chunks(&text(words, &mut own), &events, &mut own);
        let end = end(&mut own, attempt);
        if end != End::Complete {
            says.truncate(own.usize(0..=says.len()));
        }
        Self { says, end }
    }

    /// All of its text.
    pub(crate) fn text(&self) -> String {
        let deltas = self
            .says
            .iter()
            .filter_map(|say| if let Say::Delta(text) = say { Some(text) } else { None });
        deltas.map(String::as_str).collect()
    }

    /// How often it shows this event.
    pub(crate) fn shows(&self, event: usize) -> usize {
        self.says.iter().filter(|say| **say == Say::Event(event)).count()
    }
}

fn word(rng: &mut Rng) -> &'static str {
    WORDS[rng.usize(0..WORDS.len())]
}

/// The shared text, or one that goes its own way from some word on.
fn text(mut words: Vec<&'static str>, rng: &mut Rng) -> String {
    if rng.u32(0..4) == 0 {
        words.truncate(rng.usize(0..=words.len()));
        words.extend((0..rng.usize(0..5)).map(|_| word(rng)));
    }
    words.concat()
}

/// Every attempt cuts its text differently; events come at about the same places.
fn chunks(text: &str, events: &[usize], rng: &mut Rng) -> Vec<Say> {
    let mut says = Vec::new();
    let mut chars = text.chars().peekable();
    let mut at = 0;
    while chars.peek().is_some() {
        let piece: String = chars.by_ref().take(rng.usize(0..9)).collect();
        let range = at..at + piece.chars().count();
        at = range.end;
        says.push(Say::Delta(piece));
        says.extend(
            events.iter().filter(|place| range.contains(place)).map(|place| Say::Event(*place)),
        );
        match rng.u32(0..12) {
            0 => says.push(Say::Warning),
            1..=3 => says.push(Say::Pause(Duration::from_millis(rng.u64(0..40)))),
            4 => says.push(Say::Pause(Duration::from_secs(rng.u64(1..20)))),
            _ => {}
        }
    }
    says
}

fn end(rng: &mut Rng, attempt: u32) -> End {
    match rng.u32(0..16) {
        0..=2 => End::Short(rng.u64(1..=5)),
        3..=5 => End::Long(rng.u64(20..90)),
        6 => End::Last,
        7 => End::Fatal,
        8 => End::Hang,
        // The last attempt may fail as well, but mostly a run should have something to complete.
        9..=11 if attempt < MAX_ATTEMPTS => End::Long(20),
        _ => End::Complete,
    }
}

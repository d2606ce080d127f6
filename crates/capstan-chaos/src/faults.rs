//! What may go wrong and how often: the settings. What does happen to one stream is a
//! [`Fate`](crate::Fate).
//!
//! A rate of 0 or less (or NaN) means never, of 1 or more always. Ranges are drawn from, both ends
//! included.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Every kind of fault with its rate and parameters, and what they apply to.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// Answer with an error status instead of forwarding.
    pub refuse: Refuse,
    /// Hold the response back.
    pub delay: Delay,
    /// Pass only so many bytes per second.
    pub throttle: Throttle,
    /// Write single bytes.
    pub drip: Drip,
    /// Send packets again when a client resumes.
    pub repeat: Repeat,
    /// Say nothing for a while, then go on or cut.
    pub stall: Stall,
    /// Break the connection.
    pub cut: Cut,
    /// End the body well-formed, but too early.
    pub end: End,
    /// After so many faults everything passes, so that a client with finite patience can finish.
    pub budget: Option<u64>,
    /// The first so many streams pass untouched.
    pub spare: u64,
    /// Also break requests and responses that are no streams.
    pub all: bool,
}

/// An answer of the proxy's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Refuse {
    /// How often.
    pub rate: f64,
    /// The statuses to choose from; 503 if empty.
    pub statuses: Vec<u16>,
    /// The value of `Retry-After`, in seconds.
    pub retry_after: Option<u32>,
    /// Which requests may be refused.
    pub when: When,
}

/// Which requests may be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Any.
    Any,
    /// Those with a `Last-Event-ID`: many clients rightly give up if their very first connect is
    /// refused.
    Resuming,
}

/// A pause before the response's head.
#[derive(Debug, Clone, PartialEq)]
pub struct Delay {
    /// How often.
    pub rate: f64,
    /// How long.
    pub time: RangeInclusive<Duration>,
}

/// A narrow line.
#[derive(Debug, Clone, PartialEq)]
pub struct Throttle {
    /// How often.
    pub rate: f64,
    /// How narrow.
    pub bytes_per_second: u64,
}

/// Every byte a write of its own, from the status line to the last chunk.
#[derive(Debug, Clone, PartialEq)]
pub struct Drip {
    /// How often.
    pub rate: f64,
}

/// Packets that a resuming client has seen, sent again before the new ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Repeat {
    /// How often.
    pub rate: f64,
    /// How many: the last ones up to the client's `Last-Event-ID`.
    pub packets: usize,
}

/// Silence in the middle of a body.
#[derive(Debug, Clone, PartialEq)]
pub struct Stall {
    /// How often.
    pub rate: f64,
    /// From where.
    pub after: After,
    /// How long.
    pub time: RangeInclusive<Duration>,
    /// What follows.
    pub then: Then,
}

/// What follows a stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The rest of the body.
    Continue,
    /// A cut, in the way that [`Cut::with`] says.
    Cut,
    /// Either, drawn.
    Any,
}

/// A broken connection: the body is not terminated.
#[derive(Debug, Clone, PartialEq)]
pub struct Cut {
    /// How often.
    pub rate: f64,
    /// After how much of the body at least.
    pub after: After,
    /// Where exactly, from there on.
    pub at: At,
    /// How the connection ends.
    pub with: With,
}

/// Where a cut falls, once enough of the body has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Right there: after exactly n bytes, or right behind the n-th packet.
    Exact,
    /// Inside the next frame.
    Frame,
    /// Inside the next character of several bytes; a body without one passes.
    Character,
    /// Before the response's head, whatever `after` says.
    Head,
    /// One of these, drawn.
    Any,
}

/// How a connection is hung up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangup {
    /// RST: the peer sees "connection reset".
    Reset,
    /// FIN: the peer sees the end of the connection, in the middle of a body.
    Fin,
}

/// Which way of hanging up a cut takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum With {
    /// [`Hangup::Reset`].
    Reset,
    /// [`Hangup::Fin`].
    Fin,
    /// Either, drawn.
    Any,
}

/// A body that ends cleanly at a frame boundary, without what was still to come (in CAP: without
/// CLOSE).
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// How often.
    pub rate: f64,
    /// After how much of the body at least.
    pub after: After,
}

/// How much of a body has to pass before a fault strikes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum After {
    /// So many packets: SSE frames with data. Repeated ones do not count.
    Packets(RangeInclusive<u64>),
    /// So many bytes.
    Bytes(RangeInclusive<u64>),
}

/// Where faults in a body strike unless told otherwise: early enough to be met by a short answer.
const EARLY: After = After::Packets(0..=20);

impl Faults {
    /// Everything passes. A start for settings of one's own, with parameters that only want a rate.
    pub fn none() -> Self {
        Self {
            refuse: Refuse {
                rate: 0.0,
                statuses: vec![502, 503],
                retry_after: None,
                when: When::Any,
            },
            delay: Delay { rate: 0.0, time: millis(500, 500) },
            throttle: Throttle { rate: 0.0, bytes_per_second: 1000 },
            drip: Drip { rate: 0.0 },
            repeat: Repeat { rate: 0.0, packets: 3 },
            stall: Stall {
                rate: 0.0,
                after: EARLY,
                time: millis(2000, 2000),
                then: Then::Continue,
            },
            cut: Cut { rate: 0.0, after: EARLY, at: At::Exact, with: With::Reset },
            end: End { rate: 0.0, after: EARLY },
            budget: None,
            spare: 0,
            all: false,
        }
    }

    /// Everything goes wrong, often. A client that resumes gets through if it is patient enough:
    /// about two of three connections bring something new.
    pub fn brutal() -> Self {
        let early = After::Packets(0..=12);
        Self {
            refuse: Refuse {
                rate: 0.2,
                statuses: vec![502, 503],
                retry_after: None,
                when: When::Resuming,
            },
            delay: Delay { rate: 0.25, time: millis(50, 500) },
            throttle: Throttle { rate: 0.1, bytes_per_second: 4000 },
            drip: Drip { rate: 0.25 },
            repeat: Repeat { rate: 0.5, packets: 5 },
            stall: Stall {
                rate: 0.15,
                after: early.clone(),
                time: millis(100, 2000),
                then: Then::Any,
            },
            cut: Cut { rate: 0.4, after: early.clone(), at: At::Any, with: With::Any },
            end: End { rate: 0.2, after: early },
            ..Self::none()
        }
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::none()
    }
}

fn millis(from: u64, to: u64) -> RangeInclusive<Duration> {
    Duration::from_millis(from)..=Duration::from_millis(to)
}

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
    /// Limit the bytes per second.
    pub throttle: Throttle,
    /// Write single bytes.
    pub drip: Drip,
    /// Send packets again when a client resumes.
    pub repeat: Repeat,
    /// Send nothing for a while, then continue or cut.
    pub stall: Stall,
    /// Break the connection.
    pub cut: Cut,
    /// End the body well-formed, but too early.
    pub end: End,
    /// Let everything pass after this many faults, so that a client with limited retries can
    /// finish.
    pub budget: Option<u64>,
    /// The first streams that pass untouched.
    pub spare: u64,
    /// Also break requests and responses that are no streams.
    pub all: bool,
}

/// An answer of the proxy's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Refuse {
    /// The rate, 0 to 1.
    pub rate: f64,
    /// The statuses to choose from; 503 if empty.
    pub statuses: Vec<u16>,
    /// The value of `Retry-After`, in seconds.
    pub retry_after: Option<u32>,
    /// The requests that may be refused.
    pub when: When,
}

/// The requests that may be refused.
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
    /// The rate, 0 to 1.
    pub rate: f64,
    /// The duration.
    pub time: RangeInclusive<Duration>,
}

/// A narrow line.
#[derive(Debug, Clone, PartialEq)]
pub struct Throttle {
    /// The rate, 0 to 1.
    pub rate: f64,
    /// The limit.
    pub bytes_per_second: u64,
}

/// Write every byte separately, from the status line to the last chunk.
#[derive(Debug, Clone, PartialEq)]
pub struct Drip {
    /// The rate, 0 to 1.
    pub rate: f64,
}

/// Packets that a resuming client has seen, sent again before the new ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Repeat {
    /// The rate, 0 to 1.
    pub rate: f64,
    /// The number of packets: the last ones up to the client's `Last-Event-ID`.
    pub packets: usize,
}

/// Silence in the middle of a body.
#[derive(Debug, Clone, PartialEq)]
pub struct Stall {
    /// The rate, 0 to 1.
    pub rate: f64,
    /// The part of the body before it.
    pub after: After,
    /// The duration.
    pub time: RangeInclusive<Duration>,
    /// What follows it.
    pub then: Then,
}

/// What follows a stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The rest of the body.
    Continue,
    /// A cut, as [`Cut::with`] says.
    Cut,
    /// Either, drawn.
    Any,
}

/// A broken connection: the body is not terminated.
#[derive(Debug, Clone, PartialEq)]
pub struct Cut {
    /// The rate, 0 to 1.
    pub rate: f64,
    /// After how much of the body at least.
    pub after: After,
    /// The exact place after that.
    pub at: At,
    /// How the connection ends.
    pub with: With,
}

/// The exact place of a cut, after enough of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Right there: after exactly n bytes, or right behind the n-th packet.
    Exact,
    /// Inside the next frame.
    Frame,
    /// Inside the next character of several bytes; a body without one passes.
    Character,
    /// Before the response's head; `after` does not matter.
    Head,
    /// One of these at random.
    Any,
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangup {
    /// RST: the peer sees "connection reset".
    Reset,
    /// FIN: the peer sees the end of the connection, in the middle of a body.
    Fin,
}

/// How a cut ends the connection.
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
    /// The rate, 0 to 1.
    pub rate: f64,
    /// After how much of the body at least.
    pub after: After,
}

/// The part of a body before a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum After {
    /// Packets: SSE frames with data. Repeated ones do not count.
    Packets(RangeInclusive<u64>),
    /// Bytes.
    Bytes(RangeInclusive<u64>),
}

/// The default place of faults in a body: early enough for a short answer.
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

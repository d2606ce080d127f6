//! What an agent is told to say in these benches, as text, so that ours and the peer's obey the
//! same words.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Digits of a stamp: nanoseconds since 1970, which all processes of one machine share.
pub const STAMP: usize = 20;

const FILLER: &str = "the quick brown fox jumps over the lazy dog and runs on";

/// So many deltas with a pause before each.
#[derive(Debug, Clone, Copy)]
pub struct Script {
    pub count: u64,
    pub pause: Duration,
}

impl Script {
    pub fn burst(count: u64) -> Self {
        Self { count, pause: Duration::ZERO }
    }

    /// One delta, then silence for as long as anybody measures.
    pub fn silence() -> Self {
        Self { count: 1_000, pause: Duration::from_secs(100) }
    }

    pub fn to_text(self) -> String {
        format!("{} {}", self.count, self.pause.as_micros())
    }

    pub fn parse(text: &str) -> Option<Self> {
        let (count, pause) = text.split_once(' ')?;
        Some(Self { count: count.parse().ok()?, pause: Duration::from_micros(pause.parse().ok()?) })
    }

    /// What the n-th delta says: 20 to 40 characters. One that is paced begins with the time at
    /// which it was said.
    pub fn text(self, n: u64) -> String {
        let length = 20 + (n % 21) as usize;
        if self.pause.is_zero() {
            return FILLER[..length].to_owned();
        }
        format!("{:0STAMP$}{}", nanos(), &FILLER[..length - STAMP])
    }
}

pub fn nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

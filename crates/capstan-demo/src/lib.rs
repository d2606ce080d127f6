#![doc = include_str!("../README.md")]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod args;
mod command;
mod perform;
mod reply;
mod showcase;
mod voice;

use std::time::Duration;

use command::Command;
use voice::Voice;

use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};

/// About as fast as a person likes to read along.
const DEFAULT_DELAY: Duration = Duration::from_millis(20);
/// The demo has no side effects, so another attempt does no harm.
const MAX_ATTEMPTS: u32 = 3;

/// The demo agent. Send it `/help`.
///
/// ```
/// use capstan_agent::Agent;
/// use capstan_demo::Demo;
///
/// assert_eq!(Demo::new().max_attempts(), 3);
/// ```
#[derive(Debug, Clone)]
pub struct Demo {
    delay: Duration,
}

impl Demo {
    /// Talks at reading pace.
    pub fn new() -> Self {
        Self::with_delay(DEFAULT_DELAY)
    }

    /// Waits `delay` before each word. `/tokens` and `/fault` have a delay of their own.
    pub fn with_delay(delay: Duration) -> Self {
        Self { delay }
    }
}

impl Default for Demo {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Agent for Demo {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let text = turn.text();
        let mut voice = Voice::new(out, self.delay, &text);
        match Command::parse(&text)? {
            Some(command) => command.perform(&turn, &mut voice).await,
            None => voice.answer(&reply::compose(&turn)).await,
        }
    }

    fn max_attempts(&self) -> u32 {
        MAX_ATTEMPTS
    }
}

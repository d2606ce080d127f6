//! The timeouts of a call.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

/// The timeouts of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallTimeouts {
    /// Until the connection is established.
    pub connect: Duration,
    /// Until the answer begins, including the connection. It is `thinking` if that is longer and
    /// the model may think first.
    pub first_token: Duration,
    /// Between two pieces of the answer.
    pub idle: Duration,
    /// Between two pieces while a model thinks without output. It must be below the gateway's own
    /// `timeouts.idle`.
    pub thinking: Duration,
    /// The whole call.
    pub total: Duration,
}

/// The timeout for silence while a model thinks, in seconds. The clients of coding agents and
/// OpenAI's SDKs allow as much.
const THINKING: u64 = 300;
/// The timeout of a streamed call, in seconds. An answer of 128,000 tokens takes half an hour.
const TOTAL: u64 = 3600;

impl CallTimeouts {
    /// For model providers: what a person would wait for. Two calls without a first token take a
    /// minute; a stall in the middle and another one after it take less.
    pub const PROVIDER: Self = Self::of(10, 30, 20);
    /// For remote agents, which use tools and take longer.
    pub const FOREIGN: Self = Self::of(10, 100, 110);
    /// For processes: starting one may compile or download. There is no connection.
    pub const PROCESS: Self = Self::of(10, 110, 110);

    const fn of(connect: u64, first_token: u64, idle: u64) -> Self {
        let seconds = Duration::from_secs;
        Self {
            connect: seconds(connect),
            first_token: seconds(first_token),
            idle: seconds(idle),
            thinking: seconds(THINKING),
            total: seconds(TOTAL),
        }
    }
}

impl CallTimeouts {
    /// The timeouts of a call whose model may think first.
    pub(crate) fn of_thinker(self) -> Self {
        Self { first_token: self.first_token.max(self.thinking), ..self }
    }
}

/// The time left until then.
pub(crate) fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// The table `timeouts` of a configuration, in seconds.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TimeoutsConfig {
    connect: Option<f64>,
    first_token: Option<f64>,
    idle: Option<f64>,
    thinking: Option<f64>,
    total: Option<f64>,
}

impl TimeoutsConfig {
    /// Replaces a kind's defaults by the configured values. The error names an invalid value.
    pub(crate) fn over(&self, defaults: CallTimeouts) -> Result<CallTimeouts, &'static str> {
        let mut times = defaults;
        for (name, given, target) in [
            ("timeouts.connect", self.connect, &mut times.connect),
            ("timeouts.first_token", self.first_token, &mut times.first_token),
            ("timeouts.idle", self.idle, &mut times.idle),
            ("timeouts.thinking", self.thinking, &mut times.thinking),
            ("timeouts.total", self.total, &mut times.total),
        ] {
            if let Some(seconds) = given {
                let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
                *target = time.ok_or(name)?;
            }
        }
        Ok(times)
    }
}

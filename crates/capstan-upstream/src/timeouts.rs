//! How long a call may take.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

/// The limits of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallTimeouts {
    /// Until the connection stands.
    pub connect: Duration,
    /// Until the answer begins, connection included. `thinking`, if that is longer and the model
    /// may think first.
    pub first_token: Duration,
    /// Between two pieces of it.
    pub idle: Duration,
    /// The same while a model thinks and shows nothing of it. The gateway's own `timeouts.idle` has
    /// room for it.
    pub thinking: Duration,
    /// The whole call.
    pub total: Duration,
}

/// Seconds of silence of a model that thinks: what coding agents' clients and OpenAI's allow.
const THINKING: u64 = 300;
/// Seconds of a call that streams: an answer of 128,000 tokens takes half an hour.
const TOTAL: u64 = 3600;

impl CallTimeouts {
    /// For model providers: what a person would wait for. Twice without a first token is over after
    /// a minute, a stall in the middle and another one after it sooner.
    pub const PROVIDER: Self = Self::of(10, 30, 20);
    /// For agents behind a network: they use tools, and so take their time.
    pub const FOREIGN: Self = Self::of(10, 100, 110);
    /// For processes: starting one may compile or download; there is nothing to connect to.
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
    /// The limits of a call whose model may think first.
    pub(crate) fn of_thinker(self) -> Self {
        Self { first_token: self.first_token.max(self.thinking), ..self }
    }
}

/// What is left until then.
pub(crate) fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// The `timeouts` of a configuration, in seconds.
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
    /// Over a kind's defaults; the name of a value that is no time.
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

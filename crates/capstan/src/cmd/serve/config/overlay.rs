//! `[limits]`, `[timeouts]`, `[retention]`: the file's values over the gateway's defaults.

use std::time::Duration;

use capstan_gateway::{Limits, Retention, Timeouts};
use serde::Deserialize;
use serde::de::Error as _;

use super::shown::Shown as _;
use crate::cmd::Failure;

/// The least claim age that the protocol promises: a repeated request must not start a second run.
const PROMISED_CLAIM_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Declares an optional overlay over one of the gateway's structs.
macro_rules! overlay {
    ($name:ident over $target:ident { $($field:ident: $type:ty,)* }) => {
        #[derive(Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(super) struct $name { $($field: Option<$type>,)* }

        impl $name {
            pub(super) fn apply(&self, target: &mut $target) {
                $(if let Some(value) = self.$field { target.$field = value.into(); })*
            }

            /// Every key with its value.
            pub(super) fn values(target: &$target) -> Vec<(&'static str, String)> {
                vec![$((stringify!($field), target.$field.shown())),*]
            }
        }
    };
}

overlay! { LimitsConfig over Limits {
    requests_per_minute: u32, tokens_per_minute: u64, tokens_per_day: u64, sessions: u64,
    messages_per_session: usize, runs_per_tenant: usize, deliveries_per_tenant: usize,
    waiting_per_tenant: usize, bytes_per_session: u64, bytes_per_tenant: u64,
    unstored_bytes_per_tenant: u64, bytes_in_flight_per_tenant: usize, bytes_in_flight: usize,
    share_per_tenant: u32, runs: usize,
    readers_per_tenant: usize, connections_per_address: usize, body_bytes: usize,
    body_bytes_per_second: usize, body_values: usize, whole_bytes: usize, packets_per_stream: u64,
    bytes_per_stream: u64,
} }

overlay! { TimeoutsConfig over Timeouts {
    run: Seconds, idle: Seconds, request: Seconds, heartbeat: Seconds, waiting: Seconds,
    backoff: Seconds,
    drain: Seconds, idle_connection: Seconds, ping: Seconds, stalled_reader: Seconds,
    unread_chat: Seconds,
} }

overlay! { RetentionConfig over Retention { max_age: Seconds, max_bytes: u64, claim_age: Seconds,
} }

/// A number of seconds; fractions are fine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seconds(Duration);

impl From<Seconds> for Duration {
    fn from(seconds: Seconds) -> Self {
        seconds.0
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds)
            .map(Self)
            .map_err(|_| D::Error::custom("expected a number of seconds"))
    }
}

/// Refuses a claim age below the promised day: a late duplicate would start a second run.
pub(super) fn check_claim_age(claim_age: Duration) -> Result<(), Failure> {
    if claim_age >= PROMISED_CLAIM_AGE {
        return Ok(());
    }
    let (given, least) = (claim_age.as_secs_f64(), PROMISED_CLAIM_AGE.as_secs());
    Err(Failure::usage(format!("retention.claim_age: {given} s is less than {least} s (24 h)"))
        .with_help(
            "a key must start no second run for 24 h after its stream is gone; streams \
         themselves may go sooner (max_age)",
        ))
}

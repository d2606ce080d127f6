//! The flags that choose faults. A parameter without its fault is refused, because it would do
//! nothing.

use std::ops::RangeInclusive;
use std::time::Duration;

use capstan_chaos::{After, At, Faults, Then, When, With};

use super::values;

#[derive(clap::Args)]
pub(super) struct Flags {
    /// Turn all faults on, with high rates; other flags adjust them
    #[arg(long, groups = ["cuts", "ends", "stalls", "delays", "throttles", "refusals", "repeats",
    "hangups"])]
    brutal: bool,

    /// Let everything pass after this many faults, so that a client with limited retries can finish
    #[arg(long, value_name = "NUMBER")]
    faults: Option<u64>,

    /// Leave the first N streams untouched
    #[arg(long, value_name = "NUMBER")]
    spare: Option<u64>,

    /// Also break responses that are no stream, such as /health
    #[arg(long)]
    all: bool,

    /// Break the connection within the body
    #[arg(long, value_name = "RATE", value_parser = values::rate, num_args = 0..=1,
    default_missing_value = "1",
        groups = ["cuts", "hangups"], help_heading = "Cuts")]
    cut: Option<f64>,

    /// After how much of the body: packets (5, 0-20) or bytes (100b, 0-4096b) [default: 0-20]
    #[arg(long, value_name = "RANGE", value_parser = values::after, requires = "cuts",
    help_heading = "Cuts")]
    cut_after: Option<After>,

    /// Where exactly: at that place, inside the next frame, inside the next character of several
    /// bytes, or before the response's head [default: exact]
    #[arg(long, value_name = "exact|frame|character|head|any", value_parser = values::at,
    requires = "cuts",
        help_heading = "Cuts")]
    cut_at: Option<At>,

    /// How the connection ends [default: reset]
    #[arg(long, value_name = "reset|fin|any", value_parser = values::with, requires = "hangups",
    help_heading = "Cuts")]
    cut_with: Option<With>,

    /// End the body too early, at a frame boundary and without an error: CLOSE is missing
    #[arg(long, value_name = "RATE", value_parser = values::rate, num_args = 0..=1,
    default_missing_value = "1",
        group = "ends", help_heading = "Early ends")]
    end: Option<f64>,

    /// After at least how much of the body [default: 0-20]
    #[arg(long, value_name = "RANGE", value_parser = values::after, requires = "ends",
    help_heading = "Early ends")]
    end_after: Option<After>,

    /// Send nothing for a while within the body
    #[arg(long, value_name = "RATE", value_parser = values::rate, num_args = 0..=1,
    default_missing_value = "1",
        groups = ["stalls", "hangups"], help_heading = "Stalls")]
    stall: Option<f64>,

    /// After how much of the body [default: 0-20]
    #[arg(long, value_name = "RANGE", value_parser = values::after, requires = "stalls",
    help_heading = "Stalls")]
    stall_after: Option<After>,

    /// How long: 500ms, 2s, 1m, or a range such as 100ms-2s [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = values::time, requires = "stalls",
    help_heading = "Stalls")]
    stall_for: Option<RangeInclusive<Duration>>,

    /// What follows the silence; a cut takes --cut-with [default: continue]
    #[arg(long, value_name = "continue|cut|any", value_parser = values::then, requires = "stalls",
        help_heading = "Stalls")]
    stall_then: Option<Then>,

    /// Delay the response
    #[arg(long, value_name = "RATE", value_parser = values::rate, num_args = 0..=1,
    default_missing_value = "1",
        group = "delays", help_heading = "Slowness")]
    delay: Option<f64>,

    /// How long [default: 500ms]
    #[arg(long, value_name = "TIME", value_parser = values::time, requires = "delays",
    help_heading = "Slowness")]
    delay_for: Option<RangeInclusive<Duration>>,

    /// Limit the bytes per second
    #[arg(long, value_name = "RATE", value_parser = values::rate, num_args = 0..=1,
    default_missing_value = "1",
        group = "throttles", help_heading = "Slowness")]
    throttle: Option<f64>,

    /// How many bytes per second [default: 1000]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..),
    requires = "throttles",
        help_heading = "Slowness")]
    throttle_to: Option<u64>,

    /// Write every byte separately
    #[arg(long, value_name = "RATE", value_parser = values::rate, num_args = 0..=1,
    default_missing_value = "1",
        help_heading = "Slowness")]
    drip: Option<f64>,

    /// Answer with an error status instead of forwarding the request
    #[arg(long, value_name = "RATE", value_parser = values::rate, num_args = 0..=1,
    default_missing_value = "1",
        group = "refusals", help_heading = "Refusals")]
    refuse: Option<f64>,

    /// The statuses to choose from [default: 502,503]
    #[arg(long, value_name = "STATUS", value_parser = values::status, value_delimiter = ',',
    requires = "refusals",
        help_heading = "Refusals")]
    refuse_with: Vec<u16>,

    /// The requests to refuse: any, or only those with a Last-Event-ID [default: any; with
    /// --brutal: resuming]
    #[arg(long, value_name = "any|resuming", value_parser = values::when, requires = "refusals",
        help_heading = "Refusals")]
    refuse_when: Option<When>,

    /// The Retry-After of a refusal, in seconds
    #[arg(long, value_name = "SECONDS", requires = "refusals", help_heading = "Refusals")]
    retry_after: Option<u32>,

    /// Send packets again that a resuming client has received
    #[arg(long, value_name = "RATE", value_parser = values::rate, num_args = 0..=1,
    default_missing_value = "1",
        group = "repeats", help_heading = "Repeats")]
    repeat: Option<f64>,

    /// How many packets, up to its Last-Event-ID [default: 3]
    #[arg(long, value_name = "NUMBER", requires = "repeats", help_heading = "Repeats")]
    repeat_last: Option<usize>,
}

impl Flags {
    /// Applies the flags over the preset.
    pub(super) fn settle(self) -> Faults {
        let mut faults = if self.brutal { Faults::brutal() } else { Faults::none() };
        faults.budget = self.faults;
        faults.all = self.all;
        set(&mut faults.spare, self.spare);
        set(&mut faults.cut.rate, self.cut);
        set(&mut faults.cut.after, self.cut_after);
        set(&mut faults.cut.at, self.cut_at);
        set(&mut faults.cut.with, self.cut_with);
        set(&mut faults.end.rate, self.end);
        set(&mut faults.end.after, self.end_after);
        set(&mut faults.stall.rate, self.stall);
        set(&mut faults.stall.after, self.stall_after);
        set(&mut faults.stall.time, self.stall_for);
        set(&mut faults.stall.then, self.stall_then);
        set(&mut faults.delay.rate, self.delay);
        set(&mut faults.delay.time, self.delay_for);
        set(&mut faults.throttle.rate, self.throttle);
        set(&mut faults.throttle.bytes_per_second, self.throttle_to);
        set(&mut faults.drip.rate, self.drip);
        set(&mut faults.refuse.rate, self.refuse);
        set(
            &mut faults.refuse.statuses,
            Some(self.refuse_with).filter(|statuses| !statuses.is_empty()),
        );
        set(&mut faults.refuse.when, self.refuse_when);
        faults.refuse.retry_after = self.retry_after;
        set(&mut faults.repeat.rate, self.repeat);
        set(&mut faults.repeat.packets, self.repeat_last);
        faults
    }
}

fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

#![doc = include_str!("../README.md")]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod exchange;
mod fate;
mod faults;
mod frames;
mod framing;
mod head;
mod ledger;
mod memory;
mod outlet;
mod passage;
mod proxy;
mod shared;
mod strike_point;
mod upstream;

pub use fate::{Fate, Refusal, Stalling, Stopping};
pub use faults::{
    After, At, Cut, Delay, Drip, End, Faults, Hangup, Refuse, Repeat, Stall, Then, Throttle, When,
    With,
};
pub use ledger::{Handle, Tally};
pub use proxy::Chaos;
pub use strike_point::{Spot, StrikePoint};
pub use upstream::{BadUpstream, Upstream};

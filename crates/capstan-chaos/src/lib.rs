//! A proxy that breaks streaming connections on purpose, in the ways networks do.
//!
//! It stands between a client and its server, forwards plain HTTP/1.1 and, at rates that [`Faults`] sets, cuts,
//! stalls, delays, throttles, refuses, repeats or ends bodies early. What happens to the n-th stream is a pure
//! function of the seed and n ([`Fate::draw`]), so that a failure can be seen again.
//!
//! ```no_run
//! use capstan_chaos::{Chaos, Faults};
//! use tokio::net::TcpListener;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = TcpListener::bind("127.0.0.1:0").await?;
//! let chaos = Chaos::new("http://127.0.0.1:8787".parse()?, Faults::brutal(), 42);
//! let handle = chaos.handle();
//! chaos.serve(listener, std::future::pending()).await;
//! println!("{} cuts", handle.tally().cuts);
//! # Ok(())
//! # }
//! ```
//!
//! One pass explains it: `proxy` accepts and answers one request per connection, `exchange` forwards it and reads the
//! response's `head`, `passage` walks the body (decoded by `framing`, seen frame by frame through `frames`) to the
//! places where its fate strikes, and `outlet` writes to the client's socket by hand.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

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
mod strike_point;
mod upstream;

pub use fate::{Fate, Refusal, Stalling, Stopping};
pub use faults::{
    After, At, Cut, Delay, Drip, End, Faults, Hangup, Refuse, Repeat, Stall, Then, Throttle, When, With,
};
pub use ledger::{Handle, Tally};
pub use proxy::Chaos;
pub use strike_point::{Spot, StrikePoint};
pub use upstream::{BadUpstream, Upstream};

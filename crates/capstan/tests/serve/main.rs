//! The binary as an operator meets it: killed, signalled, raced, misconfigured, read from its log.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod agents;
mod chat;
mod check;
mod client;
mod debug;
mod drain;
#[cfg(feature = "failpoints")]
mod failpoint;
mod keys;
mod kill;
mod logs;
#[cfg(feature = "otel")]
mod peer;
mod process;
mod race;
mod refuse;
mod streams;
mod tls;
#[cfg(feature = "otel")]
mod traces;
#[cfg(not(feature = "otel"))]
mod untraced;

//! The tests of this crate in one program, a module a topic: `cargo nextest run --test it topic::`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod agui;
mod any;
mod assistant_frames;
mod common;
mod conformance;
mod faults;
mod http_errors;
mod packets;
mod properties;
mod requests;
mod schemas;
mod sse;

//! The tests of this crate in one program, a module a topic: `cargo nextest run --test it topic::`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod chaos;
mod common;
mod examples;
mod gateway;
mod http;
mod limits;
mod machine;
mod traces;
mod vectors;

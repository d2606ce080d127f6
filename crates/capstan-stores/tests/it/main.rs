//! The tests of this crate in one program, with one module per topic: `cargo nextest run --test it
//! topic::`. Only `load` is a program of its own, because it measures the memory of its process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod browsing;
mod contract;
#[cfg(feature = "postgres")]
mod copying;
mod crash;
#[path = "../common/filled.rs"]
mod filled;
mod folder;
#[cfg(feature = "postgres")]
#[path = "../common/network.rs"]
mod network;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
#[path = "../common/postgres.rs"]
mod postgres_server;
mod private;

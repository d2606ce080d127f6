#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
//! The provider, as clients on real sockets meet it.

mod common;
mod faults;
mod places;
mod tools;

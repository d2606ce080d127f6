//! The tests of this crate in one program, a module a topic: `cargo nextest run --test it topic::`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![recursion_limit = "512"]

mod a2a;
mod answer_members;
mod awkward;
mod awkward_calls;
mod carried;
mod chat_answers;
mod chat_requests;
mod command;
mod common;
mod continued;
mod end_to_end;
mod errors;
mod fixtures;
mod headers;
mod healed;
mod items;
mod messages;
mod models;
mod native;
mod operators;
mod permissions;
mod presets;
mod providers;
mod refused_requests;
mod repeated_chunks;
mod responses;
mod routes;
mod sessions;
mod stop;
mod turns;

#![doc = include_str!("../README.md")]
#![allow(missing_docs)] // For crates of this workspace alone; names say what has no sentence.
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod access;
pub mod accounted_body;
pub mod answers;
mod cors;
pub mod face;
pub mod hop_by_hop;
pub mod html;
pub mod identity;
pub mod openapi;
pub mod query;
pub mod refusal;
pub mod webhook;

pub use cors::CorsHeaders;

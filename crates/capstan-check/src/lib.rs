#![doc = include_str!("../README.md")]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod a2a;
mod agui;
mod ai_sdk;
mod cap;
mod check;
mod durable;
mod evidence;
mod frames;
mod http;
mod lab;
mod messages;
mod openai;
mod outcome;
mod question;
mod recording;
mod report;
mod run;
mod table;
mod target;
mod tenants;
mod wire;

pub use check::{Check, Face, Use};
pub use evidence::Evidence;
pub use report::{Environment, Judged, Report, Summary, Verdict};
pub use run::{Progress, Unreachable, run};
pub use table::CHECKS;
pub use target::{Faces, Queries, Target};

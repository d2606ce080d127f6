#![doc = include_str!("../README.md")]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod a2a;
pub mod agui;
pub mod anthropic;
mod api_key;
mod attempt_writer;
mod body;
mod brotli;
mod call;
mod callee;
pub mod cap;
mod citation;
pub mod command;
mod decode;
mod document;
mod failed_call;
mod failure_shapes;
mod far_runs;
mod http;
mod json_text;
mod kinds;
pub mod openai;
mod parts;
mod prefill;
mod provider;
mod retries;
mod route;
mod seam;
mod thoughts;
mod timeouts;
mod tools;
mod upstream_failure;
mod wrapping;

pub use api_key::ApiKey;
pub use decode::{Decode, Step};
pub use kinds::{
    AgentTable, ConfigError, KINDS, Kind, build, build_all, build_all_with, build_with, missing_key,
};
pub use retries::{MAX_CALLS, OnCut, Retries};
pub use route::{BreakerChange, Breakers, FIRST_TOKEN};
pub use timeouts::CallTimeouts;
pub use upstream_failure::UpstreamFailure;

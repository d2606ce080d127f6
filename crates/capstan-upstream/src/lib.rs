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
mod config;
mod decode;
mod document;
mod failed_call;
mod failure_shapes;
mod far_runs;
pub mod fates;
mod group;
mod headers;
mod http;
mod json_object;
mod json_text;
mod kind;
mod kinds;
mod members;
mod native;
pub mod openai;
mod parts;
mod passthrough;
mod prefill;
mod preset;
mod provider;
mod request_body;
mod retries;
mod route;
mod seam;
mod thinking;
mod thoughts;
mod timeouts;
mod tools;
mod upstream_failure;
mod usage;
mod wrapping;

pub use api_key::ApiKey;
pub use config::{ConfigError, read_keys};
pub use decode::{Decode, Step};
pub use group::Group;
pub use kind::Kind;
pub use kinds::{AgentTable, Kinds};
pub use passthrough::{Passed, Passthrough};
pub use retries::{MAX_CALLS, OnCut, Retries};
pub use route::{BreakerChange, Breakers, FIRST_TOKEN};
pub use timeouts::CallTimeouts;
pub use upstream_failure::UpstreamFailure;

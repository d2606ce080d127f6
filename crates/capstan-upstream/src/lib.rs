//! What a gateway can stand in front of: a file for each kind, and its row in [`KINDS`].
//!
//! A kind turns a [`Turn`](capstan_agent::Turn) into its upstream's request and decodes the answer. Decoders do no
//! I/O ([`Decode`], [`command::Decoder`]); how often is tried, how long is waited and what a failure means is decided
//! in one place for all kinds ([`Retries`], [`CallTimeouts`], [`UpstreamFailure`]). Nothing here knows of journals or of serving.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod agui;
pub mod anthropic;
mod api_key;
mod attempt_writer;
mod body;
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

pub use api_key::ApiKey;
pub use decode::{Decode, Step};
pub use kinds::{AgentTable, ConfigError, KINDS, Kind, build, build_all, build_with, missing_key};
pub use retries::{MAX_CALLS, OnCut, Retries};
pub use route::FIRST_TOKEN;
pub use timeouts::CallTimeouts;
pub use upstream_failure::UpstreamFailure;

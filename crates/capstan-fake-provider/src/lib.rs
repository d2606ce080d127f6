#![doc = include_str!("../README.md")]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod answer;
mod asked;
mod connection;
mod control;
mod fault;
mod packing;
mod record;
mod response;
mod rule;
mod script;
mod server;
mod shape;
mod shared;

pub use answer::{Answer, ToolCall};
pub use fault::{FAULTS, Fault, Row, UnknownFault};
pub use record::{Call, Ending};
pub use rule::{Rule, RuleError, When};
pub use script::{Script, ScriptError};
pub use server::FakeProvider;

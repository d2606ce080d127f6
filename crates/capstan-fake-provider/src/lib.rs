#![doc = include_str!("../README.md")]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod answer;
mod condition;
mod connection;
mod control;
mod fault;
mod output;
mod packing;
mod place;
mod protocol;
mod question;
mod record;
mod refusal;
mod request;
mod response;
mod rule;
mod script;
mod seal;
mod server;
mod shape;
mod shared;
mod step;

pub use answer::{Answer, ToolCall};
pub use condition::Condition;
pub use fault::{FAULTS, Fault, Row, UnknownFault};
pub use place::{PLACES, Place};
pub use record::{Call, Ending};
pub use rule::{Rule, RuleError, When};
pub use script::{Reply, Script, ScriptError};
pub use server::FakeProvider;

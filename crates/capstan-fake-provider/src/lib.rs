//! A model provider that misbehaves on purpose, to rehearse an outage and to test against.
//!
//! It is shaped like OpenAI's Chat Completions and Responses and like Anthropic's Messages, listens on loopback, and
//! breaks as its [`Script`] says: each [`Fault`] has a name, and strikes by the number of the call, by rate and seed,
//! or for a time. What it was asked, how far it got and who hung up is [recorded](Call), so that a test can count
//! calls where they arrive. It is a server on raw sockets, because no framework resets a connection.
//!
//! ```no_run
//! # async fn rehearse() -> std::io::Result<()> {
//! use capstan_fake_provider::{FakeProvider, Script};
//! let script = Script::default().fault("reset-mid-stream@1".parse().unwrap());
//! let provider = FakeProvider::start("127.0.0.1:0", script).await?;
//! // … a client that calls provider.url() …
//! assert_eq!(provider.calls().len(), 2, "it was called again after the cut");
//! # Ok(())
//! # }
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

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

pub use answer::{Answer, ToolCall};
pub use fault::{FAULTS, Fault, Row, UnknownFault};
pub use record::{Call, Ending};
pub use rule::{Rule, RuleError, When};
pub use script::{Script, ScriptError};
pub use server::FakeProvider;

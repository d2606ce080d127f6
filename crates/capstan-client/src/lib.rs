//! The self-healing client of the Coreason Agent Protocol.
//!
//! A dropped connection is resumed at its cursor, a repeat is dropped, an error is typed. All decisions are made by
//! [`machine::Machine`], which does no I/O; the async [`CapClient`] and the [`blocking`] one are thin shells around it.
//!
//! ```no_run
//! # async fn example() -> Result<(), capstan_client::CapError> {
//! let client = capstan_client::CapClient::new("http://localhost:8787", "sk_…")?;
//! let mut answer = client.chat("Explain quantum mechanics.");
//! while let Some(text) = answer.next().await? {
//!     print!("{text}");
//! }
//! let next = client.chat_in(answer.conversation_id(), "How does that relate to gravity?");
//! # Ok(()) }
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

/// The page that explains the client; its code is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/client.md")]
mod page {}

pub mod blocking;
mod chat;
mod client;
mod error;
mod exchange;
mod listing;
pub mod machine;
mod notice;
mod options;
mod stream;
pub mod transport;

pub use capstan_protocol as protocol;
pub use chat::ChatStream;
pub use client::{CapClient, Envelope};
pub use error::{CapError, ConnectionError, ProtocolError, RuntimeError};
pub use listing::{AgentSummary, StreamPage, StreamSummary};
pub use notice::Notice;
pub use options::Options;
pub use stream::PacketStream;

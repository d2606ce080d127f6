#![doc = include_str!("../README.md")]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

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

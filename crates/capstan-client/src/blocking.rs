//! The client for programs without an async runtime.
//!
//! It drives the async client on a small runtime of its own, without a thread. Nothing happens
//! between calls.

use std::sync::Arc;

use capstan_protocol::{Cursor, HealthCheckResponse, ServiceResponse, StreamPacket};
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use crate::client::Envelope;
use crate::error::CapError;
use crate::listing::{AgentSummary, StreamPage};
use crate::options::Options;

/// A blocking client of one server. Cheap to clone. Not to be used inside an async runtime.
#[derive(Debug, Clone)]
pub struct CapClient {
    inner: crate::CapClient,
    runtime: Arc<Runtime>,
}

impl CapClient {
    /// A client with the default options. An empty key sends none.
    pub fn new(base_url: &str, api_key: &str) -> Result<Self, CapError> {
        Self::with_options(base_url, api_key, Options::default())
    }

    /// A client with options of your own.
    pub fn with_options(base_url: &str, api_key: &str, options: Options) -> Result<Self, CapError> {
        let failed = |e: std::io::Error| CapError::connection(format!("no runtime: {e}"), 0);
        let runtime = Arc::new(Builder::new_current_thread().enable_all().build().map_err(failed)?);
        Ok(Self { inner: crate::CapClient::with_options(base_url, api_key, options)?, runtime })
    }

    /// The same client for a named agent; see [`crate::CapClient::with_agent`].
    #[must_use]
    pub fn with_agent(&self, name: &str) -> Self {
        Self { inner: self.inner.with_agent(name), runtime: Arc::clone(&self.runtime) }
    }

    /// The packets of a run; see [`crate::CapClient::assist`].
    pub fn assist<E: Envelope>(&self, request: &E) -> Packets {
        Packets {
            inner: self.enter(|| self.inner.assist(request)),
            runtime: Arc::clone(&self.runtime),
        }
    }

    /// The text of an answer; see [`crate::CapClient::chat`].
    pub fn chat(&self, message: &str) -> Chat {
        self.chat_in(Uuid::now_v7(), message)
    }

    /// Sends a message in a conversation.
    pub fn chat_in(&self, conversation: Uuid, message: &str) -> Chat {
        Chat {
            inner: self.enter(|| self.inner.chat_in(conversation, message)),
            runtime: Arc::clone(&self.runtime),
        }
    }

    /// Follows a stream that exists; see [`crate::CapClient::attach`].
    pub fn attach(&self, cursor: Cursor) -> Packets {
        Packets {
            inner: self.enter(|| self.inner.attach(cursor)),
            runtime: Arc::clone(&self.runtime),
        }
    }

    /// The agents of the server; see [`crate::CapClient::agents`].
    pub fn agents(&self) -> Result<Vec<AgentSummary>, CapError> {
        self.runtime.block_on(self.inner.agents())
    }

    /// The tenant's runs, newest first; see [`crate::CapClient::streams`].
    pub fn streams(&self, before: Option<Uuid>, limit: usize) -> Result<StreamPage, CapError> {
        self.runtime.block_on(self.inner.streams(before, limit))
    }

    /// Stops a run.
    pub fn stop(&self, stream: Uuid) -> Result<(), CapError> {
        self.runtime.block_on(self.inner.stop(stream))
    }

    /// The server's health.
    pub fn health(&self) -> Result<HealthCheckResponse, CapError> {
        self.runtime.block_on(self.inner.health())
    }

    /// The complete answer in one object.
    pub fn ask<E: Envelope>(&self, request: &E) -> Result<ServiceResponse, CapError> {
        self.runtime.block_on(self.inner.ask(request))
    }

    /// Timers need to know their runtime.
    fn enter<T>(&self, make: impl FnOnce() -> T) -> T {
        let _guard = self.runtime.enter();
        make()
    }
}

/// The packets of one run. Dropping it closes the connection.
#[derive(Debug)]
pub struct Packets {
    inner: crate::PacketStream,
    runtime: Arc<Runtime>,
}

impl Packets {
    /// The stream that is read, as soon as the server has named it.
    pub fn stream_id(&self) -> Option<Uuid> {
        self.inner.stream_id()
    }

    /// The place after the last packet that was handed out.
    pub fn cursor(&self) -> Option<Cursor> {
        self.inner.cursor()
    }
}

impl Iterator for Packets {
    type Item = Result<StreamPacket, CapError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.runtime.block_on(self.inner.next()).transpose()
    }
}

/// The text of one answer, piece by piece.
#[derive(Debug)]
pub struct Chat {
    inner: crate::ChatStream,
    runtime: Arc<Runtime>,
}

impl Chat {
    /// The conversation. Known at once.
    pub fn conversation_id(&self) -> Uuid {
        self.inner.conversation_id()
    }

    /// The stream, as soon as the server has named it.
    pub fn stream_id(&self) -> Option<Uuid> {
        self.inner.stream_id()
    }

    /// The text so far.
    pub fn text(&self) -> &str {
        self.inner.text()
    }

    /// The usage of the answer, if its CLOSE reports it.
    pub fn usage(&self) -> Option<serde_json::Map<String, serde_json::Value>> {
        self.inner.usage()
    }
}

impl Iterator for Chat {
    type Item = Result<String, CapError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.runtime.block_on(self.inner.next()).transpose()
    }
}

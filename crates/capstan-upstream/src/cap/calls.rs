//! A transport that counts: a run starts no more calls than it may, whoever retries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use capstan_client::transport::{Request, Response, Transport, TransportError};

/// The calls of one attempt. One that resumes at a cursor starts nothing and is not counted.
#[derive(Clone)]
pub(super) struct Calls {
    client: reqwest::Client,
    made: Arc<AtomicU32>,
    limit: u32,
}

impl Calls {
    pub(super) fn new(client: reqwest::Client, limit: u32) -> Self {
        Self { client, made: Arc::default(), limit }
    }

    pub(super) fn made(&self) -> u32 {
        self.made.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Transport for Calls {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        let starts = !request.headers.contains_key("last-event-id");
        if starts && self.made.fetch_add(1, Ordering::Relaxed) >= self.limit {
            return Err(TransportError("the calls of this run are spent".into()));
        }
        self.client.send(request).await
    }
}

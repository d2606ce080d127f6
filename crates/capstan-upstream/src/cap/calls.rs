//! A transport that counts: a run starts no more calls than it may, whoever retries.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use capstan_client::transport::{Request, Response, Transport, TransportError};
use reqwest::header::HeaderMap;

/// The calls of one attempt. One that resumes at a cursor starts nothing and is not counted.
#[derive(Clone)]
pub(super) struct Calls {
    client: reqwest::Client,
    made: Arc<AtomicU32>,
    limit: u32,
    last_head: Arc<Mutex<Option<(u16, HeaderMap)>>>,
}

impl Calls {
    pub(super) fn new(client: reqwest::Client, limit: u32) -> Self {
        Self { client, made: Arc::default(), limit, last_head: Arc::default() }
    }

    pub(super) fn made(&self) -> u32 {
        self.made.load(Ordering::Relaxed)
    }

    /// Status and headers of the last response, if the last call got one.
    pub(super) fn last_head(&self) -> Option<(u16, HeaderMap)> {
        self.last_head.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn remember(&self, head: Option<(u16, HeaderMap)>) {
        *self.last_head.lock().unwrap_or_else(PoisonError::into_inner) = head;
    }
}

#[async_trait]
impl Transport for Calls {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        let starts = !request.headers.contains_key("last-event-id");
        if starts && self.made.fetch_add(1, Ordering::Relaxed) >= self.limit {
            return Err(TransportError("the calls of this run are spent".into()));
        }
        let sent = self.client.send(request).await;
        self.remember(sent.as_ref().ok().map(|response| (response.status, response.headers.clone())));
        sent
    }
}

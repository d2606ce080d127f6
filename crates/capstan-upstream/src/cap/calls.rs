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
    last: Arc<Mutex<Last>>,
}

/// How the last call went: the head of its response, or why there was none.
#[derive(Clone, Default)]
struct Last {
    head: Option<(u16, HeaderMap)>,
    error: Option<TransportError>,
}

impl Calls {
    pub(super) fn new(client: reqwest::Client, limit: u32) -> Self {
        Self { client, made: Arc::default(), limit, last: Arc::default() }
    }

    pub(super) fn made(&self) -> u32 {
        self.made.load(Ordering::Relaxed)
    }

    /// Status and headers of the last response, if the last call got one.
    pub(super) fn last_head(&self) -> Option<(u16, HeaderMap)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).head.clone()
    }

    fn remember(&self, sent: &Result<Response, TransportError>) {
        let last = match sent {
            Ok(response) => Last { head: Some((response.status, response.headers.clone())), error: None },
            Err(error) => Last { head: None, error: Some(error.clone()) },
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }

    /// No more calls may be made. What the last one failed with is what there is to tell.
    fn spent(&self) -> TransportError {
        let error = self.last.lock().unwrap_or_else(PoisonError::into_inner).error.clone();
        error.unwrap_or_else(|| TransportError("the calls of this run are spent".into()))
    }
}

#[async_trait]
impl Transport for Calls {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        let starts = !request.headers.contains_key("last-event-id");
        if starts && self.made.fetch_add(1, Ordering::Relaxed) >= self.limit {
            return Err(self.spent());
        }
        let sent = self.client.send(request).await;
        self.remember(&sent);
        sent
    }
}

//! A transport that counts, so that a run starts no more calls than it may, whoever retries; and that learns what was
//! started.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use capstan_agent::Cancel;
use capstan_client::transport::{Request, Response, Transport, TransportError};
use reqwest::header::HeaderMap;
use tokio::sync::watch;

use crate::far_runs::{FarRuns, far_id};

/// The calls of one attempt. One that resumes at a cursor starts nothing and is not counted.
#[derive(Clone)]
pub(super) struct Calls {
    client: reqwest::Client,
    far_runs: FarRuns,
    cancel: Cancel,
    far_id: Arc<watch::Sender<Option<String>>>,
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
    pub(super) fn new(client: reqwest::Client, far_runs: FarRuns, cancel: Cancel, limit: u32) -> Self {
        let far_id = Arc::new(watch::Sender::new(None));
        Self { client, far_runs, cancel, far_id, made: Arc::default(), limit, last: Arc::default() }
    }

    /// The far run's id, once a call was answered with it.
    pub(super) fn far_id(&self) -> watch::Receiver<Option<String>> {
        self.far_id.subscribe()
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
        let client = self.client.clone();
        let sending = async move { Transport::send(&client, request).await };
        let id_of = |answer: &Result<Response, _>| far_id(&answer.as_ref().ok()?.headers);
        let answer = self.far_runs.send(&self.cancel, sending, id_of).await;
        let answer = answer.unwrap_or_else(|| Err(TransportError("the call was given up".into())));
        self.remember(&answer);
        let response = answer?;
        if let Some(id) = far_id(&response.headers) {
            self.far_id.send_replace(Some(id));
        }
        Ok(response)
    }
}

//! A transport that counts calls, so that a run stays within its budget even if the client retries.
//! It also records the id of the remote run.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use capstan_agent::Cancel;
use capstan_client::transport::{Request, Response, Transport, TransportError};
use capstan_protocol::fault::is_tls_failure;
use reqwest::header::HeaderMap;
use tokio::sync::watch;

use crate::far_runs::{FarRuns, far_id};

/// The calls of one attempt. A resume at a cursor starts nothing and does not count.
#[derive(Clone)]
pub(super) struct Calls {
    client: reqwest::Client,
    far_runs: FarRuns,
    cancel: Cancel,
    far_id: Arc<watch::Sender<Option<String>>>,
    made: Arc<AtomicU32>,
    has_resumed: Arc<AtomicBool>,
    limit: u32,
    last: Arc<Mutex<Last>>,
}

/// The result of the last call: the head of its response, or its failure.
#[derive(Clone, Default)]
struct Last {
    head: Option<(u16, HeaderMap)>,
    error: Option<TransportError>,
    /// TLS failed, so another call would fail in the same way.
    is_tls: bool,
}

impl Calls {
    pub(super) fn new(
        client: reqwest::Client,
        far_runs: FarRuns,
        cancel: Cancel,
        limit: u32,
    ) -> Self {
        let far_id = Arc::new(watch::Sender::new(None));
        let (made, has_resumed, last) = (Arc::default(), Arc::default(), Arc::default());
        Self { client, far_runs, cancel, far_id, made, has_resumed, limit, last }
    }

    /// The id of the remote run, as soon as a response names it.
    pub(super) fn far_id(&self) -> watch::Receiver<Option<String>> {
        self.far_id.subscribe()
    }

    pub(super) fn made(&self) -> u32 {
        self.made.load(Ordering::Relaxed)
    }

    /// Whether a stream was resumed since the last call of this.
    pub(super) fn take_resumed(&self) -> bool {
        self.has_resumed.swap(false, Ordering::Relaxed)
    }

    /// Status and headers of the last response, if the last call got one.
    pub(super) fn last_head(&self) -> Option<(u16, HeaderMap)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).head.clone()
    }

    /// Whether the last call failed in TLS.
    pub(super) fn failed_in_tls(&self) -> bool {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).is_tls
    }

    fn remember(&self, sent: &Result<Response, TransportError>, is_tls: bool) {
        let last = match sent {
            Ok(response) => {
                Last { head: Some((response.status, response.headers.clone())), ..Last::default() }
            }
            Err(error) => Last { head: None, error: Some(error.clone()), is_tls },
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }

    /// The error for a call beyond the budget. It repeats the failure of the last call.
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
        let Request { method, url, headers, body, .. } = request;
        let sending = self.client.request(method, url).headers(headers).body(body).send();
        let id_of = |answer: &Result<reqwest::Response, _>| far_id(answer.as_ref().ok()?.headers());
        let answer = self.far_runs.send(&self.cancel, sending, id_of).await;
        // By the error's type, because its text does not always show it.
        let is_tls = matches!(&answer, Some(Err(error)) if is_tls_failure(error));
        let answer = match answer {
            Some(answer) => answer.map(Response::from).map_err(TransportError::from),
            None => Err(TransportError("the call was given up".into())),
        };
        self.remember(&answer, is_tls);
        let response = answer?;
        if !starts && (200..300).contains(&response.status) {
            self.has_resumed.store(true, Ordering::Relaxed);
        }
        if let Some(id) = far_id(&response.headers) {
            self.far_id.send_replace(Some(id));
        }
        Ok(response)
    }
}

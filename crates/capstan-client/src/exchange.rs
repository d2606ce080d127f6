//! One request and one complete answer, each within a limit: `health`, `stop`, `ask`.

use std::future::Future;
use std::time::Duration;

use capstan_protocol::{HealthCheckResponse, Problem, ServiceResponse, decode};
use futures_util::StreamExt as _;
use http::{Method, header};
use serde::de::{DeserializeOwned, IgnoredAny};
use uuid::Uuid;

use crate::client::{CapClient, Envelope};
use crate::error::{CapError, ConnectionError};
use crate::stream::{PROBLEM_BYTES, read_up_to};
use crate::transport::{Body, Request, TransportError};

/// An answer in one object is read up to this.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;

impl CapClient {
    /// Stops a run, and returns when its end is in the journal. A finished run stays unchanged.
    pub async fn stop(&self, stream: Uuid) -> Result<(), CapError> {
        let request = self.request(Method::DELETE, self.stream_url(stream));
        self.exchange(request).await.map(drop)
    }

    /// The server's health.
    pub async fn health(&self) -> Result<HealthCheckResponse, CapError> {
        read(&self.exchange(self.request(Method::GET, self.url("/health"))).await?)
    }

    /// The complete answer in one object. The key makes retries safe, so the client retries lost
    /// connections and answers that break off.
    pub async fn ask<E: Envelope>(&self, request: &E) -> Result<ServiceResponse, CapError> {
        let request = self.post(request, "application/json");
        let answer = self.in_time(self.options.ask_timeout, self.healed(request)).await?;
        read(&answer)
    }

    /// One request and one complete answer, within the time that a response may be silent.
    pub(crate) async fn exchange(&self, request: Request) -> Result<Vec<u8>, CapError> {
        self.in_time(self.options.read_timeout, self.send(request)).await
    }

    async fn healed(&self, request: Request) -> Result<Vec<u8>, CapError> {
        let policy = &self.options.policy;
        let mut retries = 0;
        loop {
            match self.send(request.clone()).await.and_then(unbroken) {
                Err(CapError::Connection(_)) if retries < policy.max_retries => {
                    tokio::time::sleep(policy.backoff.delay(retries, fastrand::f64())).await;
                    retries += 1;
                }
                Err(CapError::Connection(error)) => {
                    return Err(CapError::Connection(ConnectionError { retries, ..error }));
                }
                answer => return answer,
            }
        }
    }

    /// The limit of the call, or the deadline of all calls if that comes first.
    async fn in_time<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, CapError>>,
    ) -> Result<T, CapError> {
        let deadline = self.options.policy.deadline.filter(|deadline| *deadline <= limit);
        let done = tokio::time::timeout(deadline.unwrap_or(limit), work).await;
        let late = || match deadline {
            Some(deadline) => CapError::late(deadline, 0),
            None => {
                let message = format!("no answer within {} s", limit.as_secs_f64());
                CapError::Connection(ConnectionError::timeout(message))
            }
        };
        done.unwrap_or_else(|_| Err(late())).map_err(|error| error.at(&self.base))
    }

    async fn send(&self, request: Request) -> Result<Vec<u8>, CapError> {
        let lost = |e: TransportError| CapError::connection(e.0, 0);
        let response = self.transport.send(request).await.map_err(lost)?;
        let (status, headers) = (response.status, response.headers);
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        match status {
            ..300 => read_whole(response.body).await,
            300..400 => Err(CapError::redirected(status, text(header::LOCATION))),
            400.. => {
                let retry_after =
                    text(header::RETRY_AFTER).and_then(|seconds| seconds.parse().ok());
                let problem = read_up_to(response.body, PROBLEM_BYTES).await;
                let problem = serde_json::from_slice::<Problem>(&problem).ok();
                Err(CapError::refused(status, problem, retry_after.map(Duration::from_secs)))
            }
        }
    }
}

async fn read_whole(mut body: Body) -> Result<Vec<u8>, CapError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = body.next().await {
        bytes.extend_from_slice(&chunk.map_err(|e| CapError::connection(e.0, 0))?);
        if bytes.len() > ANSWER_BYTES {
            return Err(CapError::protocol(format!(
                "the answer is longer than {ANSWER_BYTES} bytes"
            )));
        }
    }
    Ok(bytes)
}

/// A body without a length ends with its connection. Incomplete JSON shows that it was cut.
fn unbroken(answer: Vec<u8>) -> Result<Vec<u8>, CapError> {
    match serde_json::from_slice::<IgnoredAny>(&answer) {
        Err(error) if error.is_eof() => Err(CapError::connection("the answer broke off", 0)),
        Ok(_) | Err(_) => Ok(answer),
    }
}

pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, CapError> {
    decode::from_slice(body).map_err(|e| CapError::protocol(e.to_string()))
}

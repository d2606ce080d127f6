//! Remote runs: runs that a call has started on another server. Learns their ids in time, and ends
//! them.

use std::future::Future;

use capstan_agent::{Cancel, END_LIMIT};
use capstan_protocol::{Backoff, Fault};
use reqwest::header::{AUTHORIZATION, HeaderMap};
use reqwest::{Client, StatusCode};
use tokio::sync::oneshot;
use tokio::time::timeout;
use url::Url;
use uuid::Uuid;

use crate::api_key::ApiKey;
use crate::http::{self, unsent};

/// The header in which a server names the stream of its answer.
const STREAM_ID: &str = "x-stream-id";

/// Ends remote runs on a server with a gateway's API: `DELETE /v1/streams/{id}`.
#[derive(Clone)]
pub(crate) struct FarRuns {
    client: Client,
    base: Url,
    secret: ApiKey,
}

/// The id in a response's head. It must be a UUID, because it becomes part of an address.
pub(crate) fn far_id(headers: &HeaderMap) -> Option<String> {
    let id: Uuid = headers.get(STREAM_ID)?.to_str().ok()?.parse().ok()?;
    Some(id.to_string())
}

impl FarRuns {
    /// `address` is the server's base address, or a route below its `/v1`.
    pub(crate) fn new(client: Client, address: &Url, secret: ApiKey) -> Self {
        let mut base = address.clone();
        let path = base.path().trim_end_matches('/');
        let above =
            path.split_once("/v1/").map(|(above, _)| above).or_else(|| path.strip_suffix("/v1"));
        let above = above.unwrap_or(path).to_owned();
        base.set_path(&above);
        base.set_query(None);
        Self { client, base, secret }
    }

    /// Ends a run. A run that has ended or is unknown counts as success. If the server cannot be
    /// reached, tries again.
    pub(crate) async fn end(&self, far_id: &str) -> Result<(), Fault> {
        let url = http::join(&self.base, &format!("v1/streams/{far_id}"));
        let key: HeaderMap =
            self.secret.header("Bearer ").map(|key| (AUTHORIZATION, key)).into_iter().collect();
        let backoff = Backoff::default();
        for step in 0.. {
            let answer = self.client.delete(url.clone()).headers(key.clone()).send().await;
            match answer.map_err(unsent) {
                Ok(answer) if is_over(answer.status()) => return Ok(()),
                Ok(answer) if answer.status() != StatusCode::SERVICE_UNAVAILABLE => {
                    return Err(Fault::from_upstream_status(answer.status().as_u16(), None));
                }
                Err(failed) if !failed.is_refusal => return Err(failed.fault),
                Ok(_) | Err(_) => tokio::time::sleep(backoff.delay(step, fastrand::f64())).await,
            }
        }
        Ok(())
    }

    /// Sends a call in a task of its own. The remote run may begin before the response's head
    /// arrives. A caller that is stopped in between would not know what to end. So the task waits a
    /// little longer for the head, and ends the run.
    pub(crate) async fn send<T: Send + 'static>(
        &self,
        cancel: &Cancel,
        sending: impl Future<Output = T> + Send + 'static,
        id_of: impl FnOnce(&T) -> Option<String> + Send + 'static,
    ) -> Option<T> {
        let (mut head, received) = oneshot::channel();
        let (here, why) = (self.clone(), cancel.clone());
        cancel.outlive(async move {
            tokio::pin!(sending);
            let answer = tokio::select! {
                answer = &mut sending => answer,
                () = head.closed() => {
                    let Some(answer) = late(&why, sending).await else { return };
                    answer
                }
            };
            let id = id_of(&answer);
            let is_missed = head.send(answer).is_err();
            if let Some(id) = id.filter(|_| is_missed)
                && why.cancelled().await.is_some_and(|reason| reason.ends_run())
                && !matches!(timeout(END_LIMIT, here.end(&id)).await, Ok(Ok(())))
            {
                tracing::warn!(far_id = id, "a remote run could not be ended");
            }
        });
        received.await.ok()
    }
}

/// Waits for the head of a response that nobody reads any more, unless the run may continue without
/// its viewers.
async fn late<T>(why: &Cancel, sending: impl Future<Output = T>) -> Option<T> {
    let left = async {
        if why.cancelled().await.is_some_and(|reason| reason.ends_run()) {
            std::future::pending().await
        }
    };
    tokio::select! {
        answer = timeout(END_LIMIT, sending) => answer.ok(),
        () = left => None,
    }
}

/// The run was ended now, has ended before, or is unknown.
fn is_over(status: StatusCode) -> bool {
    status.is_success() || matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_ended_beside_the_route_that_started_it() {
        let base = |address: &str| {
            let client = http::client(std::time::Duration::ZERO, &HeaderMap::new()).unwrap();
            FarRuns::new(
                client,
                &Url::parse(address).unwrap(),
                ApiKey::find(None, None, None).unwrap(),
            )
            .base
        };
        for (address, expected) in [
            ("http://far", "http://far/"),
            ("http://far/", "http://far/"),
            ("http://far/v1", "http://far/"),
            ("http://far/v1/ag-ui?x=1", "http://far/"),
            ("http://far/below/v1/agents/a/ag-ui", "http://far/below"),
        ] {
            assert_eq!(base(address).as_str(), expected, "{address}");
        }
    }

    #[test]
    fn a_foreign_id_is_ignored() {
        let head =
            |id: &str| HeaderMap::from_iter([(STREAM_ID.parse().unwrap(), id.parse().unwrap())]);
        assert_eq!(far_id(&head("../admin")), None);
        assert!(far_id(&head("01890000-0000-7000-8000-000000000000")).is_some());
    }
}

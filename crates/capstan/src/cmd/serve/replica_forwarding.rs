//! Forwards requests to another gateway of the cluster, without redirects, proxies or retries.

use std::error::Error;
use std::time::Duration;

use capstan_agent::async_trait;
use capstan_client::transport::http_client;
use capstan_gateway::{Body, ReplicaForwarder};
use hyper::body::Body as _;
use reqwest::Client;
use reqwest::redirect::Policy;

/// A gateway that takes longer to connect counts as unreachable.
const CONNECT: Duration = Duration::from_secs(2);
/// Idle connections close before the other gateway closes them: `timeouts.idle_connection` is
/// longer.
const IDLE: Duration = Duration::from_secs(5);

pub(super) struct Carrier(Client);

impl Carrier {
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        let client = http_client()
            .redirect(Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            .retry(reqwest::retry::never());
        Ok(Self(client.build()?))
    }
}

#[async_trait]
impl ReplicaForwarder for Carrier {
    async fn pass(&self, request: http::Request<Body>) -> Result<http::Response<Body>, String> {
        let request = request.map(|body| match body.is_end_stream() {
            true => reqwest::Body::default(),
            false => reqwest::Body::wrap_stream(body.into_data_stream()),
        });
        let request = reqwest::Request::try_from(request)
            .map_err(|error| innermost_cause(&error.without_url()))?;
        let response =
            self.0.execute(request).await.map_err(|error| innermost_cause(&error.without_url()))?;
        Ok(http::Response::from(response).map(Body::new))
    }
}

/// The innermost cause, which says most.
fn innermost_cause(error: &reqwest::Error) -> String {
    let chain =
        std::iter::successors(Some(error as &(dyn Error + 'static)), |error| (*error).source());
    chain.last().map(ToString::to_string).unwrap_or_default()
}

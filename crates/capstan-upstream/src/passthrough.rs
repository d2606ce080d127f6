//! Forwards requests of OpenAI's API that start no run to an agent's provider, with the agent's key
//! and headers.

use std::time::Duration;

use capstan_agent::{Clock, Timer};
use capstan_protocol::Fault;
use capstan_protocol::fault::Upstream;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderValue};
use reqwest::{Body, Client, Method, Response};
use url::Url;

use crate::api_key::ApiKey;
use crate::config::ConfigError;
use crate::group::Group;
use crate::http::{self, timed_out, unsent};
use crate::kind::Common;
use crate::provider::Provider;
use crate::upstream_failure::UpstreamFailure;

/// The most bytes of a refusal's body that are searched for secrets.
const REFUSAL_BYTES: usize = 64 * 1024;

/// Access to an agent's provider.
#[derive(Debug)]
pub struct Passthrough {
    groups: Vec<Group>,
    base: Url,
    model: String,
    headers: HeaderMap,
    secret: ApiKey,
    client: Client,
    /// The limit for the head of an answer: as long as a run, because some answers are made in one
    /// piece.
    limit: Duration,
    clock: Clock,
}

/// An answer of the provider.
#[derive(Debug)]
pub struct Passed {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Body,
}

impl Passthrough {
    /// `None` if the table names no groups.
    pub(crate) fn new(provider: Provider, common: &Common) -> Result<Option<Self>, ConfigError> {
        if provider.passthrough.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            groups: provider.passthrough,
            base: provider.base,
            model: provider.model,
            headers: provider.headers,
            secret: provider.secret,
            client: http::client(common.times.connect, &common.headers)?,
            limit: common.times.total,
            clock: common.clock.clone(),
        }))
    }

    /// The groups that are passed on.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The provider's name of the agent's model.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Sends a request. `path` is relative to the provider's base, without `v1/`. Configured
    /// `headers` and `query` replace the client's.
    pub async fn send(
        &self,
        method: Method,
        (path, query): (&str, Option<&str>),
        mut headers: HeaderMap,
        body: Body,
    ) -> Result<Passed, Fault> {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        self.headers.iter().for_each(|(name, value)| drop(headers.insert(name, value.clone())));
        let request = self.client.request(method, self.address(path, query));
        let sending = request.headers(headers).body(body).send();
        let answered = self.clock.within(Timer::Total, self.limit, sending).await;
        let host = Some(http::host_of(&self.base));
        let upstream = Upstream { host, ..Upstream::default() };
        let failed = |fault| http::with_log_details(fault, upstream.clone(), &self.secret);
        let response = answered
            .ok_or_else(|| failed(timed_out(Timer::Total)))?
            .map_err(|error| failed(unsent(error).fault))?;
        let status = response.status().as_u16();
        if status < 300 {
            let headers = response.headers().clone();
            return Ok(Passed { status, headers, body: response.into() });
        }
        self.refused(response).await.map_err(|fault| {
            let upstream = Upstream { status: Some(status), ..upstream.clone() };
            http::with_log_details(fault, upstream, &self.secret)
        })
    }

    fn address(&self, path: &str, query: Option<&str>) -> Url {
        let mut url = http::join(&self.base, path);
        let own: Vec<String> = url.query_pairs().map(|(name, _)| name.into_owned()).collect();
        let given = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        let given: Vec<_> = given.filter(|(name, _)| !own.iter().any(|own| own == name)).collect();
        if !given.is_empty() {
            url.query_pairs_mut().extend_pairs(given);
        }
        url
    }

    /// The provider's refusal, without secrets. A refusal of the agent's key becomes a fault: a
    /// client would think that its own key is wrong.
    async fn refused(&self, response: Response) -> Result<Passed, Fault> {
        let (status, mut headers) = (response.status().as_u16(), response.headers().clone());
        let body = beginning(response).await;
        if matches!(status, 401 | 407) || status < 400 {
            return Err(
                UpstreamFailure::from_response(status, &headers, &body).to_fault(&self.secret)
            );
        }
        // The gateway did not ask for compression, and cannot search a compressed body for secrets.
        if headers.contains_key(CONTENT_ENCODING) {
            return Err(
                UpstreamFailure::from_response(status, &headers, b"").to_fault(&self.secret)
            );
        }
        let body = self.secret.scrub(&String::from_utf8_lossy(&body)).into_bytes();
        headers.remove(CONTENT_LENGTH);
        Ok(Passed { status, headers, body: body.into() })
    }
}

async fn beginning(mut response: Response) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        bytes.extend_from_slice(&chunk);
        if bytes.len() >= REFUSAL_BYTES {
            break;
        }
    }
    bytes
}

//! Encodes requests in both bindings and both versions.

use std::time::Duration;

use capstan_agent::{About, Turn, Work};
use capstan_protocol::{Backoff, Fault};
use reqwest::Client;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use url::Url;

use super::decoder::{Decoder, Next};
use super::interface::{Binding, Interface, Version};
use super::message;
use crate::api_key::ApiKey;
use crate::call::{Dialect, Resume};
use crate::http::unsent;
use crate::request_body::RequestBody;
use crate::upstream_failure::UpstreamFailure;

const VERSION: HeaderName = HeaderName::from_static("a2a-version");
/// The interval at which the task of an agent without streams is polled.
const POLL: Duration = Duration::from_secs(1);
/// The most bytes that are read of a refusal's body.
const REFUSAL_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy)]
enum Asking<'a> {
    Message,
    Get(&'a str),
    Subscribe(&'a str),
    Cancel(&'a str),
}

#[derive(Clone)]
pub(super) struct Wire {
    interface: Interface,
    secret: ApiKey,
    /// The address for messages.
    url: Url,
}

impl Wire {
    pub(super) fn new(interface: Interface, secret: ApiKey) -> Self {
        let mut wire = Self { url: interface.url.clone(), interface, secret };
        wire.url = wire.url_of(Asking::Message);
        wire
    }

    fn url_of(&self, asking: Asking<'_>) -> Url {
        let mut url = self.interface.url.clone();
        if self.interface.binding == Binding::JsonRpc {
            return url;
        }
        let verb = if self.interface.streams { "message:stream" } else { "message:send" };
        if let Ok(mut path) = url.path_segments_mut() {
            let path = path.pop_if_empty();
            match asking {
                Asking::Message => path.push(verb),
                Asking::Get(id) => path.extend(["tasks", id]),
                Asking::Subscribe(id) => path.extend(["tasks", &format!("{id}:subscribe")]),
                Asking::Cancel(id) => path.extend(["tasks", &format!("{id}:cancel")]),
            };
        }
        url
    }

    fn method(&self, asking: Asking<'_>) -> &'static str {
        match (self.interface.version, asking) {
            (Version::V1, Asking::Message) if self.interface.streams => "SendStreamingMessage",
            (Version::V1, Asking::Message) => "SendMessage",
            (Version::V1, Asking::Get(_)) => "GetTask",
            (Version::V1, Asking::Subscribe(_)) => "SubscribeToTask",
            (Version::V1, Asking::Cancel(_)) => "CancelTask",
            (Version::V03, Asking::Message) if self.interface.streams => "message/stream",
            (Version::V03, Asking::Message) => "message/send",
            (Version::V03, Asking::Get(_)) => "tasks/get",
            (Version::V03, Asking::Subscribe(_)) => "tasks/resubscribe",
            (Version::V03, Asking::Cancel(_)) => "tasks/cancel",
        }
    }

    /// The body of a POST. `None` for a request that only reads a task.
    fn body_of(&self, asking: Asking<'_>, params: Value) -> Option<Value> {
        match self.interface.binding {
            Binding::JsonRpc => {
                Some(json!({ "jsonrpc": "2.0", "id": 1, "method": self.method(asking),
                "params": params }))
            }
            Binding::HttpJson if matches!(asking, Asking::Get(_)) => None,
            Binding::HttpJson => Some(params),
        }
    }

    fn key(&self) -> HeaderMap {
        let mut headers: HeaderMap =
            self.secret.header("Bearer ").map(|key| (AUTHORIZATION, key)).into_iter().collect();
        let version = if self.interface.version == Version::V1 { "1.0" } else { "0.3" };
        headers.insert(VERSION, HeaderValue::from_static(version));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        headers
    }

    /// Cancels a task.
    pub(super) async fn cancel(&self, client: &Client, id: &str) -> Result<(), Fault> {
        let asking = Asking::Cancel(id);
        let body = self.body_of(asking, json!({ "id": id })).unwrap_or_default();
        let request = client.post(self.url_of(asking)).headers(self.key());
        let request = request.header("content-type", "application/json").body(body.to_string());
        let mut response = request.send().await.map_err(|error| unsent(error).fault)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let mut bytes = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > REFUSAL_BYTES {
                break;
            }
        }
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let code = answer.pointer("/error/code").and_then(Value::as_i64);
        // In both bindings: the task is unknown or has ended, so nothing is left to cancel.
        match (status, code) {
            (404 | 409, _) | (_, Some(-32001 | -32002)) | (200..=299, None) => Ok(()),
            (200..=299, Some(_)) => {
                Err(UpstreamFailure::from_error(answer.get("error").unwrap_or(&Value::Null))
                    .to_fault(&self.secret))
            }
            _ => {
                Err(UpstreamFailure::from_response(status, &headers, &bytes).to_fault(&self.secret))
            }
        }
    }
}

impl Dialect for Wire {
    type Decoder = Decoder;

    fn url(&self) -> &Url {
        &self.url
    }

    fn headers(&self, _turn: &Turn) -> HeaderMap {
        self.key()
    }

    fn body(&self, turn: &Turn) -> Result<RequestBody, Fault> {
        let params = message::of(turn, self.interface.version)?;
        Ok(self.body_of(Asking::Message, params).unwrap_or_default().into())
    }

    fn decoder(&self, turn: &Turn) -> Decoder {
        Decoder::new(self.secret.clone(), self.interface.streams, !turn.answers.is_empty())
    }

    /// Gets the task, and subscribes to it if it still runs.
    fn resume(&self, decoder: &mut Decoder, _resumed: u32) -> Option<Resume> {
        let (next, id, stalls) = decoder.resume()?;
        let (asking, wait) = match next {
            Next::Get => (Asking::Get(&id), Backoff::DEFAULT.delay(stalls / 2, fastrand::f64())),
            Next::Poll => (Asking::Get(&id), POLL),
            Next::Subscribe => (Asking::Subscribe(&id), Duration::ZERO),
        };
        Some(Resume {
            url: self.url_of(asking),
            body: self.body_of(asking, json!({ "id": id })),
            wait,
            is_poll: next == Next::Poll,
        })
    }

    /// A task that ended after the get refuses a subscription, but another get works. So that
    /// refusal is not final.
    fn is_last_word(&self, decoder: &Decoder) -> bool {
        !decoder.is_subscribing()
    }

    fn about(&self) -> About {
        About::agent("a2a", Work::Agent)
    }
}

//! The async client.

use std::sync::Arc;

use bytes::Bytes;
use capstan_protocol::{AgentRequest, Cursor, Profile, ServiceRequest, SessionContext, event, v2};
use http::header::{self, HeaderMap, HeaderValue};
use http::{HeaderName, Method};
use url::Url;
use uuid::Uuid;

use crate::chat::ChatStream;
use crate::error::CapError;
use crate::machine::Policy;
use crate::options::Options;
use crate::stream::{Call, PacketStream};
use crate::transport::{self, Request, Transport};

/// A client of one server. Cheap to clone.
#[derive(Clone)]
pub struct CapClient {
    pub(crate) base: Url,
    /// The address for requests.
    assist: Url,
    headers: HeaderMap,
    pub(crate) options: Options,
    pub(crate) transport: Arc<dyn Transport>,
}

impl std::fmt::Debug for CapClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CapClient").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

/// A request in either profile; the answer comes in the same.
pub trait Envelope {
    /// The profile.
    const PROFILE: Profile;

    /// The key of the run.
    fn request_id(&self) -> Uuid;

    /// Serialised once, sent the same each time.
    fn to_body(&self) -> Vec<u8>;
}

impl Envelope for ServiceRequest {
    const PROFILE: Profile = Profile::V1;

    fn request_id(&self) -> Uuid {
        self.request_id
    }

    fn to_body(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl Envelope for v2::ServiceRequest {
    const PROFILE: Profile = Profile::V2;

    fn request_id(&self) -> Uuid {
        self.request_id
    }

    fn to_body(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl CapClient {
    /// A client with the default options. An empty key sends none.
    pub fn new(base_url: &str, api_key: &str) -> Result<Self, CapError> {
        Self::with_options(base_url, api_key, Options::default())
    }

    /// A client with options of your own.
    pub fn with_options(base_url: &str, api_key: &str, options: Options) -> Result<Self, CapError> {
        // A URL may hold a user name and a password before the host.
        let shown = base_url.rsplit('@').next().unwrap_or_default();
        let wrong = |why: &dyn std::fmt::Display| {
            CapError::connection(
                format!("base URL {shown:?}: {why}; expected http://host:port or https://host"),
                0,
            )
        };
        let base = Url::parse(base_url.trim_end_matches('/')).map_err(|e| wrong(&e))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(wrong(&"the scheme is neither http nor https"));
        }
        let transport = match &options.transport {
            Some(transport) => Arc::clone(transport),
            None => transport::usual(options.connect_timeout)
                .map_err(|e| CapError::connection(e.0, 0))?,
        };
        let headers = headers(api_key, &options)?;
        let assist = below(&base, &options.path);
        Ok(Self { base, assist, headers, options, transport })
    }

    /// The same client for a named agent: `assist`, `chat` and `ask` go to it instead of the
    /// server's default one. [`agents`](Self::agents) lists the names.
    #[must_use]
    pub fn with_agent(&self, name: &str) -> Self {
        let mut assist = self.versioned("/agents");
        // The name stays one segment of the path, whatever characters it has.
        if let Ok(mut path) = assist.path_segments_mut() {
            path.extend([name, "assist"]);
        }
        Self { assist, ..self.clone() }
    }

    /// Starts a run, or attaches to it if the key is known; its packets, healed.
    ///
    /// Nothing is sent before the first [`next`](PacketStream::next).
    pub fn assist<E: Envelope>(&self, request: &E) -> PacketStream {
        let request = self.post(request, "text/event-stream");
        let policy = Policy { profile: E::PROFILE, ..self.options.policy.clone() };
        PacketStream::new(self.call(request, policy, None))
    }

    /// Sends a message in a new conversation, and returns the text of the answer.
    pub fn chat(&self, message: &str) -> ChatStream {
        self.chat_in(Uuid::now_v7(), message)
    }

    /// Sends a message in a conversation.
    pub fn chat_in(&self, conversation: Uuid, message: &str) -> ChatStream {
        let packets = match self.options.policy.profile {
            Profile::V1 => self.assist(&self.question(conversation, message)),
            Profile::V2 => self.assist(&v2::ServiceRequest::query(
                conversation,
                &self.options.user.user_id,
                message,
            )),
        };
        ChatStream::new(packets, conversation)
    }

    /// The request that [`chat_in`](Self::chat_in) would send.
    pub fn question(&self, conversation: Uuid, message: &str) -> ServiceRequest {
        let context = SessionContext::new(conversation, self.options.user.clone());
        ServiceRequest::new(context, AgentRequest::query(conversation, message))
    }

    /// Follows a stream that exists, from a cursor on. A viewer neither starts nor arms anything.
    pub fn attach(&self, cursor: Cursor) -> PacketStream {
        self.follow(cursor, false)
    }

    /// Follows a stream like [`attach`](Self::attach), and returns every packet, errors included,
    /// up to CLOSE. Use it to show a stream unchanged.
    pub fn observe(&self, cursor: Cursor) -> PacketStream {
        self.follow(cursor, true)
    }

    fn follow(&self, cursor: Cursor, is_observer: bool) -> PacketStream {
        let mut request = self.request(Method::GET, self.stream_url(cursor.stream_id));
        accept(&mut request, "text/event-stream");
        let policy = Policy { is_viewer: true, is_observer, ..self.options.policy.clone() };
        if policy.profile == Profile::V2 {
            request.url.query_pairs_mut().append_pair("profile", "v2");
        }
        PacketStream::new(self.call(request, policy, Some(cursor.to_string())))
    }

    fn call(&self, request: Request, policy: Policy, last_event_id: Option<String>) -> Call {
        Call {
            transport: Arc::clone(&self.transport),
            request,
            policy,
            read_timeout: self.options.read_timeout,
            listener: self.options.listener.clone(),
            last_event_id,
        }
    }

    pub(crate) fn post<E: Envelope>(&self, envelope: &E, accepted: &'static str) -> Request {
        let mut request = self.request(Method::POST, self.assist.clone());
        request.body = Bytes::from(envelope.to_body());
        accept(&mut request, accepted);
        let headers = &mut request.headers;
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("x-cap-accept", HeaderValue::from_static(event::STREAM_RESET));
        if let Ok(id) = HeaderValue::from_str(&envelope.request_id().to_string()) {
            headers.insert("x-request-id", id);
        }
        request
    }

    pub(crate) fn request(&self, method: Method, url: Url) -> Request {
        Request { method, url, headers: self.headers.clone(), body: Bytes::new() }
    }

    pub(crate) fn url(&self, path: &str) -> Url {
        below(&self.base, path)
    }

    pub(crate) fn stream_url(&self, stream: Uuid) -> Url {
        self.versioned(&format!("/streams/{stream}"))
    }

    /// Below `/v1`, whether or not the base URL ends in it.
    pub(crate) fn versioned(&self, path: &str) -> Url {
        let version = if self.base.path().ends_with("/v1") { "" } else { "/v1" };
        self.url(&format!("{version}{path}"))
    }
}

fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    let whole = format!("{}/{}", url.path().trim_end_matches('/'), path.trim_start_matches('/'));
    url.set_path(&whole);
    url
}

fn headers(api_key: &str, options: &Options) -> Result<HeaderMap, CapError> {
    let mut headers = options.headers.clone();
    if !api_key.is_empty() {
        let wrong =
            |_| CapError::connection("the key holds characters that no header can carry", 0);
        let mut key = HeaderValue::from_str(&format!("Bearer {api_key}")).map_err(wrong)?;
        key.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, key);
    }
    headers
        .entry(header::USER_AGENT)
        .or_insert(HeaderValue::from_static(concat!("capstan/", env!("CARGO_PKG_VERSION"))));
    Ok(headers)
}

fn accept(request: &mut Request, kind: &'static str) {
    request.headers.insert(HeaderName::from_static("accept"), HeaderValue::from_static(kind));
}

//! The fault catalogue: every kind of failure. To add a kind, add a row; `make gen` adds it to
//! `docs/errors.md`.
//!
//! Columns: Rust name, wire code, AG-UI code, HTTP status, problem slug, severity, domain, whether
//! a new request may succeed, default wait in seconds. Then the texts: title and message for users,
//! meaning and remedy for developers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::ErrorDomain::{self, Client, Llm, Security, System};
use crate::error::ErrorSeverity::{self, Fatal, Transient};

/// One row of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Entry {
    /// The kind that this row describes.
    #[serde(skip)]
    pub kind: FaultKind,
    /// The code on the wire, snake_case.
    pub code: &'static str,
    /// The AG-UI code that it maps onto.
    #[serde(rename = "agui_code")]
    pub agui: AguiErrorCode,
    /// The HTTP status of responses and problems.
    pub status: u16,
    /// The last segment of the problem type: `/errors/<slug>`.
    pub slug: &'static str,
    /// A run's next step, by default.
    pub severity: ErrorSeverity,
    /// The origin of the failure.
    pub domain: ErrorDomain,
    /// May a new request succeed?
    pub retryable: bool,
    /// Seconds to wait, by default.
    pub retry_after: Option<u64>,
    /// A headline for users.
    pub title: &'static str,
    /// The default sentence for users.
    pub message: &'static str,
    /// The meaning, for developers.
    pub meaning: &'static str,
    /// The next step of a client.
    pub remedy: &'static str,
}

impl Entry {
    /// The problem type: a path that a person can open at the gateway.
    pub fn problem_type(&self) -> String {
        format!("/errors/{}", self.slug)
    }
}

/// Writes the enum and the table from the same rows, so that both have the same kinds.
macro_rules! catalogue {
    ($($kind:ident, $code:literal, $agui:ident, $status:literal, $slug:literal, $severity:ident,
    $domain:ident, $retryable:literal, $wait:expr;
        $title:literal; $message:literal; $meaning:literal; $remedy:literal;)*) => {
        /// A kind of failure; one row of the catalogue.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum FaultKind {
            $(#[doc = $meaning] $kind,)*
        }

        /// Every kind of failure.
        pub static CATALOGUE: &[Entry] = &[
            $(Entry {
                kind: FaultKind::$kind, code: $code, agui: AguiErrorCode::$agui, status: $status,
                slug: $slug,
                severity: $severity, domain: $domain, retryable: $retryable, retry_after: $wait,
                title: $title, message: $message, meaning: $meaning, remedy: $remedy,
            },)*
        ];

        impl FaultKind {
            /// Every kind, in the catalogue's order.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The kind's row.
            pub fn entry(self) -> &'static Entry {
                // The macro writes variants and rows together, in the same order.
                #[allow(clippy::indexing_slicing)]
                &CATALOGUE[self as usize]
            }
        }
    };
}

catalogue! {
    // ---- limits ----
    RateLimitExceeded, "rate_limit_exceeded", RateLimited, 429, "rate-limited", Transient, Client,
    true, Some(60);
        "Too many requests"; "Request rate limit exceeded. Please wait before retrying.";
        "The tenant sent more requests than its rate allows.";
        "Wait for retry_after, then send the same request again.";
    SessionLimitExceeded, "session_limit_exceeded", RateLimited, 429, "session-limit-exceeded",
    Transient, Client, true, None;
        "Too many sessions"; "Resource limit exceeded: too many sessions are open.";
        "The tenant has reached its limit of sessions or concurrent runs.";
        "Wait until a run ends, or delete a session. Then try again.";
    MessageLimitExceeded, "message_limit_exceeded", RateLimited, 429, "message-limit-exceeded",
    Fatal, Client, false, None;
        "The conversation is full"; "Resource limit exceeded: this conversation is full.";
        "The session has reached its limit of messages.";
        "Start a new session; retrying in this one cannot succeed.";
    StorageLimitExceeded, "storage_limit_exceeded", RateLimited, 429, "storage-limit-exceeded",
    Transient, Client, true, None;
        "Storage is full"; "Resource limit exceeded: your storage is full.";
        "The tenant's streams and sessions have reached their limit of bytes.";
        "Delete streams or sessions, or wait until retention deletes some. Then try again.";

    // ---- time ----
    Timeout, "timeout", Timeout, 504, "timeout", Transient, System, true, None;
        "Time ran out"; "Request timed out. Please try again.";
        "The run exceeded a time limit.";
        "Retry. If it happens again, send a smaller request or raise the timeout.";
    UpstreamTimeout, "upstream_timeout", Timeout, 504, "upstream-timeout", Transient, Llm, true,
    None;
        "The model took too long"; "Upstream service timed out.";
        "A system behind the agent did not answer in time, or stopped in the middle of its answer.";
        "Retry. The upstream may be slow for a moment only.";

    // ---- authentication ----
    TenantRequired, "tenant_required", TenantRequired, 401, "tenant-required", Fatal, Security,
    false, None;
        "Sign in first"; "Authentication is required.";
        "The request carries no key, so it belongs to no tenant.";
        "Send `Authorization: Bearer <key>`.";
    TenantUnauthorized, "tenant_unauthorized", TenantUnauthorized, 403, "tenant-unauthorized",
    Fatal, Security, false, None;
        "Not allowed"; "You are not allowed to do this.";
        "The key is unknown, belongs to another tenant, or does not allow this.";
        "Check the key and its scopes. If you send X-Tenant-ID, it must name the key's tenant.";

    // ---- requests ----
    InvalidRequest, "invalid_request", InvalidRequest, 400, "invalid-request", Fatal, Client,
    false, None;
        "Invalid request"; "The request is invalid. Please check your input.";
        "The request breaks the protocol; the message names the member.";
        "Correct the member that the message names. The same request fails again.";
    RequestConflict, "request_conflict", InvalidRequest, 409, "request-conflict", Fatal, Client,
    false, None;
        "Conflicting request"; "Another request with this id is already known.";
        "The request_id was used before with another body.";
        "Use a new request_id for a new request. To attach to the earlier run, repeat its body \
         exactly.";
    PayloadTooLarge, "payload_too_large", InvalidRequest, 413, "payload-too-large", Fatal, Client,
    false, None;
        "Too large"; "The request is too large.";
        "The body exceeds the limit of bytes or of JSON values.";
        "Send less, or send large parts by reference.";
    AnswerTooLarge, "answer_too_large", InvalidRequest, 406, "answer-too-large", Fatal, Client,
    false, None;
        "The answer is too large"; "The answer is too large for one JSON object.";
        "The client requested a collected response (JSON mode), and the answer exceeds its limit \
         of bytes. The run continues.";
        "Read the stream that the message names.";
    RouteNotFound, "route_not_found", InvalidRequest, 404, "route-not-found", Fatal, Client, false,
    None;
        "No such address"; "There is nothing at this address.";
        "This server does not serve the path.";
        "Check the URL against the list of routes.";
    MethodNotAllowed, "method_not_allowed", InvalidRequest, 405, "method-not-allowed", Fatal,
    Client, false, None;
        "Wrong method"; "This address cannot be used that way.";
        "The path exists, but not for this HTTP method.";
        "Use a method that the Allow header lists.";
    UnsupportedMediaType, "unsupported_media_type", InvalidRequest, 415, "unsupported-media-type",
    Fatal, Client, false, None;
        "Wrong content type"; "The request must be sent as application/json.";
        "The body's Content-Type is not application/json.";
        "Send `Content-Type: application/json`.";

    InterruptNotOpen, "interrupt_not_open", InvalidRequest, 409, "interrupt-not-open", Fatal,
    Client, false, None;
        "Already settled"; "This question can no longer be answered.";
        "The request answers an interrupt that is unknown, already answered, or expired.";
        "Read the session for its open interrupts. You can still cancel an expired one.";

    // ---- lookups ----
    AgentNotFound, "agent_not_found", CapabilityNotFound, 404, "agent-not-found", Fatal, Client,
    false, None;
        "No such agent"; "Requested agent not found.";
        "No agent of this name is configured.";
        "Check the agent's name against the server's list.";
    CapabilityNotFound, "capability_not_found", CapabilityNotFound, 404, "capability-not-found",
    Fatal, Client, false, None;
        "Feature not available"; "Requested capability not available.";
        "The agent does not offer the requested capability.";
        "Call another agent, or leave out that capability.";
    SessionNotFound, "session_not_found", SessionNotFound, 404, "session-not-found", Fatal, Client,
    false, None;
        "No such conversation"; "This conversation does not exist.";
        "The session id is unknown to this tenant.";
        "Start a new session.";
    StreamNotFound, "stream_not_found", SessionNotFound, 404, "stream-not-found", Fatal, Client,
    false, None;
        "No such stream"; "This stream does not exist.";
        "The stream id is unknown to this tenant.";
        "Check the id, or post the request to start a run.";
    StreamExpired, "stream_expired", SessionNotFound, 410, "stream-expired", Fatal, Client, true,
    None;
        "The answer has expired"; "This answer is no longer stored.";
        "The run is known, but retention or a purge deleted its packets.";
        "Send the request again under a new request_id.";
    StreamLost, "stream_lost", SessionNotFound, 410, "stream-lost", Fatal, System, true, None;
        "The answer was lost"; "Part of this answer was lost.";
        "The journal lost the end of the stream, so the run cannot continue without a gap.";
        "Send the request again under a new request_id.";

    // ---- the service ----
    ServiceUnavailable, "service_unavailable", ServiceUnavailable, 503, "service-unavailable",
    Transient, System, true, None;
        "Service unavailable"; "The service is temporarily unavailable.";
        "The server is overloaded, starting or stopping.";
        "Retry after the seconds in Retry-After. Without that header, retry with backoff.";
    RunInterrupted, "run_interrupted", ServiceUnavailable, 503, "run-interrupted", Transient,
    System, true, None;
        "Interrupted"; "The server stopped while it was answering.";
        "The process that ran the agent crashed or restarted.";
        "Post the same request again: the run continues in a new attempt.";
    JournalUnavailable, "journal_unavailable", ServiceUnavailable, 503, "journal-unavailable",
    Transient, System, true, None;
        "Service unavailable"; "The service is temporarily unavailable.";
        "The journal cannot be written or read.";
        "Retry with backoff. Operators check the disk space and the log.";

    // ---- upstreams ----
    UpstreamError, "upstream_error", UpstreamError, 502, "upstream-error", Transient, Llm, true,
    None;
        "External service failed"; "Upstream service error.";
        "A system behind the agent answered with an error status.";
        "Retry if the severity is TRANSIENT. details.upstream_status has the status.";
    UpstreamUnreachable, "upstream_unreachable", UpstreamError, 502, "upstream-unreachable",
    Transient, Llm, true, None;
        "External service unreachable"; "An external service could not be reached.";
        "The connection to a system behind the agent failed: refused, reset, DNS or TLS.";
        "Retry with backoff. A TLS failure is FATAL and needs an operator.";
    UpstreamTruncated, "upstream_truncated", UpstreamError, 502, "upstream-truncated", Transient,
    Llm, true, None;
        "The answer broke off"; "An external service stopped in the middle of its answer.";
        "The upstream's stream ended without the end that its protocol requires.";
        "Retry. A truncated answer is never a success.";
    UpstreamMalformed, "upstream_malformed", UpstreamError, 502, "upstream-malformed", Transient,
    Llm, true, None;
        "Unreadable answer"; "An external service sent something unreadable.";
        "The upstream broke its own protocol.";
        "Retry. If it happens again, report it to the operators of the upstream.";
    UpstreamAuth, "upstream_auth", UpstreamError, 502, "upstream-auth", Fatal, Llm, false, None;
        "External service refused access"; "An external service refused the server's credentials.";
        "The gateway's own key for the upstream is missing, wrong or not allowed.";
        "Operators correct the key. Clients can do nothing.";
    UpstreamQuota, "upstream_quota", UpstreamError, 502, "upstream-quota", Fatal, Llm, false, None;
        "External service quota spent"; "The quota at an external service is spent.";
        "The gateway's account at the upstream has no credit or is on hold.";
        "Operators top up the account. Clients can do nothing.";
    ModelNotFound, "model_not_found", UpstreamError, 502, "model-not-found", Fatal, Llm, false,
    None;
        "No such model"; "The model of this agent does not exist at its provider.";
        "The provider does not know the agent's model, or the agent's key may not use it.";
        "Operators correct the agent's `model`. The log names the address that lists the models. \
         Clients call another agent.";
    ContextLengthExceeded, "context_length_exceeded", UpstreamError, 502,
    "context-length-exceeded", Fatal, Llm, false, None;
        "The conversation is too long"; "The conversation is longer than the model can read.";
        "The prompt exceeds the model's context window.";
        "Send a shorter conversation or choose a model with a larger window.";
    ContentRefused, "content_refused", UpstreamError, 502, "content-refused", Fatal, Llm, false,
    None;
        "The model declined"; "The model declined to answer this.";
        "The model or its content filter refused.";
        "Change the request. The model refuses the same request again.";

    NotTranslated, "not_translated", InvalidRequest, 400, "not-translated", Fatal, Client, false,
    None;
        "Something was left out"; "Parts of this could not be translated.";
        "The request or the answer has parts of one provider's protocol, and the other side \
         speaks another one. details.left_out names them.";
        "Ignore it, or call an agent that speaks the protocol of the request.";

    // ---- the agent ----
    AttemptDiverged, "attempt_diverged", AgentExecutionError, 500, "attempt-diverged", Fatal,
    System, true, None;
        "The answer could not be continued"; "The answer was interrupted and a second attempt \
         differed from it.";
        "A later attempt wrote a different answer, and this client cannot handle a stream_reset.";
        "Send the request again under a new request_id, or announce stream_reset.";
    StreamTooLong, "stream_too_long", AgentExecutionError, 500, "stream-too-long", Fatal, System,
    false, None;
        "The answer is too long"; "The answer grew too long to be stored.";
        "The stream exceeded its limit of packets or bytes.";
        "Request a shorter answer, or raise the limit.";
    AgentExecutionError, "agent_execution_error", AgentExecutionError, 500, "agent-execution",
    Fatal, System, false, None;
        "Something went wrong"; "An error occurred processing your request.";
        "The agent failed in a way that nothing else in this catalogue describes.";
        "Search the server's log for the request id.";
}

impl FaultKind {
    /// Finds the kind by our wire code.
    pub(crate) fn of_code(code: &str) -> Option<Self> {
        CATALOGUE.iter().find(|entry| entry.code == code).map(|entry| entry.kind)
    }

    /// Finds the kind by a problem's `type`.
    pub(crate) fn of_type(problem_type: &str) -> Option<Self> {
        let slug = problem_type.rsplit('/').next().unwrap_or_default();
        CATALOGUE.iter().find(|entry| entry.slug == slug).map(|entry| entry.kind)
    }

    /// Finds a kind by any spelling: wire code, AG-UI code, problem slug or type, in any case.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches("/errors/");
        let code = text.to_ascii_lowercase().replace('-', "_");
        let by_code = CATALOGUE.iter().find(|e| e.code == code || e.slug.replace('-', "_") == code);
        by_code
            .map(|e| e.kind)
            .or_else(|| text.parse::<AguiErrorCode>().ok().map(AguiErrorCode::head))
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry().code)
    }
}

/// The ten AG-UI error codes of story 22-B2, and no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AguiErrorCode {
    /// The agent failed in a way that nothing else describes (500).
    AgentExecutionError,
    /// No tenant was named (401).
    TenantRequired,
    /// The tenant is wrong or may not do this (403).
    TenantUnauthorized,
    /// The session or stream is unknown or gone (404).
    SessionNotFound,
    /// A limit was reached (429).
    RateLimited,
    /// Time ran out (504).
    Timeout,
    /// The request is malformed (400).
    InvalidRequest,
    /// The agent or capability is unknown (404).
    CapabilityNotFound,
    /// An external service failed (502).
    UpstreamError,
    /// The system is overloaded or unavailable (503).
    ServiceUnavailable,
}

impl AguiErrorCode {
    /// The ten.
    pub const ALL: [Self; 10] = [
        Self::AgentExecutionError,
        Self::TenantRequired,
        Self::TenantUnauthorized,
        Self::SessionNotFound,
        Self::RateLimited,
        Self::Timeout,
        Self::InvalidRequest,
        Self::CapabilityNotFound,
        Self::UpstreamError,
        Self::ServiceUnavailable,
    ];

    /// The kind that gives the code its status, slug and texts.
    pub fn head(self) -> FaultKind {
        match self {
            Self::AgentExecutionError => FaultKind::AgentExecutionError,
            Self::TenantRequired => FaultKind::TenantRequired,
            Self::TenantUnauthorized => FaultKind::TenantUnauthorized,
            Self::SessionNotFound => FaultKind::SessionNotFound,
            Self::RateLimited => FaultKind::RateLimitExceeded,
            Self::Timeout => FaultKind::Timeout,
            Self::InvalidRequest => FaultKind::InvalidRequest,
            Self::CapabilityNotFound => FaultKind::CapabilityNotFound,
            Self::UpstreamError => FaultKind::UpstreamError,
            Self::ServiceUnavailable => FaultKind::ServiceUnavailable,
        }
    }

    /// The fixed HTTP status.
    pub fn http_status(self) -> u16 {
        self.head().entry().status
    }

    /// Whether a request may succeed later, if a peer sends only this code.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::Timeout | Self::ServiceUnavailable)
    }

    /// The spelling on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AgentExecutionError => "AGENT_EXECUTION_ERROR",
            Self::TenantRequired => "TENANT_REQUIRED",
            Self::TenantUnauthorized => "TENANT_UNAUTHORIZED",
            Self::SessionNotFound => "SESSION_NOT_FOUND",
            Self::RateLimited => "RATE_LIMITED",
            Self::Timeout => "TIMEOUT",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::CapabilityNotFound => "CAPABILITY_NOT_FOUND",
            Self::UpstreamError => "UPSTREAM_ERROR",
            Self::ServiceUnavailable => "SERVICE_UNAVAILABLE",
        }
    }
}

impl fmt::Display for AguiErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for AguiErrorCode {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let code = text.replace('-', "_");
        Self::ALL.into_iter().find(|known| known.as_str().eq_ignore_ascii_case(&code)).ok_or(())
    }
}

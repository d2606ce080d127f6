//! Converts a fault into the errors of each protocol, and back.

use serde_json::{Map, Value};

use super::catalogue::{AguiErrorCode, FaultKind};
use super::{Exposure, Fault, whole_seconds};
use crate::assistant::AssistantError;
use crate::error::{ErrorDomain, ErrorSeverity, StreamError};
use crate::event::UserError;
use crate::problem::Problem;

/// The detail with an assistant's own word.
const ASSISTANT_ERROR: &str = "assistant_error";
/// The details of a StreamError that are members of a fault.
const RETRY_AFTER: &str = "retry_after";
const RETRYABLE: &str = "retryable";
const KIND: &str = "kind";

impl Fault {
    /// The details for callers: the public ones, and in debug mode the cause.
    pub(crate) fn exposed_details(&self, exposure: Exposure) -> Map<String, Value> {
        let mut details = (*self.details).clone();
        if let (Exposure::Debug, Some(cause)) = (exposure, &self.cause) {
            details.insert("error_type".into(), cause.error_type.as_str().into());
            details.insert("source_chain".into(), cause.chain.clone().into());
        }
        details
    }

    /// Converts to the payload of an ERROR packet. A StreamError has fewer members than a fault, so
    /// the details hold the rest: `retry_after`, and if code and severity do not imply them,
    /// `retryable` and `kind`.
    pub fn to_stream_error(&self, exposure: Exposure) -> StreamError {
        let mut details = self.exposed_details(exposure);
        if let Some(seconds) = self.retry_after {
            details.insert(RETRY_AFTER.into(), seconds.into());
        }
        if self.retryable
            != implied_retryable(self.kind, self.foreign_code.is_some(), self.severity)
        {
            details.insert(RETRYABLE.into(), self.retryable.into());
        }
        if self.foreign_code.is_some() && self.kind != FaultKind::AgentExecutionError {
            details.insert(KIND.into(), self.kind.entry().code.into());
        }
        let details = (!details.is_empty()).then_some(details);
        StreamError {
            code: self.code().to_owned(),
            message: self.message.clone(),
            severity: self.severity,
            details,
        }
    }

    /// Converts to RFC 9457 problem details. The status is that of the finer kind.
    pub fn to_problem(&self, exposure: Exposure) -> Problem {
        let entry = self.kind.entry();
        let details = self.exposed_details(exposure);
        Problem {
            problem_type: entry.problem_type(),
            title: entry.title.to_owned(),
            status: entry.status,
            detail: Some(self.message.clone()),
            instance: None,
            code: self.code().to_owned(),
            severity: self.severity,
            domain: entry.domain,
            retryable: self.retryable,
            retry_after: self.retry_after,
            request_id: None,
            details: (!details.is_empty()).then_some(details),
        }
    }

    /// Converts to a `user_error` event's data.
    pub fn to_user_error(&self) -> UserError {
        UserError {
            message: self.message.clone(),
            code: Some(i64::from(self.status())),
            domain: self.domain(),
            retryable: self.retryable,
        }
    }

    /// Converts to an assistant message's error: the original word, or the nearest one.
    pub fn to_assistant_error(&self) -> AssistantError {
        if let Some(word) = self.details.get(ASSISTANT_ERROR).and_then(Value::as_str) {
            return AssistantError::from(word);
        }
        match self.kind {
            FaultKind::TenantRequired | FaultKind::TenantUnauthorized | FaultKind::UpstreamAuth => {
                AssistantError::AuthenticationFailed
            }
            FaultKind::UpstreamQuota => AssistantError::BillingError,
            FaultKind::ModelNotFound => AssistantError::ModelNotFound,
            FaultKind::RateLimitExceeded
            | FaultKind::SessionLimitExceeded
            | FaultKind::MessageLimitExceeded
            | FaultKind::StorageLimitExceeded => AssistantError::RateLimit,
            FaultKind::InvalidRequest
            | FaultKind::RequestConflict
            | FaultKind::InterruptNotOpen
            | FaultKind::PayloadTooLarge
            | FaultKind::AnswerTooLarge
            | FaultKind::RouteNotFound
            | FaultKind::MethodNotAllowed
            | FaultKind::UnsupportedMediaType
            | FaultKind::ContextLengthExceeded
            | FaultKind::NotTranslated
            | FaultKind::ContentRefused => AssistantError::InvalidRequest,
            FaultKind::Timeout
            | FaultKind::UpstreamTimeout
            | FaultKind::ServiceUnavailable
            | FaultKind::RunInterrupted
            | FaultKind::JournalUnavailable
            | FaultKind::UpstreamError
            | FaultKind::UpstreamUnreachable
            | FaultKind::UpstreamTruncated
            | FaultKind::UpstreamMalformed => AssistantError::ServerError,
            FaultKind::AgentNotFound
            | FaultKind::CapabilityNotFound
            | FaultKind::SessionNotFound
            | FaultKind::StreamNotFound
            | FaultKind::StreamExpired
            | FaultKind::StreamLost
            | FaultKind::AttemptDiverged
            | FaultKind::StreamTooLong
            | FaultKind::AgentExecutionError => AssistantError::Unknown,
        }
    }

    /// Reads an assistant's error. The API's status decides first, the word second. The fault keeps
    /// the word in any case.
    pub fn from_assistant_error(error: &AssistantError, api_error_status: Option<u16>) -> Self {
        let fault = match api_error_status {
            Some(401 | 403) => Self::new(FaultKind::UpstreamAuth),
            Some(402) => Self::new(FaultKind::UpstreamQuota),
            Some(400) if error.is_quota() => Self::new(FaultKind::UpstreamQuota),
            Some(400 | 404) if *error == AssistantError::ModelNotFound => {
                Self::new(FaultKind::ModelNotFound)
            }
            Some(status @ 400..=599) => Self::from_upstream_status(status, None),
            _ => Self::from_assistant_word(error),
        };
        fault.with_detail(ASSISTANT_ERROR, error.as_str())
    }

    fn from_assistant_word(error: &AssistantError) -> Self {
        let upstream = |severity: ErrorSeverity| {
            Self::new(FaultKind::UpstreamError)
                .with_severity(severity)
                .with_retryable(severity == ErrorSeverity::Transient)
        };
        match error {
            AssistantError::AuthenticationFailed
            | AssistantError::OauthOrgNotAllowed
            | AssistantError::CloudCredentialError => Self::new(FaultKind::UpstreamAuth),
            AssistantError::BillingError
            | AssistantError::AccountOnHold
            | AssistantError::VerificationRequired => Self::new(FaultKind::UpstreamQuota),
            AssistantError::RateLimit
            | AssistantError::Overloaded
            | AssistantError::ServerError => upstream(ErrorSeverity::Transient),
            AssistantError::ModelNotFound => Self::new(FaultKind::ModelNotFound),
            AssistantError::InvalidRequest
            | AssistantError::MaxOutputTokens
            | AssistantError::Unknown
            | AssistantError::Other(_) => upstream(ErrorSeverity::Fatal),
        }
    }
}

/// Whether code and severity imply a retry. A foreign code of unknown kind has no row in the
/// catalogue.
fn implied_retryable(kind: FaultKind, is_foreign: bool, severity: ErrorSeverity) -> bool {
    match (kind, is_foreign) {
        (FaultKind::AgentExecutionError, true) => severity == ErrorSeverity::Transient,
        (kind, _) => kind.entry().retryable,
    }
}

impl From<StreamError> for Fault {
    fn from(error: StreamError) -> Self {
        let retry_after = error.retry_after().and_then(whole_seconds);
        let mut details = error.details.unwrap_or_default();
        if retry_after.is_some() {
            details.retain(|name, _| name != RETRY_AFTER);
        }
        let (kind, foreign_code) = match FaultKind::of_code(&error.code) {
            Some(kind) => (kind, None),
            None => {
                let told = details.get(KIND).and_then(Value::as_str).and_then(FaultKind::of_code);
                if told.is_some() {
                    details.retain(|name, _| name != KIND);
                }
                (told.unwrap_or(FaultKind::AgentExecutionError), Some(error.code))
            }
        };
        let told = details.get(RETRYABLE).and_then(Value::as_bool);
        if told.is_some() {
            details.retain(|name, _| name != RETRYABLE);
        }
        let implied = implied_retryable(kind, foreign_code.is_some(), error.severity);
        let retryable = told.unwrap_or(implied);
        let (message, severity) = (error.message, error.severity);
        let details = Box::new(details);
        Self {
            kind,
            foreign_code,
            message,
            severity,
            retryable,
            retry_after,
            details,
            ..Self::new(kind)
        }
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        let known =
            FaultKind::of_code(&problem.code).or_else(|| FaultKind::of_type(&problem.problem_type));
        let mut fault = Self::new(known.unwrap_or(FaultKind::AgentExecutionError));
        if FaultKind::of_code(&problem.code).is_none() && !problem.code.is_empty() {
            fault.foreign_code = Some(problem.code);
        }
        fault.message = problem.detail.unwrap_or(problem.title);
        fault.severity = problem.severity;
        fault.retryable = problem.retryable;
        fault.retry_after = problem.retry_after;
        fault.details = Box::new(problem.details.unwrap_or_default());
        fault
    }
}

impl From<UserError> for Fault {
    /// A user error names no kind: its number and domain are the best that is known.
    fn from(error: UserError) -> Self {
        let kind = match (error.code, error.domain) {
            (Some(429), _) => FaultKind::RateLimitExceeded,
            (Some(504), _) => FaultKind::Timeout,
            (Some(401), _) => FaultKind::TenantRequired,
            (Some(403), _) | (_, ErrorDomain::Security) => FaultKind::TenantUnauthorized,
            (_, ErrorDomain::Llm) => FaultKind::UpstreamError,
            (Some(404), _) => FaultKind::CapabilityNotFound,
            (Some(503), _) => FaultKind::ServiceUnavailable,
            (Some(502), _) => FaultKind::UpstreamError,
            (_, ErrorDomain::Client) => FaultKind::InvalidRequest,
            (_, ErrorDomain::System | ErrorDomain::Tool) => FaultKind::AgentExecutionError,
        };
        // The run continues after any user error.
        let fault =
            Self::new(kind).with_message(error.message).with_severity(ErrorSeverity::Warning);
        fault.with_retryable(error.retryable).without_retry_after()
    }
}

impl From<AguiErrorCode> for Fault {
    fn from(code: AguiErrorCode) -> Self {
        Self::new(code.head())
    }
}

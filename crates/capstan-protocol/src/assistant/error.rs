//! The error of an assistant message: ADR 0004's six words, the CLI's current words, and unknown
//! ones.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why an assistant message is not an answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum AssistantError {
    /// The credentials are wrong.
    AuthenticationFailed,
    /// The account cannot pay.
    BillingError,
    /// Too many requests: wait, then offer a retry.
    RateLimit,
    /// The request is malformed.
    InvalidRequest,
    /// The provider failed.
    ServerError,
    /// The CLI does not know.
    Unknown,
    /// The organisation may not use this login.
    OauthOrgNotAllowed,
    /// The account is on hold.
    AccountOnHold,
    /// The account must be verified.
    VerificationRequired,
    /// The provider is overloaded.
    Overloaded,
    /// The model does not exist.
    ModelNotFound,
    /// The answer hit its length limit.
    MaxOutputTokens,
    /// The cloud's credentials are wrong.
    CloudCredentialError,
    /// An unknown word, unchanged.
    Other(String),
}

/// The six values of ADR 0004.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AdrError {
    /// The credentials are wrong.
    AuthenticationFailed,
    /// The account cannot pay.
    BillingError,
    /// Too many requests.
    RateLimit,
    /// The request is malformed.
    InvalidRequest,
    /// The provider failed.
    ServerError,
    /// Anything else.
    Unknown,
}

impl AssistantError {
    /// The thirteen known words.
    pub const KNOWN: [Self; 13] = [
        Self::AuthenticationFailed,
        Self::BillingError,
        Self::RateLimit,
        Self::InvalidRequest,
        Self::ServerError,
        Self::Unknown,
        Self::OauthOrgNotAllowed,
        Self::AccountOnHold,
        Self::VerificationRequired,
        Self::Overloaded,
        Self::ModelNotFound,
        Self::MaxOutputTokens,
        Self::CloudCredentialError,
    ];

    /// The word on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::AuthenticationFailed => "authentication_failed",
            Self::BillingError => "billing_error",
            Self::RateLimit => "rate_limit",
            Self::InvalidRequest => "invalid_request",
            Self::ServerError => "server_error",
            Self::Unknown => "unknown",
            Self::OauthOrgNotAllowed => "oauth_org_not_allowed",
            Self::AccountOnHold => "account_on_hold",
            Self::VerificationRequired => "verification_required",
            Self::Overloaded => "overloaded",
            Self::ModelNotFound => "model_not_found",
            Self::MaxOutputTokens => "max_output_tokens",
            Self::CloudCredentialError => "cloud_credential_error",
            Self::Other(word) => word,
        }
    }

    /// Maps the word to ADR 0004's six. It ignores blanks around a word; a blank word is none.
    pub fn adr(&self) -> Option<AdrError> {
        match self.as_str().trim() {
            "" => None,
            "authentication_failed" => Some(AdrError::AuthenticationFailed),
            "billing_error" => Some(AdrError::BillingError),
            "rate_limit" => Some(AdrError::RateLimit),
            "invalid_request" => Some(AdrError::InvalidRequest),
            "server_error" => Some(AdrError::ServerError),
            _ => Some(AdrError::Unknown),
        }
    }

    /// Whether the account causes the failure, not the request.
    pub(crate) fn is_quota(&self) -> bool {
        matches!(self, Self::BillingError | Self::AccountOnHold | Self::VerificationRequired)
    }
}

impl From<&str> for AssistantError {
    fn from(word: &str) -> Self {
        Self::KNOWN
            .into_iter()
            .find(|known| known.as_str() == word)
            .unwrap_or_else(|| Self::Other(word.to_owned()))
    }
}

impl From<String> for AssistantError {
    fn from(word: String) -> Self {
        Self::from(word.as_str())
    }
}

impl From<AssistantError> for String {
    fn from(error: AssistantError) -> Self {
        error.as_str().to_owned()
    }
}

impl fmt::Display for AssistantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

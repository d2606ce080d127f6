//! RUN_ERROR with the members of story 22-B2, in the forms that both client lines accept.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::event::{AguiEvent, EventBody};
use crate::error::{ErrorDomain, ErrorSeverity};
use crate::fault::AguiErrorCode;

/// One of the ten codes, or a foreign agent's code.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum AguiCode {
    /// One of the ten codes.
    Known(AguiErrorCode),
    /// Another code.
    Other(String),
}

impl AguiCode {
    /// The spelling on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(code) => code.as_str(),
            Self::Other(code) => code,
        }
    }

    /// Whether the code alone means that a retry may succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Known(code) if code.is_retryable())
    }
}

impl fmt::Display for AguiCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The members of RUN_ERROR beyond the story's, under `metadata.capstan`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CapstanMetadata {
    /// The catalogue's finer code.
    pub kind: String,
    /// The run's next step.
    pub severity: ErrorSeverity,
    /// The origin of the failure.
    pub domain: ErrorDomain,
    /// May a new request succeed?
    pub retryable: bool,
    /// The problem type: `/errors/<slug>`.
    #[serde(rename = "type")]
    pub problem_type: String,
}

/// The failure of a run, as AG-UI expresses it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunError {
    /// One of the ten codes.
    pub code: AguiCode,
    /// For people.
    pub message: String,
    /// The fixed status of the code.
    pub http_status: u16,
    /// More; empty in production unless it is harmless.
    #[serde(default)]
    pub details: Map<String, Value>,
    /// Seconds to wait before a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// The finer classification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capstan: Option<CapstanMetadata>,
}

/// The place of the story's members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunErrorForm {
    /// At top level, as in the story, and under `metadata.capstan`.
    #[default]
    Story,
    /// Only under `metadata.capstan`, for peers that sent a `protocolVersion`: they warn about
    /// unknown members.
    MetadataOnly,
}

/// The metadata key of our members.
const METADATA_KEY: &str = "capstan";

impl RunError {
    /// The event that ends the run.
    pub fn to_event(&self, form: RunErrorForm, timestamp: Option<i64>) -> AguiEvent {
        let at_top = form == RunErrorForm::Story;
        let body = EventBody::RunError {
            message: self.message.clone(),
            code: Some(self.code.as_str().to_owned()),
            http_status: at_top.then_some(self.http_status),
            details: at_top.then(|| self.details.clone()),
            retry_after: self.retry_after.filter(|_| at_top),
            usage: None,
        };
        AguiEvent { timestamp, metadata: Some(self.metadata()), ..AguiEvent::from(body) }
    }

    fn metadata(&self) -> Map<String, Value> {
        let mut ours = Map::new();
        ours.insert("code".into(), self.code.as_str().into());
        ours.insert("message".into(), self.message.as_str().into());
        ours.insert("http_status".into(), self.http_status.into());
        ours.insert("details".into(), Value::Object(self.details.clone()));
        if let Some(seconds) = self.retry_after {
            ours.insert("retry_after".into(), seconds.into());
        }
        if let Some(Value::Object(finer)) =
            self.capstan.as_ref().and_then(|c| serde_json::to_value(c).ok())
        {
            ours.extend(finer);
        }
        Map::from_iter([(METADATA_KEY.to_owned(), Value::Object(ours))])
    }

    /// Reads any RUN_ERROR: ours in either form, the story's, or a foreign one with only a message.
    pub fn from_event(event: &AguiEvent) -> Option<Self> {
        let EventBody::RunError { message, code, http_status, details, retry_after, .. } =
            &event.body
        else {
            return None;
        };
        let ours = event.metadata.as_ref().and_then(|m| m.get(METADATA_KEY));
        let mine = |name: &str| ours.and_then(|o| o.get(name));
        let code = code.as_deref().or_else(|| mine("code")?.as_str());
        let code = match code.map(|text| (text.parse(), text)) {
            Some((Ok(known), _)) => AguiCode::Known(known),
            Some((Err(()), other)) => AguiCode::Other(other.to_owned()),
            None => AguiCode::Known(AguiErrorCode::AgentExecutionError),
        };
        let fixed = if let AguiCode::Known(known) = &code { known.http_status() } else { 500 };
        let sent = http_status.or_else(|| u16::try_from(mine("http_status")?.as_u64()?).ok());
        Some(Self {
            message: message.clone(),
            http_status: sent.unwrap_or(fixed),
            details: details
                .clone()
                .or_else(|| mine("details")?.as_object().cloned())
                .unwrap_or_default(),
            retry_after: retry_after.or_else(|| mine("retry_after")?.as_u64()),
            capstan: ours.and_then(|o| serde_json::from_value(o.clone()).ok()),
            code,
        })
    }
}

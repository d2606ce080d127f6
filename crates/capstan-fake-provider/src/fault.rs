//! The table of faults. `response.rs` applies them to a response.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A way to misbehave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // The rows say what each does.
pub enum Fault {
    RefuseConnection,
    ResetBeforeHeaders,
    CloseBeforeHeaders,
    Silent,
    /// Any status of 300 to 599, with the body that providers send.
    Status(u16),
    WrongKey,
    Quota,
    ModelNotFound,
    InvalidRequest,
    ContextLength,
    ContentFilter,
    Moderation,
    ShouldNotRetry,
    RetryDelay,
    RefusesPrefill,
    ErrorIn200,
    Html,
    Html502,
    JsonInsteadOfStream,
    Gzip,
    Zstd,
    SlowFirstToken,
    SlowTokens,
    ResetMidStream,
    CloseMidStream,
    StallMidStream,
    PingsMidStream,
    EmptyDeltasMidStream,
    Truncated,
    DoneWithoutFinish,
    Empty,
    EmptyAnswer,
    NoDone,
    NoUsage,
    ErrorInStream,
    RateLimitInStream,
    OverloadedInStream,
    ErrorObjectInStream,
    DetailInStream,
    ErrorCodeInStream,
    MalformedChunk,
    BrokenSurrogate,
    FinishNull,
    SameIndexToolCalls,
    NoIndexToolCalls,
    LegacyFunctionCall,
    ContentParts,
    MessageForDelta,
}

/// A fault, with its name and its effect.
#[derive(Debug)]
pub struct Row {
    /// The fault.
    pub fault: Fault,
    /// Its name in scripts, flags and model names.
    pub name: &'static str,
    /// Its effect.
    pub what: &'static str,
}

const fn row(fault: Fault, name: &'static str, what: &'static str) -> Row {
    Row { fault, name, what }
}

/// Every fault; also `status-` with any number from 300 to 599. A fault that strikes `after` some
/// tokens may have a [`Place`](crate::Place) instead.
pub const FAULTS: &[Row] = &[
    row(
        Fault::RefuseConnection,
        "refuse-connection",
        "the port is closed: for `seconds`, or until the end",
    ),
    row(
        Fault::ResetBeforeHeaders,
        "reset-before-headers",
        "the request is read, then the connection is reset",
    ),
    row(
        Fault::CloseBeforeHeaders,
        "close-before-headers",
        "the request is read, then the connection is closed",
    ),
    row(
        Fault::Silent,
        "silent",
        "nothing is ever answered; with `seconds`, the connection closes then",
    ),
    row(Fault::Status(429), "status-429", "too many requests; `retry_after` becomes its header"),
    row(Fault::Status(500), "status-500", "the server failed"),
    row(Fault::Status(503), "status-503", "the server is overloaded"),
    row(Fault::Status(529), "status-529", "the same, in Anthropic's number"),
    row(Fault::WrongKey, "wrong-key", "401: the key is not accepted"),
    row(Fault::Quota, "quota", "429: the account has nothing left"),
    row(Fault::ModelNotFound, "model-not-found", "404: there is no such model"),
    row(Fault::InvalidRequest, "invalid-request", "400: the request is wrong"),
    row(Fault::ContextLength, "context-length", "400: the conversation is too long"),
    row(Fault::ContentFilter, "content-filter", "400: refused by content"),
    row(
        Fault::Moderation,
        "moderation",
        "403: a moderation before the model has flagged the input",
    ),
    row(Fault::ShouldNotRetry, "should-not-retry", "500 with `x-should-retry: false`"),
    row(
        Fault::RetryDelay,
        "retry-delay",
        "429 as Google tells it: an error in a list, its wait of `retry_after` (2) seconds in its \
         details",
    ),
    row(
        Fault::RefusesPrefill,
        "refuses-prefill",
        "400 if the last message is the assistant's; healthy otherwise",
    ),
    row(Fault::ErrorIn200, "error-in-200", "an error object with status 200"),
    row(Fault::Html, "html", "a web page with status 200"),
    row(Fault::Html502, "html-502", "a proxy's error page"),
    row(
        Fault::JsonInsteadOfStream,
        "json-instead-of-stream",
        "the complete answer as JSON, although the request wants a stream",
    ),
    row(Fault::Gzip, "gzip", "the stream is compressed with gzip, requested or not"),
    row(Fault::Zstd, "zstd", "the stream is compressed with zstd, requested or not"),
    row(
        Fault::SlowFirstToken,
        "slow-first-token",
        "headers at once, the first token after `seconds` (20)",
    ),
    row(Fault::SlowTokens, "slow-tokens", "`seconds` (1) before each token"),
    row(Fault::ResetMidStream, "reset-mid-stream", "the connection is reset `after` tokens (20)"),
    row(Fault::CloseMidStream, "close-mid-stream", "the connection is closed `after` tokens (20)"),
    row(
        Fault::StallMidStream,
        "stall-mid-stream",
        "nothing more comes `after` tokens (20); with `seconds`, it closes then",
    ),
    row(
        Fault::PingsMidStream,
        "pings-mid-stream",
        "nothing but pings comes `after` tokens (20), one each `seconds` (1)",
    ),
    row(
        Fault::EmptyDeltasMidStream,
        "empty-deltas-mid-stream",
        "nothing but empty deltas comes `after` tokens (20), one each `seconds` (1)",
    ),
    row(
        Fault::Truncated,
        "truncated",
        "the body ends well-formed `after` tokens (20), without a finish",
    ),
    row(
        Fault::DoneWithoutFinish,
        "done-without-finish",
        "`after` tokens (20) the stream reports its end, without a finish reason",
    ),
    row(Fault::Empty, "empty", "the stream is done without a word and without a finish"),
    row(Fault::EmptyAnswer, "empty-answer", "complete, with its finish, but without a word"),
    row(Fault::NoDone, "no-done", "complete, with its finish, but the last event is missing"),
    row(Fault::NoUsage, "no-usage", "complete, but without usage"),
    row(Fault::ErrorInStream, "error-in-stream", "an error event `after` tokens (20)"),
    row(
        Fault::RateLimitInStream,
        "rate-limit-in-stream",
        "a rate limit's error event `after` tokens (20)",
    ),
    row(
        Fault::OverloadedInStream,
        "overloaded-in-stream",
        "an overload's error event `after` tokens (20)",
    ),
    row(
        Fault::ErrorObjectInStream,
        "error-object-in-stream",
        "`{\"object\":\"error\"}` `after` tokens (20), then done",
    ),
    row(
        Fault::DetailInStream,
        "detail-in-stream",
        "`{\"detail\":…}` `after` tokens (20), then done",
    ),
    row(
        Fault::ErrorCodeInStream,
        "error-code-in-stream",
        "`{\"error_code\":…}` `after` tokens (20), then done",
    ),
    row(
        Fault::MalformedChunk,
        "malformed-chunk",
        "an event `after` tokens (20) is not JSON; then it continues",
    ),
    row(
        Fault::BrokenSurrogate,
        "broken-surrogate",
        "half a surrogate pair `after` tokens (20); then it continues",
    ),
    row(Fault::FinishNull, "finish-null", "each chunk's finish_reason is the text \"null\""),
    row(Fault::SameIndexToolCalls, "same-index-tool-calls", "several tool calls share the index 0"),
    row(
        Fault::NoIndexToolCalls,
        "no-index-tool-calls",
        "tool calls come whole and without an index",
    ),
    row(Fault::LegacyFunctionCall, "legacy-function-call", "a tool call comes as `function_call`"),
    row(Fault::ContentParts, "content-parts", "content is a list of parts"),
    row(Fault::MessageForDelta, "message-for-delta", "`message` stands where `delta` should"),
];

impl Fault {
    /// Whether it strikes before the request is read.
    pub(crate) fn comes_first(self) -> bool {
        matches!(
            self,
            Self::ResetBeforeHeaders
                | Self::CloseBeforeHeaders
                | Self::Silent
                | Self::Status(429..)
                | Self::WrongKey
                | Self::Quota
                | Self::Html502
        )
    }
}

/// No fault has this name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no fault is called {0:?}; `capstan fake-provider --list` names them")]
pub struct UnknownFault(pub String);

impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(name: &str) -> Result<Self, UnknownFault> {
        if let Some(row) = FAULTS.iter().find(|row| row.name == name) {
            return Ok(row.fault);
        }
        let status = name.strip_prefix("status-").and_then(|status| status.parse().ok());
        let status = status.filter(|status| (300..600).contains(status));
        status.map(Self::Status).ok_or_else(|| UnknownFault(name.to_owned()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (FAULTS.iter().find(|row| row.fault == *self), self) {
            (Some(row), _) => f.write_str(row.name),
            (None, Self::Status(status)) => write!(f, "status-{status}"),
            (None, _) => write!(f, "{self:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_found_by_name_and_described() {
        for row in FAULTS {
            assert_eq!(row.name.parse::<Fault>().unwrap(), row.fault, "{}", row.name);
            assert_eq!(row.fault.to_string(), row.name);
            assert!(!row.what.is_empty());
        }
        assert_eq!("status-418".parse::<Fault>().unwrap().to_string(), "status-418");
        for wrong in ["status-200", "status-", "silence", ""] {
            assert!(wrong.parse::<Fault>().is_err(), "{wrong}");
        }
    }
}

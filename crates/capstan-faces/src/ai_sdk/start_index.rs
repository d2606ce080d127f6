//! The resume point of a reader that counts chunks: the AI SDK's `WorkflowChatTransport`.
//!
//! It counts the chunks of the POST's response, beginning with `start`, and requests the rest with
//! `?startIndex=N`. A negative number counts from the present end.

use capstan_journal::Run;
use capstan_protocol::Fault;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;

use super::items::AiSdkItems;
use crate::face::FaceContext;
use crate::query;

/// The number of the last chunk, for a reader that has counted from the end.
pub(super) const TAIL: &str = "x-workflow-stream-tail-index";

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Params {
    /// Only the chunks from this one on; the first is 0. A negative number counts from the end.
    start_index: Option<i64>,
}

/// The first chunk that a reader gets, and the last one that existed when it came.
#[derive(Debug, Clone, Copy)]
pub(super) struct StartIndex {
    pub(super) first: u64,
    tail: Option<i64>,
}

impl StartIndex {
    /// Reads the request's start index; nothing if it has none.
    pub(super) async fn of(
        cx: &FaceContext,
        run: &Run,
        parts: &Parts,
    ) -> Result<Option<Self>, Fault> {
        let params: Params = query::parse(&parts.uri)?;
        let Some(index) = params.start_index else { return Ok(None) };
        if let Ok(first) = u64::try_from(index) {
            return Ok(Some(Self { first, tail: None }));
        }
        let count = AiSdkItems::count(cx, run).await?;
        let first = count.saturating_sub(index.unsigned_abs());
        Ok(Some(Self { first, tail: i64::try_from(count).ok().map(|count| count - 1) }))
    }

    pub(super) fn name(self, headers: &mut HeaderMap) {
        if let Some(tail) = self.tail {
            headers.insert(TAIL, HeaderValue::from(tail));
        }
    }
}

//! Where a reader goes on that counts chunks: the AI SDK's `WorkflowChatTransport`.
//!
//! It counts what a POST was answered with, `start` first, and asks for the rest with
//! `?startIndex=N`. A negative one counts from the end of what there is.

use capstan_journal::Run;
use capstan_protocol::Fault;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;

use super::items::AiSdkItems;
use crate::face::FaceContext;
use crate::query;

/// The last place that there is, for whoever has counted from the end.
pub(super) const TAIL: &str = "x-workflow-stream-tail-index";

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Params {
    /// Only the chunks from this one on; the first is 0. Below zero: so many from the end.
    start_index: Option<i64>,
}

/// The first chunk that a reader gets, and the last one that there was when it came.
#[derive(Debug, Clone, Copy)]
pub(super) struct StartIndex {
    pub(super) first: u64,
    tail: Option<i64>,
}

impl StartIndex {
    /// What a request asks for; nothing if it does not count.
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

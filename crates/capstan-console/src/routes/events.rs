//! What happens, as it happens.

use axum::extract::State;
use axum::response::Response;
use capstan_protocol::FaultKind;

use super::about;
use crate::Console;
use crate::feed::{self, FeedEvent};
use crate::visitor::Visitor;
use capstan_kit::openapi::{Answer, Content, Row, Tag, model};
use capstan_kit::refusal::Refusal;

pub(crate) const EVENTS: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "Follow events of runs",
    says: "Server-sent events of this process, for those in sight: `run` when one began, failed \
     in an attempt, waits, was armed or closed; \
        `refused`; `state` at the beginning and when the server drains; `lagged` if some were \
        missed, or more came than a hundred a second, after which one asks anew. A comment \
        every 15 seconds. Twenty may listen at once.",
    answers: &[Answer::ok("The events.", &[Content::Events(model::<FeedEvent>)])],
    faults: &[
        FaultKind::RouteNotFound,
        FaultKind::ServiceUnavailable,
        FaultKind::JournalUnavailable,
    ],
    ..Row::NONE
};

pub(crate) async fn events(
    State(console): State<Console>,
    visitor: Visitor,
) -> Result<Response, Refusal> {
    let health = about::line(&console, &visitor).await?;
    Ok(feed::respond(&console, visitor, &health)?)
}

//! The live feed of events.

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
    says: "Server-sent events of this process about visible runs: `run` when one began, failed in \
     an attempt, waits, was armed or closed; `refused`; `state` at the beginning and when the \
     server drains; `lagged` if events were missed or more than a hundred came within a second, \
     after which the client loads its page again. A comment comes every 15 seconds. At most twenty \
     may listen.",
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

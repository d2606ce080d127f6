//! Runs that need attention, and the most frequent faults.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use capstan_journal::RollupKey;
use schemars::JsonSchema;
use serde::Serialize;

use super::numbers::{FAULTS_OF_ANY, HOUR, all_faults, before, sees, title_of};
use crate::Console;
use crate::attention::{self, Attention};
use crate::visitor::Visitor;
use capstan_kit::openapi::{Answer, Content, Row, Tag, model};
use capstan_kit::refusal::Refusal;

/// The overview page.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Overview {
    pub(crate) attention: Vec<Attention>,
    /// The most frequent faults of the last hour, five at most.
    pub(crate) faults: Vec<TopFault>,
}

/// A fault of an agent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TopFault {
    pub(crate) code: String,
    pub(crate) title: Option<&'static str>,
    /// Empty for refused requests.
    pub(crate) agent: String,
    pub(crate) count: u64,
}

pub(crate) const OVERVIEW: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "List runs that need attention",
    says: "Runs that are silent, overdue, in a later attempt, or without an owner, each with a \
     sentence. And the most frequent faults of the last hour, of this gateway only if several \
     share the journal.",
    answers: &[Answer::ok("The overview.", &[Content::Json(model::<Overview>)])],
    faults: FAULTS_OF_ANY,
    ..Row::NONE
};

pub(crate) async fn overview(
    State(console): State<Console>,
    visitor: Visitor,
) -> Result<Json<Overview>, Refusal> {
    let _one = console.engine.cpu_offload().answer(&visitor.payer()).await;
    let attention = attention::of(&console, &visitor).await?;
    let now = console.engine.now();
    let mut counts = HashMap::<(String, String), u64>::new();
    let is_seen = |key: &RollupKey| key.is_fault && sees(&visitor, key);
    console.memory.rollups.since(before(now, HOUR), now, is_seen, |_, key, found| {
        *counts.entry((key.code.clone(), key.agent.clone())).or_default() += all_faults(found);
    });
    let mut faults: Vec<_> = counts
        .into_iter()
        .map(|((code, agent), count)| TopFault { title: title_of(&code), code, agent, count })
        .collect();
    faults.sort_by(|a, b| (b.count, &a.code, &a.agent).cmp(&(a.count, &b.code, &b.agent)));
    faults.truncate(5);
    Ok(Json(Overview { attention, faults }))
}

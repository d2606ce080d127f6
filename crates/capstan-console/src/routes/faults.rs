//! Counts of faults: by code and agent, and over time.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use capstan_journal::{Counts, Rollup, RollupKey};
use capstan_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::numbers::{DAY, FAULTS_OF_ANY, HOUR, MINUTE, before, sees, title_of};
use crate::Console;
use crate::visitor::Visitor;
use capstan_kit::openapi::{Answer, Content, Row, Tag, model};
use capstan_kit::query::Query;
use capstan_kit::refusal::Refusal;

/// The range of time.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct FaultParams {
    /// The begin; a day ago by default.
    since: Option<Timestamp>,
    /// The end; now by default.
    until: Option<Timestamp>,
}

/// Faults by code and agent, and over time.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FaultTable {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    /// 60 for a day at most. 3600 for longer ranges, and where several gateways share the journal.
    pub(crate) step_seconds: i64,
    pub(crate) cells: Vec<FaultCell>,
    pub(crate) series: Vec<FaultStep>,
    /// Runs that ended in this time.
    pub(crate) runs_total: u64,
}

/// The counts of a fault of an agent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FaultCell {
    pub(crate) code: String,
    pub(crate) title: Option<&'static str>,
    /// Empty for refused requests.
    pub(crate) agent: String,
    /// Faults that ended a run.
    pub(crate) fatal: u64,
    /// Faults after which the run continued.
    pub(crate) healed: u64,
    /// Refused requests.
    pub(crate) refused: u64,
}

/// The counts of one step of time.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FaultStep {
    pub(crate) at: Timestamp,
    pub(crate) fatal: u64,
    pub(crate) healed: u64,
    pub(crate) refused: u64,
}

pub(crate) const FAULTS: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "List faults",
    says: "Faults by code and agent, and over time: by the minute for a day, by the hour for \
     thirty. What was counted before this \
        process began is known by the hour.",
    query: Some(FaultParams::json_schema),
    answers: &[Answer::ok("The table.", &[Content::Json(model::<FaultTable>)])],
    faults: FAULTS_OF_ANY,
    ..Row::NONE
};

#[derive(Default)]
struct Sums {
    cells: BTreeMap<(String, String), Counts>,
    series: BTreeMap<i64, Counts>,
    runs: u64,
}

impl Sums {
    fn add(&mut self, at: Timestamp, key: &RollupKey, counts: &Counts) {
        if !key.is_fault {
            self.runs += counts.runs;
            return;
        }
        self.cells.entry((key.code.clone(), key.agent.clone())).or_default().add(counts);
        self.series.entry(at.as_micros()).or_default().add(counts);
    }
}

pub(crate) async fn faults(
    State(console): State<Console>,
    visitor: Visitor,
    Query(params): Query<FaultParams>,
) -> Result<Json<FaultTable>, Refusal> {
    let to = params.until.unwrap_or_else(|| console.engine.now());
    let from = params.since.unwrap_or_else(|| before(to, DAY));
    // The counts of other gateways are only in the store.
    let is_recent =
        from >= before(console.engine.now(), DAY + MINUTE) && !console.engine.store().is_shared();
    let mut sums = Sums::default();
    if is_recent {
        let is_seen = |key: &RollupKey| sees(&visitor, key);
        console
            .memory
            .rollups
            .since(from, to, is_seen, |at, key, counts| sums.add(at, key, counts));
    } else {
        let rows =
            console.engine.store().rollups(Rollup::hour_of(from), Rollup::hour_of(to)).await?;
        for row in rows.iter().filter(|row| sees(&visitor, &row.key)) {
            sums.add(Rollup::time_of(row.hour), &row.key, &row.counts);
        }
    }
    let Sums { cells, series, runs } = sums;
    let cell = |((code, agent), counts): ((String, String), Counts)| {
        let Counts { fatal, healed, refused, .. } = counts;
        FaultCell { title: title_of(&code), code, agent, fatal, healed, refused }
    };
    let step = |(at, counts): (i64, Counts)| {
        let Counts { fatal, healed, refused, .. } = counts;
        FaultStep { at: Timestamp::from_micros(at), fatal, healed, refused }
    };
    Ok(Json(FaultTable {
        from,
        to,
        step_seconds: if is_recent { MINUTE } else { HOUR },
        cells: cells.into_iter().map(cell).collect(),
        series: series.into_iter().map(step).collect(),
        runs_total: runs,
    }))
}

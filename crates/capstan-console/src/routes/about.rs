//! The visitor, and the state of the server.

use axum::Json;
use axum::extract::State;
use capstan_journal::{Health as JournalHealth, ReplicaState, Standing};
use capstan_protocol::FaultKind;

use super::numbers::faults_lately;
use crate::Console;
use crate::answers::{Health, Me, ReplicaPlace, ServerState};
use crate::visitor::{Act, Visitor};
use capstan_kit::answers::millis;
use capstan_kit::identity::operators::{EVERY_TENANT, Right};
use capstan_kit::openapi::{Answer, Content, Row, Tag, model};
use capstan_kit::refusal::Refusal;

pub(crate) const ME: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "Get the visitor",
    says: "The visitor's name and rights, and the tenants whose runs are visible.",
    answers: &[Answer::ok("The visitor.", &[Content::Json(model::<Me>)])],
    faults: &[FaultKind::RouteNotFound],
    ..Row::NONE
};

pub(crate) const HEALTH: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "Get the health of this process",
    says: "A tenant sees its own numbers.",
    answers: &[Answer::ok("The health.", &[Content::Json(model::<Health>)])],
    faults: &[FaultKind::RouteNotFound, FaultKind::JournalUnavailable],
    ..Row::NONE
};

pub(crate) async fn me(State(console): State<Console>, visitor: Visitor) -> Json<Me> {
    let settings = &console.settings;
    let may = match &visitor {
        Visitor::Operator(operator) => {
            Right::ALL.into_iter().filter(|right| operator.may(*right)).collect()
        }
        Visitor::Tenant(caller) | Visitor::Local(caller) => {
            let may_act = visitor.may_act(&console, Act::Stop, &caller.tenant);
            let act = Some(Right::Act).filter(|_| may_act);
            [Right::Look, Right::Content].into_iter().chain(act).collect::<Vec<_>>()
        }
    };
    Json(Me {
        who: visitor.kind(),
        name: visitor.name().to_owned(),
        tenants: visitor.tenants().unwrap_or_else(|| vec![EVERY_TENANT.to_owned()]),
        may,
        content: console.content(),
        actions: settings.actions,
        trace_url: settings.trace_url.clone(),
        logs_url: settings.logs_url.clone(),
        version: env!("CARGO_PKG_VERSION"),
        replicas: console.engine.store().is_shared() && visitor.sees_server(),
    })
}

pub(crate) async fn health(
    State(console): State<Console>,
    visitor: Visitor,
) -> Result<Json<Health>, Refusal> {
    Ok(Json(line(&console, &visitor).await?))
}

pub(super) async fn line(console: &Console, visitor: &Visitor) -> Result<Health, Refusal> {
    let (running, waiting, responses) = counts(console, visitor).await?;
    Ok(Health {
        state: state(console),
        running,
        waiting,
        responses,
        append_p95_ms: console.load().append_p95.filter(|_| visitor.sees_server()).map(millis),
        faults_5m: faults_lately(console, visitor, 300),
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: console.started.elapsed().as_secs_f64(),
        replica: if visitor.sees_server() { place(console).await? } else { None },
    })
}

fn state(console: &Console) -> ServerState {
    let is_well = matches!(console.engine.journal_health(), JournalHealth::Well);
    match (console.engine.is_draining(), is_well) {
        (true, _) => ServerState::Draining,
        (false, true) => ServerState::Ready,
        (false, false) => ServerState::JournalBroken,
    }
}

/// The numbers of running runs, waiting runs and open responses.
async fn counts(console: &Console, visitor: &Visitor) -> Result<(u64, u64, u64), Refusal> {
    if let Visitor::Tenant(caller) = visitor {
        let readers = console.engine.readers_of(&caller.tenant) as u64;
        if !console.engine.may_have_open_runs() {
            return Ok((0, 0, readers));
        }
        let used = console.engine.store().usage(&caller.tenant, "").await?;
        return Ok((used.running, used.waiting, readers));
    }
    let waiting = console.engine.waiting_runs() as u64;
    Ok((console.memory.at_work(), waiting, console.load().responses))
}

async fn place(console: &Console) -> Result<Option<ReplicaPlace>, Refusal> {
    let Some(cluster) = console.engine.store().cluster() else { return Ok(None) };
    let lives = |replica: &ReplicaState| replica.standing != Standing::Gone;
    let living: Vec<_> = cluster.replicas().await?.into_iter().filter(lives).collect();
    let own = living.iter().enumerate().find(|(_, replica)| replica.is_self);
    Ok(own.map(|(at, own)| ReplicaPlace { name: own.name.clone(), n: at + 1, of: living.len() }))
}

//! `store: false`: the answer is erased a while after its end. Until then a reader that was cut can
//! resume. The journal's index finds such answers, also after a restart.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use capstan_journal::{NameKind, Named, Run};
use capstan_protocol::Fault;

use crate::face::FaceContext;
use crate::identity::caller::LOCAL;
use capstan_engine::faults::journal_fault;
use capstan_engine::ports::ByGateway;
use capstan_engine::purge;
use capstan_engine::wall_clock::between;

/// The chat under which the journal lists such runs.
pub(super) const NAME: &str = "openai:unstored";
/// How long after its end an answer can still be read.
const READABLE: Duration = Duration::from_secs(600);
/// The number of runs that are erased before other tasks get their turn.
const PAGE: usize = 256;
/// The most tenants that are remembered in addition to the configured ones.
const MOST: usize = 10_000;

/// Tenants that have used `store: false` since the start. Tokens may name tenants that are not
/// configured.
#[derive(Default)]
pub(super) struct Tenants(Mutex<BTreeSet<String>>);

impl Tenants {
    pub(super) fn note(&self, tenant: &str) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() < MOST && !seen.contains(tenant) {
            seen.insert(tenant.to_owned());
        }
    }

    fn all(&self, cx: &FaceContext) -> BTreeSet<String> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let configured = cx.tenants.current();
        seen.into_iter()
            .chain(configured.iter().map(|tenant| tenant.name.clone()))
            .chain([LOCAL.to_owned()])
            .collect()
    }
}

/// Erases all answers that are due.
pub(super) async fn erase(cx: &FaceContext, tenants: &Tenants) {
    for tenant in tenants.all(cx) {
        if let Err(fault) = erase_of(cx, &tenant).await {
            let cause = cx.engine.loggable(&fault);
            tracing::warn!(
                tenant,
                code = fault.code(),
                cause,
                "answers with `store: false` could not be erased"
            );
        }
    }
}

async fn erase_of(cx: &FaceContext, tenant: &str) -> Result<(), Fault> {
    let mut before = None;
    loop {
        let found = cx
            .engine
            .store()
            .named(Named { tenant, kind: NameKind::Chat, name: NAME, before, limit: PAGE })
            .await;
        let found = found.map_err(journal_fault)?;
        let Some(oldest) = found.last() else { return Ok(()) };
        before = Some(oldest.stream_id);
        for run in found.into_iter().filter(|run| is_due(cx, run)) {
            purge::stream(&cx.engine, run, &ByGateway).await?;
        }
    }
}

fn is_due(cx: &FaceContext, run: &Run) -> bool {
    run.closed_at.is_some_and(|closed| between(closed, cx.engine.now()) >= READABLE)
}

#[cfg(test)]
mod tests {
    use capstan_agent::Clock;
    use capstan_engine::Engine;
    use capstan_journal::{Claim, Journal, Quota, RunState, TailLimits};
    use capstan_stores::{Durability, open};
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn an_unstored_answer_is_erased_ten_minutes_after_its_end() {
        let clock = Clock::by_hand();
        let journal =
            Journal::new(open("memory:", Durability::default()).unwrap(), TailLimits::default());
        let cx =
            FaceContext::of_engine(Engine::builder(journal.clone()).clock(clock.clone()).build());
        let claim = |key: &str, chat: Option<&str>| Claim {
            chat: chat.map(str::to_owned),
            ..Claim::new(LOCAL, key, Uuid::now_v7(), cx.engine.now())
        };
        let mut runs = Vec::new();
        for claim in [claim("a", Some(NAME)), claim("b", None), claim("c", Some(NAME))] {
            runs.push(journal.claim(claim, &Quota::UNLIMITED).await.unwrap().run);
        }
        for run in &runs[..2] {
            let to =
                Run { state: RunState::Closed, closed_at: Some(cx.engine.now()), ..run.clone() };
            assert!(
                journal.transition((RunState::Running, 1), to, Vec::new(), None).await.unwrap()
            );
        }
        let stored = async || {
            erase(&cx, &Tenants::default()).await;
            let mut stored = Vec::new();
            for run in &runs {
                stored.push(cx.engine.store().run(run.stream_id).await.unwrap().is_some());
            }
            stored
        };
        assert_eq!(stored().await, [true, true, true]);
        clock.set_by(599);
        assert_eq!(stored().await, [true, true, true]);
        clock.set_by(2);
        assert_eq!(stored().await, [false, true, true], "other runs and open ones stay");
    }
}

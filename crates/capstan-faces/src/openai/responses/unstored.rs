//! `store: false`: an answer that may be read for a while after its end, so that a reader that was
//! cut off can come back, and is erased then. The journal's own index finds them, in this life of
//! the process or a later one.

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

/// Under which their runs are found.
pub(super) const NAME: &str = "openai:unstored";
/// How long after its end an answer can still be read.
const KEPT: Duration = Duration::from_secs(600);
/// Erased at once, so that others get their turn.
const PAGE: usize = 256;
/// Tenants that only tokens name are remembered up to this many.
const MOST: usize = 10_000;

/// Tenants that have asked for it in this life, beside those that are configured.
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

/// Erases what is due.
pub(super) async fn erase(cx: &FaceContext, tenants: &Tenants) {
    for tenant in tenants.all(cx) {
        if let Err(fault) = erase_of(cx, &tenant).await {
            let cause = cx.engine.loggable(&fault);
            tracing::warn!(
                tenant,
                code = fault.code(),
                cause,
                "answers that were not to be stored are still kept"
            );
        }
    }
}

async fn erase_of(cx: &FaceContext, tenant: &str) -> Result<(), Fault> {
    let mut before = None;
    loop {
        let found = cx
            .engine
            .journal
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
    run.closed_at.is_some_and(|closed| between(closed, cx.engine.wall.now()) >= KEPT)
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
    async fn an_answer_that_was_not_to_be_stored_is_erased_ten_minutes_after_its_end() {
        let clock = Clock::by_hand();
        let journal =
            Journal::new(open("memory:", Durability::default()).unwrap(), TailLimits::default());
        let cx = FaceContext::of_engine(Engine::builder(journal).clock(clock.clone()).build());
        let claim = |key: &str, chat: Option<&str>| Claim {
            chat: chat.map(str::to_owned),
            ..Claim::new(LOCAL, key, Uuid::now_v7(), cx.engine.wall.now())
        };
        let mut runs = Vec::new();
        for claim in [claim("a", Some(NAME)), claim("b", None), claim("c", Some(NAME))] {
            runs.push(cx.engine.journal.claim(claim, &Quota::UNLIMITED).await.unwrap().run);
        }
        for run in &runs[..2] {
            let to = Run {
                state: RunState::Closed,
                closed_at: Some(cx.engine.wall.now()),
                ..run.clone()
            };
            assert!(
                cx.engine
                    .journal
                    .transition((RunState::Running, 1), to, Vec::new(), None)
                    .await
                    .unwrap()
            );
        }
        let kept = async || {
            erase(&cx, &Tenants::default()).await;
            let mut kept = Vec::new();
            for run in &runs {
                kept.push(cx.engine.journal.store().run(run.stream_id).await.unwrap().is_some());
            }
            kept
        };
        assert_eq!(kept().await, [true, true, true]);
        clock.set_by(599);
        assert_eq!(kept().await, [true, true, true]);
        clock.set_by(2);
        assert_eq!(
            kept().await,
            [false, true, true],
            "what others asked for, or is under way, stays"
        );
    }
}

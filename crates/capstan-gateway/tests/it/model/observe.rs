//! What the model learns from the store itself: after a restart, and when weeks have passed.

use capstan_journal::{Found, RunState};
use serde_json::Value;
use uuid::Uuid;

use crate::model::life::Life;
use crate::model::run::{Phase, Run};

impl Life {
    /// After a restart nothing runs before somebody asks.
    pub(crate) async fn check_recovered(&self) {
        for run in self.open_runs().await {
            if run.state == RunState::Running {
                self.world.lock().fail(format!("{} runs right after a restart", run.stream_id));
            }
        }
    }

    /// Learns what became of every key: what was claimed unseen, and what retention took.
    pub(crate) async fn observe(&self) {
        let keys: Vec<Uuid> = self.world.lock().runs.iter().map(|run| run.key).collect();
        for (index, key) in keys.into_iter().enumerate() {
            let found = self.truth.find("local", &key.to_string()).await.unwrap();
            let body = match &found {
                Some(Found::Run(run)) => self.truth.body(run.stream_id).await.unwrap(),
                Some(Found::Expired) | None => None,
            };
            let mut world = self.world.lock();
            let is_expiring = world.is_expiring;
            let outcome = learn(&mut world.runs[index], found, body.as_deref(), is_expiring);
            world.check(outcome);
        }
        self.world.lock().is_expiring = false;
    }
}

/// Brings the model up to what the store says, or says why it must not say that.
pub(crate) fn learn(
    run: &mut Run,
    found: Option<Found>,
    body: Option<&[u8]>,
    is_expiring: bool,
) -> Result<(), String> {
    match (run.phase, found) {
        (Phase::Fresh, None) | (Phase::Retired, Some(Found::Expired)) => {}
        (Phase::Fresh | Phase::Known, Some(Found::Run(stored))) => {
            let same = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
            let variant = run.bodies.iter().position(|own| same(own) == body.and_then(same));
            run.won(variant.ok_or("a body was stored that nobody sent")?)?;
            run.attached(stored.stream_id)?;
        }
        (Phase::Fresh | Phase::Known, Some(Found::Expired)) if is_expiring => {
            run.phase = Phase::Retired
        }
        (Phase::Retired, None) if is_expiring => run.forget(),
        (phase, found) => {
            return Err(format!("run {} was {phase:?}, and now there is {found:?}", run.name));
        }
    }
    Ok(())
}

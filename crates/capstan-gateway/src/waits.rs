//! The runs that wait for their client, by the moment at which they have waited for too long. Kept here so that nobody
//! has to look through the store for them.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_journal::Run;
use capstan_protocol::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

/// Nobody waits longer; moments beyond a clock's reach cannot be named.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A run that waited, in this attempt. If it waits in another by now, that wait has an entry of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wait {
    due: Instant,
    pub(crate) stream: Uuid,
    pub(crate) attempt: u32,
}

/// All of them, of this process.
#[derive(Default)]
pub(crate) struct Waits {
    by_due: Mutex<BTreeSet<Wait>>,
    added: Notify,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<Wait>> {
        self.by_due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run waits. Its client has `patience` from the moment at which it may come back.
    pub(crate) fn add(&self, run: &Run, patience: Duration) {
        let from = run.not_before.unwrap_or(run.updated_at).max(run.updated_at);
        // What has waited through a restart has less left.
        let left = (until(from).saturating_add(patience)).saturating_sub(since(from));
        let due = Instant::now() + left.min(LONGEST);
        self.put(Wait { due, stream: run.stream_id, attempt: run.attempt });
    }

    /// Looks at a wait again later, since ending it failed.
    pub(crate) fn postpone(&self, wait: Wait, by: Duration) {
        self.put(Wait { due: Instant::now() + by, ..wait });
    }

    fn put(&self, wait: Wait) {
        self.lock().insert(wait);
        self.added.notify_one();
    }

    /// The next one that is due, when it is.
    pub(crate) async fn due(&self) -> Wait {
        loop {
            let first = self.lock().first().copied();
            let Some(wait) = first else {
                self.added.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(wait.due) => {
                    if self.lock().remove(&wait) {
                        return wait;
                    }
                }
                () = self.added.notified() => {}
            }
        }
    }
}

/// How long it is until then; nothing if that has passed.
pub(crate) fn until(moment: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(moment.as_micros() - Timestamp::now().as_micros()).unwrap_or(0))
}

fn since(moment: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(Timestamp::now().as_micros() - moment.as_micros()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use capstan_journal::Claim;

    use super::*;

    fn waiting(attempt: u32, not_before: Option<i64>) -> Run {
        let now = Timestamp::now();
        let run = Claim::new("t", "k", Uuid::now_v7(), now).to_run();
        let at = |seconds: i64| Timestamp::from_micros(now.as_micros() + seconds * 1_000_000);
        Run { attempt, not_before: not_before.map(at), ..run }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_due_first_comes_first_whenever_it_was_added() {
        let (waits, began) = (Waits::default(), Instant::now());
        let patience = Duration::from_secs(300);
        waits.add(&waiting(1, Some(60)), patience);
        let late = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            waits.add(&waiting(2, None), Duration::from_secs(10));
        };
        let (first, ()) = tokio::join!(waits.due(), late);
        assert_eq!((first.attempt, began.elapsed().as_secs()), (2, 11));
        assert_eq!(waits.due().await.attempt, 1);
        let waited = began.elapsed().as_secs_f64();
        assert!((359.0..361.0).contains(&waited), "from when it may come back: {waited}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_waited_through_a_restart_is_due_at_once() {
        let (waits, mut run) = (Waits::default(), waiting(1, None));
        run.updated_at = Timestamp::from_micros(run.updated_at.as_micros() - 3_600_000_000);
        waits.add(&run, Duration::from_secs(300));
        let began = Instant::now();
        assert_eq!(waits.due().await.stream, run.stream_id);
        assert!(began.elapsed() < Duration::from_secs(1));
    }
}

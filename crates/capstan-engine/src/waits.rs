//! The runs that wait for their client: when each may go on, and when it has waited too long. They
//! are in memory, so that no query of the store is necessary. They use a monotonic clock.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_journal::Run;
use capstan_protocol::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use crate::wall_clock::between;

/// The longest wait, because an `Instant` cannot hold any future time.
const MAX_WAIT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A run that waits after this attempt. If it waits after a later attempt as well, that is another
/// entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wait {
    due: Instant,
    pub(crate) stream: Uuid,
    pub(crate) attempt: u32,
}

/// The waiting runs of this process.
#[derive(Default)]
pub(crate) struct Waits {
    all: Mutex<All>,
    added: Notify,
}

#[derive(Default)]
struct All {
    by_due: BTreeSet<Wait>,
    /// The wait, and the moment at which the next attempt may begin.
    by_stream: HashMap<Uuid, (Wait, Instant)>,
}

impl All {
    fn put(&mut self, wait: Wait, ready: Instant) {
        self.take(wait.stream);
        self.by_due.insert(wait);
        self.by_stream.insert(wait.stream, (wait, ready));
    }

    fn take(&mut self, stream: Uuid) {
        if let Some((wait, _)) = self.by_stream.remove(&stream) {
            self.by_due.remove(&wait);
        }
    }
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this run waits here.
    pub(crate) fn has(&self, stream: Uuid) -> bool {
        self.lock().by_stream.contains_key(&stream)
    }

    /// How many runs wait here.
    pub(crate) fn count(&self) -> usize {
        self.lock().by_stream.len()
    }

    /// Adds a run. Its client has `timeout`, counted from the moment at which it may come back.
    pub(crate) fn add(&self, run: &Run, ready: Instant, timeout: Duration) {
        self.put(
            Wait {
                due: ready + timeout.min(MAX_WAIT),
                stream: run.stream_id,
                attempt: run.attempt,
            },
            ready,
        );
    }

    /// Adds a run that waited before a restart, with the rest of its time.
    pub(crate) fn recover(&self, run: &Run, timeout: Duration, now: Timestamp) {
        let from = run.not_before.unwrap_or(run.updated_at).max(run.updated_at);
        self.add(run, ready(run, now), timeout.saturating_sub(between(from, now)));
    }

    /// Makes a wait due again later, because ending the run failed.
    pub(crate) fn postpone(&self, wait: Wait, by: Duration) {
        let now = Instant::now();
        self.put(Wait { due: now + by, ..wait }, now);
    }

    fn put(&self, wait: Wait, ready: Instant) {
        self.lock().put(wait, ready);
        self.added.notify_one();
    }

    /// When the next attempt of a run may begin.
    pub(crate) fn ready(&self, run: &Run, now: Timestamp) -> Instant {
        let known = self.lock().by_stream.get(&run.stream_id).copied();
        let known = known.filter(|(wait, _)| wait.attempt == run.attempt);
        known.map_or_else(|| ready(run, now), |(_, ready)| ready)
    }

    /// Removes a run that no longer waits.
    pub(crate) fn forget(&self, stream: Uuid) {
        self.lock().take(stream);
    }

    /// Sleeps until the next wait is due, and removes it.
    pub(crate) async fn due(&self) -> Wait {
        loop {
            let first = self.lock().by_due.first().copied();
            let Some(wait) = first else {
                self.added.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(wait.due) => {
                    let mut all = self.lock();
                    if all.by_due.contains(&wait) {
                        all.take(wait.stream);
                        return wait;
                    }
                }
                () = self.added.notified() => {}
            }
        }
    }
}

/// When the next attempt of a run may begin, according to its record. The clock may have been set
/// since, so the result is never longer than the original wait.
fn ready(run: &Run, now: Timestamp) -> Instant {
    let not_before = run.not_before.unwrap_or(run.updated_at);
    Instant::now() + between(now, not_before).min(between(run.updated_at, not_before)).min(MAX_WAIT)
}

#[cfg(test)]
mod tests {
    use capstan_journal::Claim;

    use super::*;
    use crate::wall_clock::later;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Timestamp {
        later(Timestamp::from_micros(0), Duration::from_secs(seconds))
    }

    /// A run that began to wait at second 10,000.
    fn waiting(attempt: u32, wait: Option<u64>) -> Run {
        let run = Claim::new("t", "k", Uuid::now_v7(), at(10_000)).to_run();
        Run { attempt, not_before: wait.map(|wait| at(10_000 + wait)), ..run }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_due_first_comes_first_whenever_it_was_added() {
        let (waits, began) = (Waits::default(), Instant::now());
        waits.add(&waiting(1, Some(60)), began + MINUTE, MINUTE * 5);
        let late = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            waits.add(&waiting(2, None), Instant::now(), Duration::from_secs(10));
        };
        let (first, ()) = tokio::join!(waits.due(), late);
        assert_eq!((first.attempt, began.elapsed().as_secs()), (2, 11));
        assert_eq!(waits.due().await.attempt, 1);
        assert_eq!(began.elapsed(), MINUTE * 6, "from when it may come back");
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_waited_through_a_restart_is_due_at_once() {
        let (waits, run, began) = (Waits::default(), waiting(1, None), Instant::now());
        waits.recover(&run, MINUTE * 5, at(13_600));
        assert_eq!(waits.due().await.stream, run.stream_id);
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_was_set_back_over_a_restart_prolongs_no_wait() {
        let (waits, run, began) = (Waits::default(), waiting(1, Some(60)), Instant::now());
        for now in [at(10_000 - 60), at(10_000 - 3600), at(0)] {
            waits.recover(&run, MINUTE * 5, now);
            assert_eq!(waits.ready(&run, now), began + MINUTE, "{now:?}");
        }
        waits.recover(&run, MINUTE * 5, at(10_045));
        assert_eq!(
            waits.ready(&run, at(0)),
            began + Duration::from_secs(15),
            "it is not asked again"
        );
        waits.due().await;
        assert_eq!(began.elapsed(), Duration::from_secs(15 + 300));
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_goes_on_waits_no_more_and_its_next_wait_is_another() {
        let (waits, run, began) = (Waits::default(), waiting(1, Some(60)), Instant::now());
        waits.add(&run, began + MINUTE, MINUTE);
        waits.forget(run.stream_id);
        let next = Run { attempt: 2, ..run };
        waits.add(&next, began + MINUTE * 2, MINUTE);
        assert_eq!((waits.due().await.attempt, began.elapsed()), (2, MINUTE * 3));
    }
}

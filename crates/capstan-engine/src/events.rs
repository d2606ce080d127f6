//! What happens to runs, for whoever observes them: metrics, the log, the console. The engine knows
//! none of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use capstan_agent::CallEnded;
use capstan_journal::Run;
use capstan_protocol::{Fault, FaultKind, Timestamp};

/// Something that happened to a run.
#[derive(Debug, Clone, Copy)]
pub struct RunEvent<'a> {
    /// The run, as it is after what happened.
    pub run: &'a Run,
    /// The run's agent as statistics name it: `other` if it is no longer configured.
    pub agent: &'a str,
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: Happened<'a>,
}

/// What it was.
#[derive(Debug, Clone, Copy)]
pub enum Happened<'a> {
    /// Its claim is in the journal.
    Started,
    /// A request came to a run that was there already.
    Attached,
    /// This process works on it from here on.
    TakenUp,
    /// This process no longer works on it.
    LetGo,
    /// An attempt of an agent begins.
    AttemptBegan,
    /// Somebody said something in it for the first time.
    FirstPacket {
        /// Since the attempt began.
        after: Duration,
    },
    /// Packets were committed.
    Appended {
        /// How long the journal took.
        took: Duration,
    },
    /// A call that a route made has ended.
    CallEnded {
        /// The call.
        call: &'a CallEnded,
        /// Tokens of its answer, if the provider counts them.
        output_tokens: Option<u64>,
    },
    /// An attempt failed, whoever noticed it: the relay, a drain, or recovery after a restart.
    AttemptFailed {
        /// Why.
        fault: &'a Fault,
    },
    /// The journal refused what the run wrote.
    JournalRefused {
        /// Why.
        kind: FaultKind,
    },
    /// A viewer met packets that cannot be read any more.
    ReadDamage,
    /// Another attempt follows by itself.
    Retried,
    /// It waits for its client to come back.
    Waiting,
    /// It waited, and its next attempt may begin.
    Resumed,
    /// Its end is in the journal.
    Ended,
}

/// Somebody who wants to know what happens to runs. It is called where it happens, so it must not
/// block; if it panics, the run goes on.
pub trait RunObserver: Send + Sync + 'static {
    /// Something happened.
    fn observe(&self, event: &RunEvent<'_>);
}

/// All who observe.
#[derive(Default)]
pub struct Observers(Vec<Arc<dyn RunObserver>>);

impl Observers {
    /// These, in this order.
    pub fn new(observers: Vec<Arc<dyn RunObserver>>) -> Self {
        Self(observers)
    }

    pub(crate) fn emit(&self, event: &RunEvent<'_>) {
        for observer in &self.0 {
            if catch_unwind(AssertUnwindSafe(|| observer.observe(event))).is_err() {
                tracing::error!(stream = %event.run.stream_id, "an observer of runs panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use capstan_journal::Claim;
    use uuid::Uuid;

    use super::*;

    struct Panics;

    impl RunObserver for Panics {
        fn observe(&self, _: &RunEvent<'_>) {
            panic!("an observer's own fault");
        }
    }

    #[derive(Default)]
    struct Counts(AtomicUsize);

    impl RunObserver for Counts {
        fn observe(&self, _: &RunEvent<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_observer_that_panics_keeps_no_other_from_knowing() {
        let counts = Arc::new(Counts::default());
        let observers = Observers::new(vec![Arc::new(Panics), counts.clone()]);
        let run = Claim::new("t", "k", Uuid::now_v7(), Timestamp::now()).to_run();
        let event =
            RunEvent { run: &run, agent: "demo", at: Timestamp::now(), what: Happened::Ended };
        observers.emit(&event);
        assert_eq!(counts.0.load(Ordering::Relaxed), 1);
    }
}

//! What happens to runs, for whoever observes them: metrics, the log, the console. The engine knows
//! none of them, and waits for none of them: see `observers`.

use std::sync::Arc;
use std::time::Duration;

use capstan_agent::CallEnded;
use capstan_journal::Run;
use capstan_protocol::{Fault, FaultKind, Timestamp};

/// Something that happened to a run.
#[derive(Debug, Clone)]
pub struct RunEvent {
    /// The run, as it is after what happened.
    pub run: Arc<Run>,
    /// The run's agent as statistics name it: `other` if it is no longer configured.
    pub agent: Arc<str>,
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: Happened,
}

/// What it was.
#[derive(Debug, Clone)]
pub enum Happened {
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
    /// A call that a route made has ended.
    CallEnded {
        /// The call.
        call: CallEnded,
        /// Tokens of its answer, if the provider counts them.
        output_tokens: Option<u64>,
    },
    /// An attempt failed, whoever noticed it: the relay, a drain, or recovery after a restart.
    AttemptFailed {
        /// Why.
        fault: Fault,
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

/// Somebody who wants to know what happens to runs. Each has a thread of its own, so it may
/// block and panic; what it is too slow for is dropped.
pub trait RunObserver: Send + Sync + 'static {
    /// By which the log knows it.
    fn name(&self) -> &'static str;

    /// Something happened to a run.
    fn observe(&self, event: &RunEvent);

    /// Packets were committed, and the journal took so long.
    fn appended(&self, _took: Duration) {}
}

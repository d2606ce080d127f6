//! The events of runs, for observers such as metrics, the log and the console. The engine does not
//! know its observers and never waits for them: see `observers`.

use std::sync::Arc;
use std::time::Duration;

use capstan_agent::CallEnded;
use capstan_journal::Run;
use capstan_protocol::{Fault, FaultKind, Timestamp};

/// An event of a run.
#[derive(Debug, Clone)]
pub struct RunEvent {
    /// The run's record after the event.
    pub run: Arc<Run>,
    /// The agent's name as a metric label: `other` if the agent is no longer configured.
    pub agent: Arc<str>,
    /// The time of the event.
    pub at: Timestamp,
    /// The kind of event.
    pub what: Happened,
}

/// The kind of an event.
#[derive(Debug, Clone)]
pub enum Happened {
    /// The journal has stored the run's claim.
    Started,
    /// A request attached to a run that existed already.
    Attached,
    /// This process has started a relay for the run.
    TakenUp,
    /// The relay of this process has left the run.
    LetGo,
    /// An attempt begins.
    AttemptBegan,
    /// The agent's first packet of the run is about to be committed.
    FirstPacket {
        /// Since the relay started.
        after: Duration,
    },
    /// A route's call of a member has ended.
    CallEnded {
        /// The call.
        call: CallEnded,
        /// Tokens of its answer, if the provider counts them.
        output_tokens: Option<u64>,
    },
    /// An attempt failed, in the relay, in a shutdown, or in recovery after a restart.
    AttemptFailed {
        /// Why.
        fault: Fault,
    },
    /// The journal refused a write of the run.
    JournalRefused {
        /// Why.
        kind: FaultKind,
    },
    /// A viewer reached packets that can no longer be read.
    ReadDamage,
    /// The relay makes another attempt without a request of the client.
    Retried,
    /// The run waits for its client to repeat the request.
    Waiting,
    /// The next attempt of a waiting run may begin.
    Resumed,
    /// The journal has stored the end of the run.
    Ended,
}

/// Receives the events of runs. Each observer has its own thread, so it may block or panic. The
/// engine drops events for which an observer is too slow.
pub trait RunObserver: Send + Sync + 'static {
    /// The observer's name in the log.
    fn name(&self) -> &'static str;

    /// Handles an event of a run.
    fn observe(&self, event: &RunEvent);

    /// Packets were committed to the journal. `took` is the duration of the commit.
    fn appended(&self, _took: Duration) {}
}

//! The events of runs, for observers such as metrics, the log and the console. The engine does not
//! know its observers and never waits for them: see `observers`.

use std::sync::Arc;
use std::time::Duration;

use capstan_agent::{About, CallEnded, TraceParent};
use capstan_journal::Run;
use capstan_protocol::{Fault, FaultKind, Timestamp};
use serde_json::{Map, Value};
use uuid::Uuid;

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
    Attached {
        /// The packet after which its client reads on.
        after: u64,
        /// The number of complete blocks or items that the client has, in protocols without
        /// cursors.
        behind: u64,
    },
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
    /// A route calls a member.
    CallBegan {
        /// The member.
        member: Arc<str>,
        /// The member's description.
        about: About,
    },
    /// A route's call of a member has ended.
    CallEnded {
        /// The call.
        call: CallEnded,
        /// The model that answers in this attempt.
        model: Option<String>,
        /// What this attempt has used, if the provider counts it.
        usage: Option<Map<String, Value>>,
    },
    /// The agent has left an attempt, or was stopped. The outcome is not stored yet.
    AttemptEnded {
        /// The code of the fault, if the attempt failed.
        code: Option<String>,
        /// The model that answered.
        model: Option<String>,
        /// What the attempt has used, if the provider counts it.
        usage: Option<Map<String, Value>>,
    },
    /// An attempt failed, in the relay, in a shutdown, or in recovery after a restart. The journal
    /// has stored what follows from it.
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

/// Records runs as trace spans. The engine calls it in line: a span has to begin and end on time,
/// and an attempt's calls need the context of its span. So an implementation must not block.
pub trait RunTracer: Send + Sync + 'static {
    /// Handles an event of a run.
    fn observe(&self, event: &RunEvent);

    /// A relay of this process begins to work on a run. `request` is the trace of the request that
    /// started it.
    fn begin_run(&self, run: &Run, about: &About, request: Option<&TraceParent>);

    /// An attempt begins. Returns the trace context for the agent's calls.
    fn begin_attempt(&self, run: &Run) -> Option<TraceParent>;

    /// The agent of a run reports a problem and goes on.
    fn warned(&self, stream: Uuid, code: &str);

    /// Ends the spans of runs that have waited for longer: another process has them now.
    fn forget_waiting(&self, longer_than: Duration);
}

//! Sends events to the observers of runs. Each observer has a bounded queue and its own thread, so
//! a run never waits for an observer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing::dispatcher::{self, DefaultGuard};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Span};
use uuid::Uuid;

use crate::events::{RunEvent, RunObserver};

/// The length of an observer's queue. The events of a thousand runs that start together fit in.
const QUEUE: usize = 8 * 1024;
/// How long `settled` waits for a slow observer.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1);

/// An entry of an observer's queue.
#[derive(Clone)]
enum Entry {
    /// An event, with the span in which it happened, so that log lines have its fields.
    Run(Arc<RunEvent>, Span),
    Appended(Duration),
    /// A marker: the sender wants to know when all earlier entries are handled.
    Mark(SyncSender<()>),
}

impl Entry {
    fn stream(&self) -> Option<Uuid> {
        match self {
            Self::Run(event, _) => Some(event.run.stream_id),
            Self::Appended(_) | Self::Mark(_) => None,
        }
    }
}

/// The queues of all observers.
#[derive(Default)]
pub(crate) struct Observers(Vec<Queue>);

struct Queue {
    name: &'static str,
    sender: SyncSender<Entry>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    queued: AtomicU64,
    observed: AtomicU64,
    dropped: AtomicU64,
}

impl Observers {
    /// Starts a thread for each observer. It ends after the last event when this value is dropped.
    pub(crate) fn new(observers: Vec<Arc<dyn RunObserver>>) -> Self {
        Self(observers.into_iter().map(|observer| Queue::new(observer, QUEUE)).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn emit(&self, event: RunEvent) {
        self.push(&Entry::Run(Arc::new(event), Span::current()));
    }

    pub(crate) fn appended(&self, took: Duration) {
        self.push(&Entry::Appended(took));
    }

    fn push(&self, entry: &Entry) {
        self.0.iter().for_each(|queue| queue.push(entry.clone()));
    }

    /// How many events each observer was too slow for.
    pub(crate) fn dropped(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|queue| (queue.name, queue.counts.dropped.load(Ordering::Relaxed)))
    }

    /// Waits until the observers have handled all earlier events, at most a second for a stuck one.
    pub(crate) async fn settled(&self) {
        let marks: Vec<_> = self.0.iter().filter_map(Queue::mark).collect();
        if marks.is_empty() {
            return;
        }
        let until = Instant::now() + SETTLE_TIMEOUT;
        let wait = move || {
            for mark in marks {
                let _ = mark.recv_timeout(until.saturating_duration_since(Instant::now()));
            }
        };
        // This wait needs real time. Tests stop the runtime's clock.
        let _ = tokio::task::spawn_blocking(wait).await;
    }
}

impl Queue {
    fn new(observer: Arc<dyn RunObserver>, length: usize) -> Self {
        let ((sender, entries), counts) = (sync_channel(length), Arc::<Counts>::default());
        let (name, seen) = (observer.name(), Arc::clone(&counts));
        let log = dispatcher::get_default(Dispatch::clone);
        let work = move || {
            let _log = log_to(&log);
            observe(&*observer, &entries, &seen);
        };
        if let Err(error) = thread::Builder::new().name(format!("observe-{name}")).spawn(work) {
            tracing::error!(observer = name, %error, "an observer of runs has no thread");
        }
        Self { name, sender, counts }
    }

    fn push(&self, entry: Entry) {
        let is_full = |error: &TrySendError<_>| matches!(error, TrySendError::Full(_));
        match self.sender.try_send(entry) {
            Ok(()) => drop(self.counts.queued.fetch_add(1, Ordering::Release)),
            Err(error) => {
                let before = self.counts.dropped.fetch_add(1, Ordering::Relaxed);
                if before == 0 && is_full(&error) {
                    tracing::warn!(observer = self.name, "an observer of runs is too slow");
                }
            }
        }
    }

    /// Queues a marker and returns its receiver. Returns nothing if the queue is empty.
    fn mark(&self) -> Option<Receiver<()>> {
        let queued = self.counts.queued.load(Ordering::Acquire);
        if self.counts.observed.load(Ordering::Acquire) >= queued {
            return None;
        }
        let (reached, mark) = sync_channel(1);
        self.sender.try_send(Entry::Mark(reached)).is_ok().then_some(mark)
    }
}

/// Uses the log of the code that built the engine, unless the process has a global log.
fn log_to(log: &Dispatch) -> Option<DefaultGuard> {
    let has_none = dispatcher::get_default(|log| log.is::<NoSubscriber>());
    has_none.then(|| dispatcher::set_default(log))
}

fn observe(observer: &dyn RunObserver, entries: &Receiver<Entry>, counts: &Counts) {
    let (name, mut reported) = (observer.name(), 0);
    for entry in entries {
        let dropped = counts.dropped.load(Ordering::Relaxed);
        if dropped > reported {
            let events = dropped - reported;
            tracing::warn!(observer = name, events, "events of runs were dropped");
            reported = dropped;
        }
        let observing = AssertUnwindSafe(|| match &entry {
            Entry::Run(event, span) => span.in_scope(|| observer.observe(event)),
            Entry::Appended(took) => observer.appended(*took),
            Entry::Mark(reached) => drop(reached.try_send(())),
        });
        if catch_unwind(observing).is_err() {
            let stream = entry.stream().map(tracing::field::display);
            tracing::error!(observer = name, stream, "an observer of runs panicked");
        }
        if !matches!(entry, Entry::Mark(_)) {
            counts.observed.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};

    use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
    use capstan_journal::{Claim, Journal, Quota, Run, RunState, Step, TailLimits};
    use capstan_protocol::{Timestamp, sse};
    use capstan_stores::{Durability, open};

    use super::*;
    use crate::ask::Ask;
    use crate::events::Happened;
    use crate::{Engine, EngineBuilder, Registered, runs};

    /// An observer that blocks until the test releases it.
    struct Blocks(Mutex<Receiver<()>>);

    impl RunObserver for Blocks {
        fn name(&self) -> &'static str {
            "blocks"
        }

        fn observe(&self, _: &RunEvent) {
            let _ = self.0.lock().unwrap().recv();
        }
    }

    fn blocks() -> (Arc<Blocks>, Sender<()>) {
        let (let_go, held) = channel();
        (Arc::new(Blocks(Mutex::new(held))), let_go)
    }

    struct Panics;

    impl RunObserver for Panics {
        fn name(&self) -> &'static str {
            "panics"
        }

        fn observe(&self, _: &RunEvent) {
            panic!("an observer's own fault");
        }

        fn appended(&self, _: Duration) {
            panic!("an observer's own fault");
        }
    }

    #[derive(Default)]
    struct Ends(AtomicU64);

    impl RunObserver for Ends {
        fn name(&self) -> &'static str {
            "ends"
        }

        fn observe(&self, event: &RunEvent) {
            let is_end = matches!(event.what, Happened::Ended);
            self.0.fetch_add(is_end.into(), Ordering::Relaxed);
        }
    }

    struct Speaks;

    #[async_trait]
    impl Agent for Speaks {
        async fn run(&self, _: Turn, out: &mut Writer) -> Outcome {
            for word in ["one", "two", "three"] {
                out.delta(word).await?;
            }
            Ok(())
        }
    }

    fn engine() -> EngineBuilder {
        let store = open("memory:", Durability::default()).unwrap();
        let engine = Engine::builder(Journal::new(store, TailLimits::default()));
        engine.internal_agent(Registered::new("speaks", Speaks))
    }

    fn run() -> Run {
        Claim::new("t", "k", Uuid::now_v7(), Timestamp::now()).to_run()
    }

    fn event() -> RunEvent {
        let (agent, at) = ("speaks".into(), Timestamp::now());
        RunEvent { run: Arc::new(run()), agent, at, what: Happened::Started }
    }

    /// Starts a run and returns all of its packets as text.
    async fn said(engine: &Engine) -> Vec<String> {
        let stream = Uuid::now_v7();
        let claim = Claim {
            agent: "speaks".into(),
            session: "s".into(),
            ..Claim::new("t", "k", stream, Timestamp::now())
        };
        let ask = Ask::new("k".into(), "s".into(), Vec::new());
        runs::start_internal(engine, claim, &Quota::UNLIMITED, ask).await.unwrap();
        let run = engine.journal.store().run(stream).await.unwrap().unwrap();
        let (mut reader, mut said) = (engine.journal.reader_of(&run, 0), Vec::new());
        loop {
            match reader.next().await.unwrap() {
                Step::Frames(frames) => {
                    let packets = frames.iter().filter_map(sse::decode_packet);
                    said.extend(packets.map(|p| format!("{:?}", p.payload)));
                }
                Step::State(RunState::Closed) => return said,
                Step::State(RunState::Running | RunState::Waiting) => {}
            }
        }
    }

    #[tokio::test]
    async fn observers_that_block_or_panic_cost_a_run_nothing() {
        let ((blocks, let_go), ends) = (blocks(), Arc::new(Ends::default()));
        let watched = engine().observer(blocks).observer(Arc::new(Panics)).observer(ends.clone());
        let watched = watched.build();
        let said_to_them = tokio::time::timeout(SETTLE_TIMEOUT * 10, said(&watched)).await.unwrap();
        assert_eq!(said_to_them.len(), 4, "three words and the end");
        assert_eq!(said_to_them, said(&engine().build()).await);
        drop(let_go);
        watched.observed().await;
        assert_eq!(ends.0.load(Ordering::Relaxed), 1, "the others are told all the same");
        assert!(watched.dropped_events().all(|(_, dropped)| dropped == 0));
    }

    #[tokio::test]
    async fn what_an_observer_is_too_slow_for_is_counted_and_nobody_waits() {
        let (blocks, let_go) = blocks();
        let observers = Observers(vec![Queue::new(blocks, 4)]);
        (0..100).for_each(|_| observers.emit(event()));
        let (_, dropped) = observers.dropped().next().unwrap();
        assert!((95..=96).contains(&dropped), "four wait, and one may be under way: {dropped}");
        drop(let_go);
        // The queue was full, so there was no room for a marker before.
        while observers.0[0].counts.observed.load(Ordering::Relaxed) + dropped < 100 {
            tokio::task::yield_now().await;
        }
    }
}

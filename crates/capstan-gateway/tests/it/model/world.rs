//! The model: what anybody has seen, what is known of every key, and the first thing that went
//! wrong.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use uuid::Uuid;

use crate::model::run::{self, Run};
use crate::model::script::End;

/// The world, as tasks and lives share it.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(World { seed, ..World::default() })))
    }

    /// Another seed's world takes the place of this one, for all who share it.
    pub(crate) fn renew(&self, seed: u64) {
        *self.lock() = World { seed, ..World::default() };
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }
}

#[derive(Default)]
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) runs: Vec<Run>,
    /// Every frame that any reader ever got, across all lives.
    seen: BTreeMap<Uuid, BTreeMap<u64, Bytes>>,
    pub(crate) life: u32,
    /// Requests that have no answer yet.
    pub(crate) pending: usize,
    pub(crate) is_draining: bool,
    /// Retention is at work: streams may go any moment.
    pub(crate) is_expiring: bool,
    /// What has happened so far, and therefore may show: lives that ended, power cuts, waits that
    /// were swept.
    pub(crate) interruptions: u32,
    pub(crate) power_cuts: u32,
    pub(crate) sweeps: u32,
    pub(crate) tally: Tally,
    log: Vec<String>,
    failure: Option<String>,
}

/// How often things happened, so that a schedule that tests nothing is noticed.
pub(crate) type Tally = BTreeMap<&'static str, u32>;

impl World {
    /// Takes down what happens, for the story of a failure.
    pub(crate) fn note(&mut self, what: impl Into<String>) {
        self.log.push(format!("life {}: {}", self.life, what.into()));
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    /// The first failure counts; what follows from it is noise.
    pub(crate) fn fail(&mut self, why: impl Into<String>) {
        let why = why.into();
        self.note(format!("FAILED: {why}"));
        self.failure.get_or_insert(why);
    }

    pub(crate) fn check(&mut self, outcome: Result<(), String>) {
        if let Err(why) = outcome {
            self.fail(why);
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The failure with everything that led to it.
    pub(crate) fn story(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        let mut story = format!("seed {} failed: {failure}\n\n", self.seed);
        for line in &self.log {
            let _ = writeln!(story, "  {line}");
        }
        let _ = writeln!(
            story,
            "\nrun it again: CAPSTAN_SEED={} cargo test -p capstan-gateway --test it model::",
            self.seed
        );
        Some(story)
    }

    /// A reader got a frame: whoever had this seq before had the same bytes.
    pub(crate) fn see(&mut self, stream: Uuid, seq: u64, frame: &[u8]) {
        let known = self.seen.entry(stream).or_default().entry(seq);
        let first = known.or_insert_with(|| Bytes::copy_from_slice(frame)).clone();
        if first != frame {
            let (first, now) = (String::from_utf8_lossy(&first), String::from_utf8_lossy(frame));
            self.fail(format!("seq {seq} of {stream} was\n{first}and is now\n{now}"));
        }
    }

    /// The highest seq that anybody has seen.
    pub(crate) fn tail(&self, stream: Uuid) -> u64 {
        self.seen.get(&stream).and_then(|frames| frames.keys().next_back()).copied().unwrap_or(0)
    }

    /// All seqs that anybody has seen.
    pub(crate) fn seqs(&self, stream: Uuid) -> Vec<u64> {
        self.seen.get(&stream).map(|frames| frames.keys().copied().collect()).unwrap_or_default()
    }

    pub(crate) fn begin_life(&mut self) {
        self.life += 1;
        (self.pending, self.is_draining) = (0, false);
        self.runs.iter_mut().for_each(Run::begin_life);
    }

    /// The agent was called.
    pub(crate) fn started(&mut self, message: &str, attempt: u32, life: u32) {
        self.note(format!("agent begins {message}, attempt {attempt}, in life {life}"));
        let outcome = self.on(message, |run, variant| run.start(variant, attempt, life));
        self.check(outcome);
    }

    /// The agent returns.
    pub(crate) fn ended(&mut self, message: &str, attempt: u32, end: End, life: u32) {
        self.note(format!("agent ends {message}, attempt {attempt}, in life {life}: {end:?}"));
        let outcome = self.on(message, |run, _| {
            run.end(attempt, life, end);
            Ok(())
        });
        self.check(outcome);
    }

    fn on(
        &mut self,
        message: &str,
        act: impl FnOnce(&mut Run, usize) -> Result<(), String>,
    ) -> Result<(), String> {
        let (name, variant) =
            run::parse(message).ok_or("the agent got a message that nobody sent")?;
        act(&mut self.runs[name], variant)
    }
}

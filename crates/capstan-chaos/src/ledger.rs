//! What happened so far: numbers for streams, the count of faults, what is left of the budget.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The totals of a proxy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Connections accepted.
    pub connections: u64,
    /// Streams: requests that had a fate, even that of passing.
    pub streams: u64,
    /// Packets (SSE frames with data) passed, repeated ones not counted.
    pub packets: u64,
    /// Requests refused with a status.
    pub refusals: u64,
    /// Responses held back.
    pub delays: u64,
    /// Responses narrowed.
    pub throttles: u64,
    /// Responses written byte by byte.
    pub drips: u64,
    /// Resumed responses that began with repeated packets.
    pub repeats: u64,
    /// Bodies that fell silent, cut thereafter or not.
    pub stalls: u64,
    /// Connections cut, those after a stall not counted.
    pub cuts: u64,
    /// Bodies ended cleanly, too early.
    pub ends: u64,
}

impl Tally {
    /// The faults of each kind.
    pub fn kinds(&self) -> [(&'static str, u64); 8] {
        [
            ("refusals", self.refusals),
            ("delays", self.delays),
            ("throttles", self.throttles),
            ("drips", self.drips),
            ("repeats", self.repeats),
            ("stalls", self.stalls),
            ("cuts", self.cuts),
            ("ends", self.ends),
        ]
    }

    /// The number of all faults.
    pub fn faults(&self) -> u64 {
        self.kinds().iter().map(|(_, count)| count).sum()
    }
}

/// A view of a running proxy. Cheap to clone, and valid after the proxy's end.
#[derive(Debug, Clone)]
pub struct Handle(Arc<Mutex<Tally>>);

impl Handle {
    /// The totals so far.
    pub fn tally(&self) -> Tally {
        *lock(&self.0)
    }
}

/// The proxy's own side of the books.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    tally: Arc<Mutex<Tally>>,
    budget: Option<u64>,
}

impl Ledger {
    pub(crate) fn new(budget: Option<u64>) -> Self {
        Self { tally: Arc::default(), budget }
    }

    pub(crate) fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.tally))
    }

    pub(crate) fn count_connection(&self) {
        lock(&self.tally).connections += 1;
    }

    pub(crate) fn count_packet(&self) {
        lock(&self.tally).packets += 1;
    }

    /// The next stream's number, from 0.
    pub(crate) fn number(&self) -> u64 {
        let mut tally = lock(&self.tally);
        tally.streams += 1;
        tally.streams - 1
    }

    /// Counts a fault, if the budget allows it. Every fault calls this right before it happens.
    pub(crate) fn spend(&self, count: impl FnOnce(&mut Tally) -> &mut u64) -> bool {
        let mut tally = lock(&self.tally);
        let is_left = self.budget.is_none_or(|budget| tally.faults() < budget);
        if is_left {
            *count(&mut tally) += 1;
        }
        is_left
    }
}

/// Numbers cannot be left half-changed by a panic.
fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

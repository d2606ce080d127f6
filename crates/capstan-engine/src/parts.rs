//! The parts of the engine that faces, console and gateway use, each by a named method. The journal
//! and the counts behind the limits stay inside the engine.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use capstan_journal::{Reader, Run, Store};
use capstan_protocol::{Fault, Timestamp};
use uuid::Uuid;

use crate::Engine;
use crate::counts::{PacketCounts, ViewerCounts};
use crate::cpu_offload::CpuOffload;
use crate::limits::{MemoryReservation, Slot};
use crate::live::Facts;
use crate::settings::EngineSettings;
use crate::wall_clock::WallClock;

impl Engine {
    /// The store, for queries. Only the engine writes runs and packets: it writes them through the
    /// journal, which wakes their readers.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.journal.store()
    }

    /// A reader of the packets of a run after this one.
    pub fn reader_of(&self, run: &Run, after: u64) -> Reader {
        self.journal.reader_of(run, after)
    }

    /// Limits, timeouts and retention.
    pub fn settings(&self) -> &EngineSettings {
        &self.settings
    }

    /// Starts short work that outlives its request. A shutdown waits for it.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        self.wall.now()
    }

    /// The time of day with a record of the steps of the system clock.
    pub fn wall(&self) -> &WallClock {
        &self.wall
    }

    /// Creates an empty memory reservation, which counts against the limits of this tenant.
    pub fn reserve(&self, tenant: &str) -> MemoryReservation {
        self.limiter.reserve(tenant)
    }

    /// Takes a slot for an open response, or returns the fault if the tenant has too many.
    pub fn take_reader(&self, tenant: &str) -> Result<Slot, Fault> {
        self.limiter.take_reader(tenant)
    }

    /// Counts a request that starts no run against the tenant's rate.
    pub fn take_rate(&self, tenant: &str) -> Result<(), Fault> {
        self.limiter.take_rate(tenant)
    }

    /// How many open responses a tenant has.
    pub fn readers_of(&self, tenant: &str) -> usize {
        self.limiter.readers_of(tenant)
    }

    /// The long CPU work of each tenant.
    pub fn cpu_offload(&self) -> &CpuOffload {
        &self.limiter.cpu_offload
    }

    /// Moves the present task, and the connection that it answers, into a tenant's scheduler queue.
    /// False if the scheduler does not run this task.
    pub fn enter(&self, tenant: &str) -> bool {
        self.scheduler.enter(tenant)
    }

    /// Tells the engine that a client of this tenant was told to retry after this delay.
    pub fn expect_client(&self, tenant: &str, within: Duration) {
        self.readers.expect(self, tenant, within);
    }

    /// Whether a session was erased within the last minute.
    pub fn is_erased(&self, tenant: &str, session: &str) -> bool {
        self.erased.has(tenant, session)
    }

    /// What this process knows of an open stream.
    pub fn live(&self, stream: Uuid) -> Option<Arc<Facts>> {
        self.live.get(stream)
    }

    /// Counts running and waiting runs by agent, for the visible tenants.
    pub fn open_runs_by_agent(&self, sees: impl Fn(&str) -> bool) -> HashMap<String, (u64, u64)> {
        self.live.by_agent(sees)
    }

    /// Forgets streams that no relay writes, no viewer reads, and that do not wait for their
    /// client.
    pub fn forget_done_streams(&self) {
        self.live.forget_done(|stream| self.waits.has(stream));
    }

    /// How many runs of this process wait for their client.
    pub fn waiting_runs(&self) -> usize {
        self.waits.count()
    }

    /// Counts of encoded packets.
    pub fn packets(&self) -> &PacketCounts {
        &self.packets
    }

    /// Counts of viewers.
    pub fn viewers(&self) -> &ViewerCounts {
        &self.viewers
    }
}

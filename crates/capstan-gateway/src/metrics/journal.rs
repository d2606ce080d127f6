//! Metrics of the journal: its size, its writes, and the time in which it accepted none.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use capstan_journal::{Health, Stats, Store};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

/// How often the time without writes is counted.
const TICK: Duration = Duration::from_secs(1);

/// Gauges and counters that are read from the store when Prometheus asks.
pub(crate) struct JournalMetrics {
    is_well: Gauge,
    is_low_on_space: Gauge,
    disk_bytes: Gauge,
    live_bytes: Gauge,
    segments: Gauge,
    streams: Gauge,
    damaged: Gauge,
    own_runs: Gauge,
    peers: Gauge,
    followed: Gauge,
    unanswered: Gauge,
    silent: Gauge<f64, AtomicU64>,
    unavailable: Counter<f64, AtomicU64>,
}

impl JournalMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let is_well = gauge("journal_well", "1 if the journal accepts writes, else 0");
        let is_low_on_space =
            gauge("journal_low_on_space", "1 if less than min_free_bytes is free, else 0");
        let disk_bytes = gauge("journal_disk_bytes", "Bytes of the journal's files");
        let live_bytes =
            gauge("journal_live_bytes", "Bytes of the journal's files that are still needed");
        let segments = gauge("journal_segments", "Files that hold streams");
        let streams = gauge("journal_streams", "Streams in the journal");
        let damaged = gauge("journal_damaged", "Damaged pieces found since the start");
        let own_runs = gauge("cluster_runs", "Runs of this process, if several share the journal");
        let peers = gauge("cluster_peers", "Other live gateways that share the journal");
        let followed = gauge("cluster_followed", "Streams of other processes with a viewer here");
        let unanswered =
            gauge("cluster_unanswered", "Queries that the database has not answered yet");
        let silent = Gauge::default();
        let help = "Time since the last heartbeat; at cluster.lease this process loses its runs";
        registry.register_with_unit("cluster_silent", help, Unit::Seconds, silent.clone());
        let unavailable = Counter::default();
        let help = "Time during which the journal accepted no writes";
        registry.register_with_unit(
            "journal_unavailable",
            help,
            Unit::Seconds,
            unavailable.clone(),
        );
        Self {
            is_well,
            is_low_on_space,
            disk_bytes,
            live_bytes,
            segments,
            streams,
            damaged,
            own_runs,
            peers,
            followed,
            unanswered,
            silent,
            unavailable,
        }
    }

    /// Reads the store's figures.
    pub(crate) fn ask(&self, store: &dyn Store) {
        let Stats {
            disk_bytes,
            live_bytes,
            segments,
            streams,
            damaged,
            is_low_on_space,
            shared,
            ..
        } = store.stats();
        self.is_well.set(i64::from(*store.health().borrow() == Health::Well));
        self.is_low_on_space.set(i64::from(is_low_on_space));
        let counts = [
            (&self.disk_bytes, disk_bytes),
            (&self.live_bytes, live_bytes),
            (&self.segments, segments),
            (&self.streams, streams),
            (&self.damaged, damaged),
        ];
        let others = shared.into_iter().flat_map(|shared| {
            self.silent.set(shared.silent_for.as_secs_f64());
            [
                (&self.own_runs, shared.runs),
                (&self.peers, shared.peers),
                (&self.followed, shared.followed),
                (&self.unanswered, shared.unanswered),
            ]
        });
        for (gauge, count) in counts.into_iter().chain(others) {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Counts the time in which the store accepts no writes. Runs until it is dropped.
    pub(crate) async fn watch(&self, store: &dyn Store) {
        let mut health = store.health();
        while health.wait_for(|health| *health != Health::Well).await.is_ok() {
            let since = Instant::now();
            let is_well = health.wait_for(|health| *health == Health::Well);
            let _ = tokio::time::timeout(TICK, is_well).await;
            self.unavailable.inc_by(since.elapsed().as_secs_f64());
        }
    }
}

//! Counters that change with every packet. An event per packet would cost too much.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use capstan_protocol::StreamOpCode;

/// Encoded packets, by op.
#[derive(Default)]
pub struct PacketCounts([AtomicU64; 4]);

impl PacketCounts {
    pub(crate) fn add(&self, op: StreamOpCode) {
        if let Some(count) = self.0.get(op as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counts, in the order of the ops.
    pub fn all(&self) -> [u64; 4] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

/// Viewers of streams in this process.
#[derive(Default)]
pub struct ViewerCounts {
    open: AtomicI64,
    resumed: AtomicU64,
    replayed: AtomicU64,
}

impl ViewerCounts {
    /// A response was opened.
    pub fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// A response was closed.
    pub fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// A viewer resumed at a cursor.
    pub fn resumed(&self) {
        self.resumed.fetch_add(1, Ordering::Relaxed);
    }

    /// Packets from before the viewer came were sent to it.
    pub fn replayed(&self, packets: u64) {
        self.replayed.fetch_add(packets, Ordering::Relaxed);
    }

    /// How many responses are open.
    pub fn open_count(&self) -> i64 {
        self.open.load(Ordering::Relaxed)
    }

    /// How many viewers have resumed.
    pub fn resumed_count(&self) -> u64 {
        self.resumed.load(Ordering::Relaxed)
    }

    /// How many replayed packets were sent to viewers.
    pub fn replayed_count(&self) -> u64 {
        self.replayed.load(Ordering::Relaxed)
    }
}

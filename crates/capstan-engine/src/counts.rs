//! What the engine counts for every packet, where an event would cost too much.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use capstan_protocol::StreamOpCode;

/// Packets that were encoded, by their op.
#[derive(Default)]
pub struct PacketCounts([AtomicU64; 4]);

impl PacketCounts {
    pub(crate) fn add(&self, op: StreamOpCode) {
        if let Some(count) = self.0.get(op as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// In the order of the ops.
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
    /// A response is open from here on.
    pub fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// One is over.
    pub fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// A viewer reads on where it was.
    pub fn resumed(&self) {
        self.resumed.fetch_add(1, Ordering::Relaxed);
    }

    /// Packets that were there before their viewer were sent.
    pub fn replayed(&self, packets: u64) {
        self.replayed.fetch_add(packets, Ordering::Relaxed);
    }

    /// Responses that are open.
    pub fn open_count(&self) -> i64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Viewers that read on.
    pub fn resumed_count(&self) -> u64 {
        self.resumed.load(Ordering::Relaxed)
    }

    /// Packets that were sent again or late.
    pub fn replayed_count(&self) -> u64 {
        self.replayed.load(Ordering::Relaxed)
    }
}

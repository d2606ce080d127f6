//! What the engine counts for every packet, where an event would cost too much.

use std::sync::atomic::{AtomicU64, Ordering};

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

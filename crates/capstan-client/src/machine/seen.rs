//! Which packets came already, by stream.

use capstan_protocol::StreamPacket;
use uuid::Uuid;

use super::is_lost_tail;

/// A server that changes streams in mid-call is odd; one that does it often is not remembered in
/// full.
const STREAMS: usize = 16;

/// The last seq of each stream, the current one last.
#[derive(Debug, Default)]
pub(super) struct Seen {
    streams: Vec<(Uuid, u64)>,
}

/// The place of a packet among those that came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// It came before.
    Repeat,
    /// It is the next one, or the first that this call sees.
    Next,
    /// Others are missing before it.
    Gap {
        /// The seq that was due.
        expected: u64,
    },
}

impl Seen {
    /// Orders a packet and remembers it.
    pub(super) fn order(&mut self, packet: &StreamPacket) -> Order {
        let Some(last) = self.last(packet.stream_id) else {
            self.add(packet);
            return Order::Next;
        };
        if packet.seq <= *last {
            return Order::Repeat;
        }
        let expected = *last + 1;
        *last = packet.seq;
        if packet.seq == expected || is_lost_tail(packet, expected) {
            Order::Next
        } else {
            Order::Gap { expected }
        }
    }

    fn last(&mut self, stream: Uuid) -> Option<&mut u64> {
        self.streams.iter_mut().rev().find(|(id, _)| *id == stream).map(|(_, last)| last)
    }

    fn add(&mut self, packet: &StreamPacket) {
        if self.streams.len() == STREAMS {
            self.streams.remove(0);
        }
        self.streams.push((packet.stream_id, packet.seq));
    }
}

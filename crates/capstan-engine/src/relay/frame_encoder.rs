//! The frames of one stream: gives each packet the next seq and a time, and encodes it once.

use bytes::Bytes;
use capstan_journal::{Frame, Run};
use capstan_protocol::{Payload, StreamPacket, Timestamp, sse};
use uuid::Uuid;

use crate::Engine;

/// Encodes packets into frames, until they are taken to the journal.
pub(super) struct FrameEncoder {
    engine: Engine,
    stream_id: Uuid,
    seq: u64,
    bytes: u64,
    /// The time of the last packet. The next one's is no earlier, whoever sets the clock.
    latest: Timestamp,
    /// Encoded and not yet taken: the frames one behind the other, and where each ends.
    buffer: Vec<u8>,
    ends: Vec<usize>,
}

impl FrameEncoder {
    /// Continues after the last packet on record.
    pub(super) fn new(engine: &Engine, run: &Run) -> Self {
        Self {
            engine: engine.clone(),
            stream_id: run.stream_id,
            seq: run.last_seq,
            bytes: run.bytes,
            latest: run.updated_at,
            buffer: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Stamps, encodes and queues a packet.
    pub(super) fn write(&mut self, payload: Payload) {
        self.seq += 1;
        self.saw(self.engine.clock.now());
        let packet =
            StreamPacket { stream_id: self.stream_id, seq: self.seq, t: self.latest, payload };
        let before = self.buffer.len();
        sse::encode_packet(&packet, &mut self.buffer);
        self.bytes += (self.buffer.len() - before) as u64;
        self.engine.packets.add(packet.op());
        self.ends.push(self.buffer.len());
    }

    /// A packet of this time is on record: no later one is earlier.
    pub(super) fn saw(&mut self, at: Timestamp) {
        self.latest = self.latest.max(at);
    }

    /// Takes what was written since. One allocation for all of it: a frame is a slice.
    pub(super) fn take_frames(&mut self) -> Vec<Frame> {
        let mut bytes = Bytes::copy_from_slice(&self.buffer);
        self.buffer.clear();
        let (first, mut start) = (self.seq + 1 - self.ends.len() as u64, 0);
        let slice = |(seq, end): (u64, usize)| {
            let frame = Frame { seq, bytes: bytes.split_to(end - start) };
            start = end;
            frame
        };
        (first..).zip(self.ends.drain(..)).map(slice).collect()
    }

    /// Takes back what was written after this packet and never reached the journal.
    pub(super) fn take_back(&mut self, seq: u64, bytes: u64) {
        (self.seq, self.bytes) = (seq, bytes);
        self.buffer.clear();
        self.ends.clear();
    }

    pub(super) fn stream_id(&self) -> Uuid {
        self.stream_id
    }

    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The time of the last packet, or of the record if there is none.
    pub(super) fn latest(&self) -> Timestamp {
        self.latest
    }
}

//! Encodes the packets of one stream: gives each one the next `seq` and a time, and encodes it
//! once.

use bytes::Bytes;
use capstan_journal::{Frame, Run};
use capstan_protocol::{Payload, StreamPacket, Timestamp, sse};
use uuid::Uuid;

use crate::Engine;

/// Encodes packets into frames, and buffers them until the relay commits them.
pub(super) struct FrameEncoder {
    engine: Engine,
    stream_id: Uuid,
    seq: u64,
    bytes: u64,
    /// The time of the last packet. Times never decrease, even if the system clock is set back.
    latest: Timestamp,
    /// The buffered frames, one after the other, and the end of each.
    buffer: Vec<u8>,
    ends: Vec<usize>,
}

impl FrameEncoder {
    /// Continues after the last packet in the run's record.
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

    /// Gives a packet its number and time, and encodes it into the buffer.
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

    /// Learns the time of a stored packet. No later packet is earlier.
    pub(super) fn saw(&mut self, at: Timestamp) {
        self.latest = self.latest.max(at);
    }

    /// Takes the buffered frames. They are slices of one allocation.
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

    /// Removes the packets after this one, which never reached the journal.
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

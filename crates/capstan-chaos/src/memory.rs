//! The last packets of each stream that passed, for repeating them to a client that resumes.
//!
//! A stream is known by the SSE ids of its packets. What a client has seen is known from its
//! `Last-Event-ID` alone, so only packets up to that one are ever repeated: a real network repeats,
//! it does not invent a future. A bare stream id as cursor names no packet; its server sends
//! everything again anyway.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// The number of stored packets per stream.
const PACKETS_PER_STREAM: usize = 64;
/// The number of stored streams.
const STREAMS: usize = 1024;
/// The total of stored bytes; the oldest streams go first.
const BYTES: usize = 16 * 1024 * 1024;

/// The key of a stored stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamKey(u64);

/// Stores packets of many streams, for repeats.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Ordered by their last packet.
    streams: VecDeque<Stream>,
    bytes: usize,
    opened: u64,
}

#[derive(Debug)]
struct Stream {
    key: StreamKey,
    packets: VecDeque<(Vec<u8>, Bytes)>,
}

impl Memory {
    /// A stream that is not known yet.
    pub(crate) fn open(&self) -> StreamKey {
        let mut state = self.state();
        state.opened += 1;
        StreamKey(state.opened)
    }

    /// The only stream with a packet of this id; none if several have one.
    pub(crate) fn find(&self, id: &[u8]) -> Option<StreamKey> {
        let state = self.state();
        let mut found = state.streams.iter().filter(|stream| stream.position(id).is_some());
        let key = found.next()?.key;
        found.next().is_none().then_some(key)
    }

    /// The last `count` packets of the stream up to and with this id.
    pub(crate) fn recall(&self, key: StreamKey, id: &[u8], count: usize) -> Vec<Bytes> {
        let state = self.state();
        let Some(stream) = state.streams.iter().find(|stream| stream.key == key) else {
            return Vec::new();
        };
        let seen = stream.position(id).map_or(0, |position| position + 1);
        let seen = stream.packets.iter().take(seen).skip(seen.saturating_sub(count));
        seen.map(|(_, bytes)| bytes.clone()).collect()
    }

    /// Stores a packet, unless the stream has it already, because servers repeat packets too.
    pub(crate) fn keep(&self, key: StreamKey, id: Vec<u8>, bytes: Bytes) {
        let mut state = self.state();
        let mut stream = state.take(key).unwrap_or(Stream { key, packets: VecDeque::new() });
        if stream.position(&id).is_none() {
            stream.packets.push_back((id, bytes));
        }
        if stream.packets.len() > PACKETS_PER_STREAM {
            stream.packets.pop_front();
        }
        state.put(stream);
    }

    /// The stream is complete: nobody resumes it, and others may reuse its ids.
    pub(crate) fn forget(&self, key: StreamKey) {
        self.state().take(key);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, key: StreamKey) -> Option<Stream> {
        let index = self.streams.iter().position(|stream| stream.key == key)?;
        let stream = self.streams.remove(index)?;
        self.bytes -= stream.bytes();
        Some(stream)
    }

    fn put(&mut self, stream: Stream) {
        self.bytes += stream.bytes();
        self.streams.push_back(stream);
        while self.bytes > BYTES || self.streams.len() > STREAMS {
            let Some(oldest) = self.streams.pop_front() else { break };
            self.bytes -= oldest.bytes();
        }
    }
}

impl Stream {
    fn position(&self, id: &[u8]) -> Option<usize> {
        self.packets.iter().position(|(known, _)| known == id)
    }

    fn bytes(&self) -> usize {
        self.packets.iter().map(|(id, bytes)| id.len() + bytes.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(memory: &Memory, key: StreamKey, id: &str) {
        memory.keep(key, id.into(), Bytes::from(format!("<{id}>")));
    }

    #[test]
    fn only_what_the_client_has_seen_is_recalled() {
        let memory = Memory::default();
        let key = memory.open();
        for id in ["a:1", "a:2", "a:3", "a:3", "a:4"] {
            keep(&memory, key, id);
        }
        assert_eq!(memory.find(b"a:3"), Some(key));
        assert_eq!(memory.recall(key, b"a:3", 2), ["<a:2>", "<a:3>"]);
        assert_eq!(memory.recall(key, b"a:1", 9), ["<a:1>"]);
        assert_eq!(memory.recall(key, b"a", 9), Vec::<Bytes>::new());
    }

    #[test]
    fn an_id_of_two_streams_names_none() {
        let memory = Memory::default();
        let (one, two) = (memory.open(), memory.open());
        keep(&memory, one, "1");
        keep(&memory, two, "1");
        assert_eq!(memory.find(b"1"), None);
        memory.forget(one);
        assert_eq!(memory.find(b"1"), Some(two));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let memory = Memory::default();
        let first = memory.open();
        keep(&memory, first, "first");
        for number in 0..STREAMS {
            keep(&memory, memory.open(), &number.to_string());
        }
        assert_eq!(memory.find(b"first"), None);
        let big = memory.open();
        for number in 0..PACKETS_PER_STREAM + 1 {
            memory.keep(big, format!("big:{number}").into(), Bytes::from(vec![0; 64 * 1024]));
        }
        assert_eq!(memory.find(b"big:0"), None);
        assert!(memory.state().bytes <= BYTES);
    }
}

//! A recorded run.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use capstan_protocol::{StreamOpCode, StreamPacket, sse};
use uuid::Uuid;

use crate::cmd::Failure;

/// The packets of a run, with their times.
#[derive(Debug)]
pub(super) struct Recording {
    stream: Uuid,
    pub(super) frames: Vec<Recorded>,
    is_closed: bool,
}

/// A recorded packet.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) seq: u64,
    /// The time since the packet before it.
    pub(super) after: Duration,
    pub(super) bytes: Bytes,
}

impl Recording {
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let wrong = |what: String| {
            Failure::usage(format!("{}: {what}", path.display())).with_help(
                "a run is what `curl -N URL/v1/streams/ID > run.sse` writes, or what the console \
                 gives as .sse",
            )
        };
        let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        Self::of(&bytes).map_err(wrong)
    }

    /// Parses the frames of one CAP stream. The error says what is wrong.
    pub(super) fn of(bytes: &[u8]) -> Result<Self, String> {
        let mut decoder = sse::Decoder::new();
        decoder.push(bytes);
        let mut packets: Vec<StreamPacket> = Vec::new();
        while let Some(frame) = decoder.next_frame() {
            let nth = packets.len() + 1;
            let frame = frame.map_err(|error| format!("event {nth}: {error:?}"))?;
            let packet = StreamPacket::decode(&frame.data)
                .map_err(|error| format!("not a run in CAP: event {nth} is no packet ({error})"))?;
            packets.push(packet);
        }
        let Some(first) = packets.first() else {
            return Err("not a run: there is no event in it".to_owned());
        };
        let stream = first.stream_id;
        if let Some(other) = packets.iter().find(|packet| packet.stream_id != stream) {
            return Err(format!("not one run: packets of {stream} and of {}", other.stream_id));
        }
        let is_ordered =
            packets.windows(2).all(|two| two.first().map(|p| p.seq) < two.last().map(|p| p.seq));
        if !is_ordered {
            return Err("not a run: its packets are out of order".to_owned());
        }
        let is_closed = packets.last().is_some_and(|packet| packet.op() == StreamOpCode::Close);
        let mut before = first.t.as_micros();
        let frames = packets.iter().map(|packet| {
            let at = packet.t.as_micros();
            // Somebody may have set the clock back.
            let after =
                Duration::from_micros(u64::try_from(at.saturating_sub(before)).unwrap_or(0));
            before = at;
            let mut bytes = Vec::new();
            sse::encode_packet(packet, &mut bytes);
            Recorded { seq: packet.seq, after, bytes: bytes.into() }
        });
        Ok(Self { stream, frames: frames.collect(), is_closed })
    }

    pub(super) fn stream(&self) -> Uuid {
        self.stream
    }

    /// The first range of missing packets, if there is one.
    pub(super) fn gap(&self) -> Option<(u64, u64)> {
        let before = std::iter::once(0).chain(self.frames.iter().map(|frame| frame.seq));
        let pairs = before.zip(self.frames.iter().map(|frame| frame.seq));
        pairs
            .map(|(before, seq)| (before + 1, seq.saturating_sub(1)))
            .find(|(first, last)| first <= last)
    }

    /// Whether the recording contains the CLOSE.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl fmt::Display for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took: Duration = self.frames.iter().map(|frame| frame.after).sum();
        write!(
            f,
            "{} packets of {}, which took {:.1} s",
            self.frames.len(),
            self.stream,
            took.as_secs_f64()
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use capstan_protocol::{Close, Payload, Timestamp};

    use super::*;

    fn file(packets: &[StreamPacket]) -> Vec<u8> {
        let mut bytes = b"retry: 500\n\n".to_vec();
        packets.iter().for_each(|packet| sse::encode_packet(packet, &mut bytes));
        bytes
    }

    fn packet(stream: Uuid, seq: u64, ms: i64, payload: Payload) -> StreamPacket {
        StreamPacket { stream_id: stream, seq, t: Timestamp::from_micros(ms * 1000), payload }
    }

    #[test]
    fn a_recording_is_parsed_with_its_times_or_refused() {
        let stream = Uuid::now_v7();
        let delta = |seq, ms| packet(stream, seq, ms, Payload::Delta("a".into()));
        let close = packet(stream, 3, 900, Payload::Close(Close::Reason("completed".into())));
        let run = Recording::of(&file(&[delta(1, 1000), delta(2, 1200), close])).unwrap();
        assert!(run.is_closed() && run.stream() == stream && run.gap().is_none());
        let part = Recording::of(&file(&[delta(1, 1), delta(2, 2), delta(5, 3)])).unwrap();
        assert_eq!((part.gap(), part.is_closed()), (Some((3, 4)), false));
        let waits: Vec<_> = run.frames.iter().map(|frame| frame.after.as_millis()).collect();
        assert_eq!(waits, [0, 200, 0], "a clock that was set back takes no time");
        for (bytes, why) in [
            (b"".to_vec(), "there is no event"),
            (b"{\"not\": \"sse\"}".to_vec(), "there is no event"),
            (b"data: {\"type\":\"RUN_STARTED\"}\n\n".to_vec(), "event 1 is no packet"),
            (file(&[delta(2, 1), delta(1, 2)]), "out of order"),
            (
                file(&[delta(1, 1), packet(Uuid::now_v7(), 2, 2, Payload::Delta("b".into()))]),
                "not one run",
            ),
        ] {
            let error = Recording::of(&bytes).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}

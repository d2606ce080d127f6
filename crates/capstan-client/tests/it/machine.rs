//! The machine against a server that does anything a network can do, in any order.

use std::time::Duration;

use capstan_client::CapError;
use capstan_client::machine::{Action, Head, Machine, Policy, Refusal};
use capstan_client::protocol::{
    Close, ErrorSeverity, LastEventId, Payload, StreamError, StreamPacket, Timestamp, sse,
};
use proptest::prelude::*;
use uuid::Uuid;

const STREAM: Uuid = Uuid::from_u128(7);

/// The packets that the server has: text, then CLOSE.
fn script(len: u64) -> Vec<StreamPacket> {
    let payload = |seq| {
        if seq == len {
            Payload::Close(Close::Reason("completed".into()))
        } else {
            Payload::Delta(format!("naïve {seq}"))
        }
    };
    (1..=len)
        .map(|seq| StreamPacket {
            stream_id: STREAM,
            seq,
            t: Timestamp::from_micros(0),
            payload: payload(seq),
        })
        .collect()
}

/// The ids of a server's events.
#[derive(Debug, Clone, Copy)]
enum Ids {
    /// `<stream_id>:<seq>`, with an opening frame.
    Cursors,
    /// The stream alone, as RFC 004 has it.
    Bare,
    /// None at all.
    None,
}

/// The next event, drawn at random.
#[derive(Debug, Clone)]
enum Fate {
    Refused(u16),
    Failed,
    /// Opens a body that repeats this many packets, hands it out in chunks of this size, and breaks
    /// off after this many bytes, cleanly or not.
    Opened {
        repeats: u64,
        chunk: usize,
        cut: usize,
        is_clean: bool,
    },
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        1 => prop_oneof![Just(429_u16), Just(502), Just(503), Just(504)].prop_map(Fate::Refused),
        2 => Just(Fate::Failed),
        6 => (0..4_u64, 1..200_usize, 0..2000_usize, any::<bool>())
            .prop_map(|(repeats, chunk, cut, is_clean)| Fate::Opened { repeats, chunk, cut,
            is_clean }),
    ]
}

fn body(packets: &[StreamPacket], ids: Ids, last_event_id: Option<&str>, repeats: u64) -> Vec<u8> {
    let after = match last_event_id.map(|id| id.parse::<LastEventId>().unwrap()) {
        Some(LastEventId::At(cursor)) => cursor.seq.saturating_sub(repeats),
        Some(LastEventId::Whole(_)) | None => 0,
    };
    let mut out = Vec::new();
    if matches!(ids, Ids::Cursors) {
        out.extend(format!("retry: 0\nid: {STREAM}:{after}\n\n").bytes());
    }
    for packet in packets.iter().filter(|packet| packet.seq > after) {
        match ids {
            Ids::Cursors => sse::encode_packet(packet, &mut out),
            Ids::Bare => {
                out.extend(format!("id: {STREAM}\ndata: {}\n\n", packet.to_json()).bytes())
            }
            Ids::None => out.extend(format!("data: {}\n\n", packet.to_json()).bytes()),
        }
    }
    out
}

/// The result of a call.
#[derive(Debug, Default)]
struct Seen {
    seqs: Vec<u64>,
    error: Option<CapError>,
    /// Interruptions since the last packet that was new.
    idle: u32,
    connects: usize,
}

struct Net<'a> {
    packets: &'a [StreamPacket],
    ids: Ids,
    fates: std::vec::IntoIter<Fate>,
    body: std::vec::IntoIter<Vec<u8>>,
    is_clean: bool,
}

impl Net<'_> {
    /// Once the fates are used up everything goes well.
    fn connect(&mut self, machine: &mut Machine, id: Option<&str>, now: Duration, seen: &mut Seen) {
        let well = Fate::Opened { repeats: 1, chunk: 64, cut: usize::MAX, is_clean: true };
        match self.fates.next().unwrap_or(well) {
            Fate::Refused(status) => {
                seen.idle += 1;
                machine.refused(Refusal { status, retry_after: None, body: b"" }, now);
            }
            Fate::Failed => {
                seen.idle += 1;
                machine.failed("refused", now);
            }
            Fate::Opened { repeats, chunk, cut, is_clean } => {
                machine.opened(Head {
                    status: 200,
                    content_type: "text/event-stream",
                    location: None,
                });
                let mut bytes = body(self.packets, self.ids, id, repeats);
                bytes.truncate(cut);
                let chunks: Vec<_> = bytes.chunks(chunk).map(<[u8]>::to_vec).collect();
                (self.body, self.is_clean) = (chunks.into_iter(), is_clean);
            }
        }
    }

    fn read(&mut self, machine: &mut Machine, now: Duration, seen: &mut Seen) {
        match self.body.next() {
            Some(chunk) => machine.bytes(&chunk),
            None => {
                seen.idle += 1;
                if self.is_clean { machine.ended(now) } else { machine.failed("reset", now) }
            }
        }
    }
}

fn play(policy: Policy, seed: u64, packets: &[StreamPacket], ids: Ids, fates: Vec<Fate>) -> Seen {
    let mut machine = Machine::new(policy, seed);
    let mut net = Net {
        packets,
        ids,
        fates: fates.into_iter(),
        body: Vec::new().into_iter(),
        is_clean: true,
    };
    let (mut seen, mut now) = (Seen::default(), Duration::ZERO);
    for _ in 0..1_000_000 {
        match machine.poll(now) {
            Action::Connect { last_event_id } => {
                seen.connects += 1;
                net.connect(&mut machine, last_event_id.as_deref(), now, &mut seen);
            }
            Action::Read => net.read(&mut machine, now, &mut seen),
            Action::Wait { until } => {
                assert!(
                    until >= now + Duration::from_millis(100),
                    "a busy loop: {now:?} to {until:?}"
                );
                now = until;
            }
            Action::Packet(packet) => {
                seen.idle = 0;
                seen.seqs.push(packet.seq);
            }
            Action::Notice(_) => {}
            Action::Fail(error) => seen.error = Some(error),
            Action::Done => return seen,
        }
    }
    panic!("the call never ends: {seen:?}");
}

/// A packet at any place, so that repeats and gaps occur. Some numbers stand for a malformed frame.
fn odd_frame(seq: u64, kind: u8) -> Vec<u8> {
    let error = |severity| Payload::Error(StreamError::new("timeout", "Late.", severity).into());
    let payload = match kind {
        0..=5 => Payload::Delta("x".into()),
        6 => Payload::Event(Default::default()),
        7 => error(ErrorSeverity::Warning),
        8 => error(ErrorSeverity::Transient),
        9 => error(ErrorSeverity::Fatal),
        10 => Payload::Close(Close::Reason("completed".into())),
        _ => return b"data: broken\n\n".to_vec(),
    };
    let mut out = Vec::new();
    sse::encode_packet(
        &StreamPacket { stream_id: STREAM, seq, t: Timestamp::from_micros(0), payload },
        &mut out,
    );
    out
}

/// All actions that a body causes, one by one, or with buffered packets taken first.
fn told(policy: Policy, chunks: std::slice::Chunks<'_, u8>, in_batches: bool) -> Vec<Action> {
    let (mut machine, now, mut told) = (Machine::new(policy, 7), Duration::ZERO, Vec::new());
    let mut chunks = chunks.into_iter();
    loop {
        while let Some(packet) = in_batches.then(|| machine.poll_packet(now)).flatten() {
            told.push(Action::Packet(packet));
        }
        match machine.poll(now) {
            Action::Connect { .. } => {
                machine.opened(Head {
                    status: 200,
                    content_type: "text/event-stream",
                    location: None,
                });
            }
            Action::Read => match chunks.next() {
                Some(bytes) => machine.bytes(bytes),
                None => return told,
            },
            end @ (Action::Done | Action::Fail(_) | Action::Wait { .. }) => {
                told.push(end);
                return told;
            }
            other @ (Action::Packet(_) | Action::Notice(_)) => told.push(other),
        }
    }
}

proptest! {
    #[test]
    fn packets_in_batches_are_the_same_with_the_same_words_between_them(
        frames in prop::collection::vec((1..6_u64, 0..12_u8), 0..12),
        chunk in 1..2000_usize,
        is_strict: bool,
    ) {
        let body: Vec<u8> = frames.iter().flat_map(|(seq, kind)| odd_frame(*seq, *kind)).collect();
        let policy = Policy { is_strict, ..Policy::default() };
        prop_assert_eq!(
            told(policy.clone(), body.chunks(chunk), true),
            told(policy, body.chunks(chunk), false)
        );
    }

    #[test]
    fn no_packet_is_yielded_twice_or_skipped_and_the_budget_is_obeyed(
        len in 1..30_u64,
        seed in any::<u64>(),
        max_retries in 0..4_u32,
        ids in prop_oneof![Just(Ids::Cursors), Just(Ids::Bare), Just(Ids::None)],
        fates in prop::collection::vec(fate(), 0..20),
    ) {
        let packets = script(len);
        let seen = play(Policy { max_retries, ..Policy::default() }, seed, &packets, ids, fates);
        let expected: Vec<u64> = (1..=seen.seqs.len() as u64).collect();
        prop_assert_eq!(&seen.seqs, &expected);
        match &seen.error {
            None => prop_assert_eq!(seen.seqs.len() as u64, len),
            Some(CapError::Connection(error)) => {
                prop_assert_eq!(error.retries, max_retries);
                prop_assert_eq!(seen.idle, max_retries + 1, "gave up too early or too late");
            }
            // A refusal before the first stream is final.
            Some(CapError::Runtime(error)) => {
                prop_assert!(error.status.is_some() && seen.seqs.is_empty());
            }
            Some(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn any_bytes_end_in_packets_or_an_error_never_in_a_panic(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..10),
        text in "(data: |id: |retry: |event: |\\{|\\}|[0-9]|\n|\r|\"|op|:){0,80}",
    ) {
        let mut machine = Machine::new(Policy { max_retries: 1, ..Policy::default() }, 1);
        let mut now = Duration::ZERO;
        let mut input = chunks.into_iter().chain([text.into_bytes()]);
        loop {
            match machine.poll(now) {
                Action::Connect { .. } => machine.opened(Head { status: 200,
                content_type: "text/event-stream", location: None }),
                Action::Read => match input.next() {
                    Some(bytes) => machine.bytes(&bytes),
                    None => machine.ended(now),
                },
                Action::Wait { until } => now = until,
                Action::Done => break,
                Action::Packet(_) | Action::Notice(_) | Action::Fail(_) => {}
            }
        }
    }
}

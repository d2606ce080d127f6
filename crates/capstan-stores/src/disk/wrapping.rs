//! The common text of a stream's packets, which follows from stream id and `seq`. Single packets
//! are stored without it.
//!
//! This text is part of the format. Packets of another form are stored unchanged, so the wire may
//! change without a change here. A bare block always means this text, and another text needs a bit
//! of its own.

use uuid::Uuid;
use uuid::fmt::Hyphenated;

const AFTER: &[u8] = b"}\n\n";

/// The common text of one stream.
pub(crate) struct Wrapping([u8; Hyphenated::LENGTH]);

impl Wrapping {
    pub(crate) fn of(stream: Uuid) -> Self {
        let mut text = [0; Hyphenated::LENGTH];
        stream.as_hyphenated().encode_lower(&mut text);
        Self(text)
    }

    /// A packet without the common text; `None` if it has another form.
    pub(crate) fn strip<'a>(&self, seq: u64, packet: &'a [u8]) -> Option<&'a [u8]> {
        let mut digits = itoa::Buffer::new();
        let before = self.before(digits.format(seq));
        before.iter().try_fold(packet, |rest, part| rest.strip_prefix(*part))?.strip_suffix(AFTER)
    }

    /// Writes the packet with the common text.
    pub(crate) fn wrap(&self, seq: u64, bare: &[u8], out: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        let parts = self.before(digits.format(seq)).into_iter().chain([bare, AFTER]);
        out.reserve(self.length(seq) + bare.len());
        parts.for_each(|part| out.extend_from_slice(part));
    }

    /// The length of the common text of this packet.
    pub(crate) fn length(&self, seq: u64) -> usize {
        let mut digits = itoa::Buffer::new();
        self.before(digits.format(seq)).iter().map(|part| part.len()).sum::<usize>() + AFTER.len()
    }

    fn before<'a>(&'a self, seq: &'a str) -> [&'a [u8]; 9] {
        let (stream, seq) = (&self.0, seq.as_bytes());
        [
            b"event: stream.packet\nid: ",
            stream,
            b":",
            seq,
            b"\ndata: {\"stream_id\":\"",
            stream,
            b"\",\"seq\":",
            seq,
            b",\"op\":\"",
        ]
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{Close, Payload, RawObject, StreamPacket, Timestamp, sse};

    use super::*;

    const STREAM: Uuid = Uuid::from_u128(0x01a1_ed67_7987_7645_aeb4_4175_6635_32e0);

    fn wrapped(wrapping: &Wrapping, seq: u64, bare: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        wrapping.wrap(seq, bare, &mut packet);
        packet
    }

    #[test]
    fn common_text_never_changes() {
        let bare = br#"DELTA","t":"2026-11-18T06:45:43.952316Z","p":"tok1 ""#;
        let packet = b"event: stream.packet\nid: 01a1ed67-7987-7645-aeb4-4175663532e0:17\n\
            data: {\"stream_id\":\"01a1ed67-7987-7645-aeb4-4175663532e0\",\"seq\":17,\
            \"op\":\"DELTA\",\"t\":\"2026-11-18T06:45:43.952316Z\",\"p\":\"tok1 \"}\n\n";
        let wrapping = Wrapping::of(STREAM);
        assert_eq!(wrapped(&wrapping, 17, bare), packet);
        assert_eq!(wrapping.strip(17, packet), Some(&bare[..]));
        assert_eq!(wrapping.length(17), packet.len() - bare.len());
    }

    #[test]
    fn gateway_packets_use_the_common_form() {
        let event = RawObject::from_serialize(&serde_json::json!({"type": "x"})).unwrap();
        for payload in [
            Payload::Delta("a \"word\"\n".into()),
            Payload::Event(event),
            Payload::Close(Close::Reason("completed".into())),
        ] {
            for seq in [1, 10, 999, u64::MAX] {
                let packet = StreamPacket {
                    stream_id: STREAM,
                    seq,
                    t: Timestamp::from_micros(0),
                    payload: payload.clone(),
                };
                let mut text = Vec::new();
                sse::encode_packet(&packet, &mut text);
                let wrapping = Wrapping::of(STREAM);
                let bare = wrapping.strip(seq, &text).unwrap();
                assert!(bare.starts_with(packet.op().as_str().as_bytes()));
                assert_eq!(wrapped(&wrapping, seq, bare), text);
                // Another stream, another `seq`, and a cut packet.
                assert_eq!(Wrapping::of(Uuid::nil()).strip(seq, &text), None);
                assert_eq!(wrapping.strip(seq - 1, &text), None);
                assert_eq!(wrapping.strip(seq, &text[..text.len() - 1]), None);
            }
        }
    }

    #[test]
    fn bare_packet_without_text_round_trips() {
        let wrapping = Wrapping::of(STREAM);
        let empty = wrapped(&wrapping, 7, b"");
        assert_eq!(wrapping.strip(7, &empty), Some(&b""[..]));
        for length in 0..empty.len() {
            assert_eq!(wrapping.strip(7, &empty[..length]), None);
        }
    }
}

//! The short cut says what the strict path says, and a packet that is read survives writing, in
//! both profiles.
#![no_main]

use capstan_protocol::{Payload, StreamPacket, v2};
use libfuzzer_sys::fuzz_target;

/// Where some reader or other ends a line.
const LINE_SEPARATORS: [char; 5] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let (fast, strict) = (StreamPacket::decode(&text), StreamPacket::decode_strict(&text));
    assert_eq!(format!("{fast:?}"), format!("{strict:?}"));
    if let Ok(packet) = fast {
        check_v1(&packet);
        check_v2(&packet);
    }
    let _ = v2::StreamPacket::decode(&text);
});

fn check_v1(packet: &StreamPacket) {
    let text = packet.to_json();
    let again = StreamPacket::decode(&text).expect("what we write is read");
    assert_eq!(&again, packet);
    assert_eq!(again.to_json(), text);
    assert!(!text.contains(LINE_SEPARATORS));
}

fn check_v2(packet: &StreamPacket) {
    let text = packet.to_v2_json();
    let again = v2::StreamPacket::decode(&text).expect("what we write for v2 is read");
    assert_eq!(
        (again.stream_id, again.seq, again.t),
        (Some(packet.stream_id), Some(packet.seq), Some(packet.t))
    );
    assert!(!text.contains(LINE_SEPARATORS));
    // Events are translated; the rest stays what it was.
    if let Payload::Delta(_) | Payload::Close(_) = packet.payload {
        assert_eq!(again.payload, packet.payload);
    }
}

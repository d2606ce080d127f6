//! Writes CAP's frames: `event`, `id`, one `data` line, a blank line; LF only.

use std::io::Write as _;

use uuid::Uuid;

use crate::cursor::Cursor;
use crate::escape;
use crate::packet::StreamPacket;

/// The event name of CAP frames.
pub const EVENT_NAME: &str = "stream.packet";

/// Sent when nothing else is: one comment line without a blank line, so that no reader sees an
/// event.
pub const HEARTBEAT: &[u8] = b":\n";

/// Appends the frame of one packet (profile v1).
pub fn encode_packet(packet: &StreamPacket, out: &mut Vec<u8>) {
    write_head(out, packet.stream_id, packet.seq);
    packet.write_json(out);
    out.extend_from_slice(b"\n\n");
}

/// Appends the frame of one packet in profile v2.
pub fn encode_packet_v2(packet: &StreamPacket, out: &mut Vec<u8>) {
    write_head(out, packet.stream_id, packet.seq);
    out.extend_from_slice(packet.to_v2_json().as_bytes());
    out.extend_from_slice(b"\n\n");
}

fn write_head(out: &mut Vec<u8>, stream_id: Uuid, seq: u64) {
    out.reserve(256);
    out.extend_from_slice(b"event: stream.packet\nid: ");
    out.extend_from_slice(
        stream_id.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()).as_bytes(),
    );
    out.push(b':');
    out.extend_from_slice(itoa::Buffer::new().format(seq).as_bytes());
    out.extend_from_slice(b"\ndata: ");
}

/// Appends what a response opens with: the reconnection time and an id-only frame with the reader's
/// cursor, so that a client can resume before the first packet.
pub fn encode_opening(cursor: &Cursor, retry_ms: u32, out: &mut Vec<u8>) {
    // Writing into a Vec cannot fail.
    let _ = write!(out, "retry: {retry_ms}\nid: {cursor}\n\n");
}

/// Appends the frame of a face whose events are plain JSON objects: the event's name if readers
/// need it, the id if the event has a place in a stream, one `data` line.
pub fn encode_json(id: Option<&Cursor>, name: Option<&str>, json: &str, out: &mut Vec<u8>) {
    // Writing into a Vec cannot fail.
    if let Some(name) = name {
        let _ = writeln!(out, "event: {name}");
    }
    if let Some(id) = id {
        let _ = writeln!(out, "id: {id}");
    }
    out.extend_from_slice(b"data: ");
    escape::write_json(out, json);
    out.extend_from_slice(b"\n\n");
}

/// The packet of a frame that [`encode_packet`] wrote; `None` for anything else.
pub fn decode_packet(frame: &[u8]) -> Option<StreamPacket> {
    let text = std::str::from_utf8(frame).ok()?;
    let data = text.lines().find_map(|line| line.strip_prefix("data: "))?;
    StreamPacket::decode(data).ok()
}

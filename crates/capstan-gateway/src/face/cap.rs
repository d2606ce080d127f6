//! The CAP face: journalled frames as they are (v1), or said again in v2.

use bytes::{Bytes, BytesMut};
use capstan_protocol::{Cursor, Profile, sse};

/// The reconnection time that a response opens with, in milliseconds.
const RETRY_MS: u32 = 500;

/// The name under which claims of this face are kept.
pub(crate) const NAME: &str = "cap";

/// CAP in one of its profiles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cap(pub(crate) Profile);

impl Cap {
    /// What a response opens with: a client can resume before the first packet.
    pub(crate) fn opening(self, cursor: &Cursor) -> Bytes {
        let mut out = Vec::new();
        sse::encode_opening(cursor, RETRY_MS, &mut out);
        out.into()
    }

    /// Frames that are due, joined: one write instead of many when a reader catches up.
    pub(crate) fn frames(self, frames: Vec<Bytes>) -> Bytes {
        if let (Profile::V1, [only]) = (self.0, frames.as_slice()) {
            return only.clone();
        }
        let mut out = BytesMut::with_capacity(frames.iter().map(Bytes::len).sum());
        for frame in &frames {
            match self.0 {
                Profile::V1 => out.extend_from_slice(frame),
                Profile::V2 => out.extend_from_slice(&to_v2(frame)),
            }
        }
        out.freeze()
    }
}

fn to_v2(frame: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(packet) = sse::decode_packet(frame) {
        sse::encode_packet_v2(&packet, &mut out);
    }
    out
}

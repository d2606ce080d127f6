//! Bytes into packets, in either profile, and the cursor that goes with them.

use std::time::Duration;

use capstan_protocol::{LastEventId, Profile, StreamPacket, Timestamp, sse, v2};
use uuid::Uuid;

use crate::error::CapError;

/// The frames of one body after another.
#[derive(Debug)]
pub(super) struct Packets {
    profile: Profile,
    decoder: sse::Decoder,
    /// The cursor that earlier bodies left behind.
    cursor: Option<String>,
    /// The stream of the last packet: the cursor of servers that send no ids.
    stream: Option<Uuid>,
    /// A packet came without any place (v2 only), so repeats are not recognisable.
    is_placeless: bool,
    count: u64,
    /// The server's wish for reconnections.
    retry: Option<Duration>,
}

impl Packets {
    pub(super) fn new(profile: Profile) -> Self {
        let decoder = sse::Decoder::new();
        Self {
            profile,
            decoder,
            cursor: None,
            stream: None,
            is_placeless: false,
            count: 0,
            retry: None,
        }
    }

    pub(super) fn start_at(&mut self, cursor: Option<String>) {
        self.cursor = cursor;
    }

    /// A new body begins; what an old one cut off is forgotten.
    pub(super) fn open(&mut self) {
        self.decoder = sse::Decoder::new();
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.decoder.push(bytes);
    }

    /// The body is gone; its last id stays.
    pub(super) fn close(&mut self) {
        self.retry = self.decoder.retry().or(self.retry);
        if let Some(id) = self.decoder.last_event_id() {
            // An empty id means that there is none any more.
            self.cursor = Some(id.to_owned()).filter(|id| !id.is_empty());
        }
    }

    /// The cursor to resume with: the server's own id, else the stream's.
    pub(super) fn last_event_id(&self) -> Option<String> {
        self.cursor.clone().or_else(|| Some(self.stream?.to_string()))
    }

    pub(super) fn can_resume(&self) -> bool {
        !self.is_placeless
    }

    pub(super) fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// The next packet that the bytes so far hold.
    pub(super) fn next(&mut self) -> Result<Option<StreamPacket>, CapError> {
        while let Some(frame) = self.decoder.next_frame() {
            let frame = frame.map_err(|e| CapError::protocol(e.to_string()))?;
            // A frame without a name is a packet of a plain server. One with another name is not
            // for us.
            if !matches!(&*frame.event, sse::EVENT_NAME | "message") || frame.data.is_empty() {
                continue;
            }
            let packet = match self.profile {
                Profile::V1 => StreamPacket::decode(&frame.data).map_err(wrong)?,
                Profile::V2 => {
                    let packet = v2::StreamPacket::decode(&frame.data).map_err(wrong)?;
                    self.placed(packet)
                }
            };
            self.stream = Some(packet.stream_id).filter(|id| !id.is_nil());
            return Ok(Some(packet));
        }
        Ok(None)
    }

    /// v2 packets may lack their place; the SSE id may have it.
    fn placed(&mut self, packet: v2::StreamPacket) -> StreamPacket {
        self.count += 1;
        let id = self.decoder.last_event_id().and_then(|id| id.parse::<LastEventId>().ok());
        let position = id
            .and_then(|id| if let LastEventId::At(cursor) = id { Some(cursor.seq) } else { None });
        let seq = packet.seq.or(position);
        self.is_placeless |= seq.is_none();
        StreamPacket {
            stream_id: packet.stream_id.or(id.map(LastEventId::stream_id)).unwrap_or_default(),
            seq: seq.unwrap_or(self.count),
            t: packet.t.unwrap_or_else(Timestamp::now),
            payload: packet.payload,
        }
    }
}

fn wrong(error: capstan_protocol::DecodeError) -> CapError {
    CapError::protocol(error.to_string())
}

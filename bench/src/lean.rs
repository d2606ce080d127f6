//! The leanest way to read a packet with serde that we could think of, so that nobody races a straw
//! man.
//!
//! `StreamPacket`'s own `Deserialize` keeps `p` aside until it knows the op, since members may come
//! in any order. This one trusts that `op` comes first and reads everything in one pass. It is less
//! strict than ours: a member that appears twice goes unnoticed.

use std::fmt;

use capstan_protocol::{Close, Payload, StreamOpCode, StreamPacket};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

pub struct Lean(pub StreamPacket);

#[derive(serde::Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Member {
    StreamId,
    Seq,
    Op,
    T,
    P,
}

impl<'de> Deserialize<'de> for Lean {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Lean;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a packet")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Lean, A::Error> {
        let (mut stream_id, mut seq, mut op, mut t, mut payload) = (None, None, None, None, None);
        while let Some(member) = map.next_key()? {
            match member {
                Member::StreamId => stream_id = Some(map.next_value()?),
                Member::Seq => seq = Some(map.next_value()?),
                Member::Op => op = Some(map.next_value()?),
                Member::T => t = Some(map.next_value()?),
                Member::P => payload = Some(read_payload(need(op, "op")?, &mut map)?),
            }
        }
        Ok(Lean(StreamPacket {
            stream_id: need(stream_id, "stream_id")?,
            seq: need(seq, "seq")?,
            t: need(t, "t")?,
            payload: need(payload, "p")?,
        }))
    }
}

fn need<T, E: Error>(value: Option<T>, name: &'static str) -> Result<T, E> {
    value.ok_or_else(|| E::missing_field(name))
}

fn read_payload<'de, A: MapAccess<'de>>(
    op: StreamOpCode,
    map: &mut A,
) -> Result<Payload, A::Error> {
    Ok(match op {
        StreamOpCode::Delta => Payload::Delta(map.next_value()?),
        StreamOpCode::Event => Payload::Event(map.next_value()?),
        StreamOpCode::Error => Payload::Error(map.next_value()?),
        StreamOpCode::Close => Payload::Close(Close::Reason(map.next_value()?)),
    })
}

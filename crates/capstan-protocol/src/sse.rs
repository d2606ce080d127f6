//! Server-sent events without I/O: an encoder for our frames and an incremental decoder for any
//! server's.

mod decoder;
mod encoder;

pub use decoder::{Decoder, Frame, FrameTooLarge};
pub use encoder::{
    EVENT_NAME, HEARTBEAT, decode_packet, encode_json, encode_opening, encode_packet,
    encode_packet_v2,
};

//! What a list holds: packets as they are in the journal, or the chunks that another face makes of
//! them.

use capstan_journal::{Frames, Run};
use capstan_protocol::Fault;

use crate::face::FaceContext;
use crate::face::ai_sdk;

/// Which items.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Shape {
    /// CAP's packets.
    #[default]
    Packets,
    /// Chunks of a UI message.
    AiSdk,
}

pub(super) enum Items {
    Packets,
    AiSdk(Box<ai_sdk::Items>),
}

impl Items {
    pub(super) async fn after(
        cx: &FaceContext,
        run: &Run,
        after: u64,
        shape: Shape,
    ) -> Result<Self, Fault> {
        Ok(match shape {
            Shape::Packets => Self::Packets,
            Shape::AiSdk => Self::AiSdk(Box::new(ai_sdk::Items::after(cx, run, after).await?)),
        })
    }

    /// The items of frames as a JSON array.
    pub(super) fn array(&mut self, frames: &Frames) -> Vec<u8> {
        match self {
            Self::Packets => join(frames.iter().filter_map(|frame| data_of(frame))),
            Self::AiSdk(items) => join(items.take(frames).iter().map(String::as_bytes)),
        }
    }
}

fn join<'a>(items: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = vec![b'['];
    for item in items {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(item);
    }
    out.push(b']');
    out
}

/// The packet of a frame, which is on one line.
fn data_of(frame: &[u8]) -> Option<&[u8]> {
    frame.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"data: "))
}

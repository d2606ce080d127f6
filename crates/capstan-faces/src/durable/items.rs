//! The items of a list: packets of the journal, or the events that another face makes of them.

use std::sync::Arc;

use capstan_journal::{Frames, Run};
use capstan_protocol::{Fault, FaultKind};

use crate::face::{Face, FaceContext, Items};

/// The kind of items: another face's events, or CAP's packets.
#[derive(Clone, Default)]
pub(super) struct Shape(Option<Arc<dyn Face>>);

impl Shape {
    /// The kind of items by name, among the faces that have items.
    pub(super) fn named(name: Option<&str>, faces: &[Arc<dyn Face>]) -> Result<Self, Fault> {
        let Some(name) = name.filter(|name| *name != "cap") else { return Ok(Self(None)) };
        if let Some(face) = faces.iter().find(|face| face.name() == name) {
            return Ok(Self(Some(face.clone())));
        }
        let known: Vec<&str> = faces.iter().map(|face| face.name()).collect();
        let message =
            format!("face: {name:?} has no items; there are cap and {}", known.join(", "));
        Err(Fault::new(FaultKind::InvalidRequest).with_message(message))
    }
}

/// Encodes the items of a run.
pub(super) enum List {
    Packets,
    Of(Box<dyn Items>),
}

impl List {
    pub(super) async fn after(
        cx: &FaceContext,
        run: &Run,
        after: u64,
        Shape(face): &Shape,
    ) -> Result<Self, Fault> {
        let items = match face {
            Some(face) => face.items(cx, run, after).await?,
            None => None,
        };
        Ok(items.map_or(Self::Packets, Self::Of))
    }

    /// Encodes the items of frames as a JSON array.
    pub(super) fn array(&mut self, frames: &Frames) -> Vec<u8> {
        match self {
            Self::Packets => join(frames.iter().filter_map(|frame| data_of(frame))),
            Self::Of(items) => join(items.encode(frames).iter().map(String::as_bytes)),
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

//! Packets that a later attempt has reset. Viewers that come afterwards need not see them.

use capstan_journal::Run;
use capstan_protocol::{Event, EventView, Fault, Payload, StreamError, StreamPacket};

use crate::face::FaceContext;
use crate::face::reader::{self, Fold};

/// The ranges of reset packets: after the first number, up to the second.
#[derive(Debug, Default)]
pub struct TakenBack(Vec<(u64, u64)>);

impl TakenBack {
    /// Reads the reset packets of a run.
    pub async fn read(cx: &FaceContext, run: &Run) -> Result<Self, Fault> {
        if run.attempt < 2 {
            return Ok(Self::default());
        }
        Ok(reader::collect_so_far::<Self>(cx, run).await?.transcript)
    }

    /// Reads the reset packets of a run that nobody sees before its end. For any other run the
    /// result is empty, because viewers have seen the packets.
    pub async fn read_if_unseen(cx: &FaceContext, run: &Run) -> Result<Self, Fault> {
        if run.is_unseen { Self::read(cx, run).await } else { Ok(Self::default()) }
    }

    /// Whether this packet was reset.
    pub fn has(&self, seq: u64) -> bool {
        self.0.iter().any(|(after, reset)| (after + 1..=*reset).contains(&seq))
    }
}

impl Fold for TakenBack {
    fn add(&mut self, packet: &StreamPacket) {
        self.0.extend(reset_of(packet).map(|after| (after, packet.seq)));
    }

    fn error(&self) -> Option<&StreamError> {
        None
    }
}

/// If this packet is a reset: the number of the last packet that stays.
pub fn reset_of(packet: &StreamPacket) -> Option<u64> {
    let Payload::Event(raw) = &packet.payload else { return None };
    let event = Event::of(raw);
    if let EventView::Reset(reset) = event.view() { Some(reset.after_seq) } else { None }
}

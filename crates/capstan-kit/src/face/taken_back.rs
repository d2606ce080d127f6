//! What later attempts have taken back: whoever comes afterwards need not see it at all.

use capstan_journal::Run;
use capstan_protocol::{Event, EventView, Fault, Payload, StreamError, StreamPacket};

use crate::face::FaceContext;
use crate::face::reader::{self, Fold};

/// Packets after the first number, up to the second.
#[derive(Debug, Default)]
pub struct TakenBack(Vec<(u64, u64)>);

impl TakenBack {
    /// Of a run as it stands.
    pub async fn of(cx: &FaceContext, run: &Run) -> Result<Self, Fault> {
        if run.attempt < 2 {
            return Ok(Self::default());
        }
        Ok(reader::so_far::<Self>(cx, run).await?.transcript)
    }

    /// Of a run of which nobody sees anything before its end: what it took back in its course need
    /// not be seen later either. Of another run nothing counts as taken back.
    pub async fn unseen(cx: &FaceContext, run: &Run) -> Result<Self, Fault> {
        if run.is_unseen { Self::of(cx, run).await } else { Ok(Self::default()) }
    }

    pub fn has(&self, seq: u64) -> bool {
        self.0.iter().any(|(after, reset)| (after + 1..=*reset).contains(&seq))
    }
}

impl Fold for TakenBack {
    fn take(&mut self, packet: &StreamPacket) {
        self.0.extend(reset_of(packet).map(|after| (after, packet.seq)));
    }

    fn error(&self) -> Option<&StreamError> {
        None
    }
}

/// The packet after which this one takes all back, if it does.
pub fn reset_of(packet: &StreamPacket) -> Option<u64> {
    let Payload::Event(raw) = &packet.payload else { return None };
    let event = Event::of(raw);
    if let EventView::Reset(reset) = event.view() { Some(reset.after_seq) } else { None }
}

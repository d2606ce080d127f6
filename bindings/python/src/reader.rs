//! What both kinds of stream share: what a caller gets for a packet, and what is remembered of it.
//! No Python here, so that nothing of it can run while a lock is held.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use capstan_client::protocol::event::STREAM_RESET;
use capstan_client::{CapError, Notice, PacketStream, RuntimeError};
use capstan_protocol::{
    Close, Cursor, ErrorSeverity, Event, EventView, Payload, RawObject, StreamError, StreamPacket,
    Transcript,
};
use futures_util::FutureExt as _;
use pyo3::prelude::*;
use pyo3::types::PyString;
use uuid::Uuid;

use crate::packet::Packet;
use crate::{failure, imports};

/// What comes out of a call, in order.
#[derive(Debug)]
pub(crate) enum Item {
    Packet(StreamPacket),
    Notice(Notice),
}

/// Where items wait for the caller.
pub(crate) trait Sink {
    fn put(&mut self, item: Item);
    fn len(&self) -> usize;
}

impl Sink for VecDeque<Item> {
    fn put(&mut self, item: Item) {
        self.push_back(item);
    }

    fn len(&self) -> usize {
        self.len()
    }
}

/// How a call ended.
pub(crate) type End = Result<(), CapError>;

/// No batch is larger: a caller that reads slowly must not make us hold a long stream.
pub(crate) const BATCH: usize = 1024;

/// Waits for a packet, then takes all that came with it. Dropped in the middle it loses nothing:
/// what was taken is in `out`.
pub(crate) async fn batch(packets: &mut PacketStream, out: &mut impl Sink) -> Option<End> {
    let mut next = packets.next().await;
    loop {
        match next {
            Ok(Some(packet)) => out.put(Item::Packet(packet)),
            Ok(None) => return Some(Ok(())),
            Err(error) => return Some(Err(error)),
        }
        while out.len() < BATCH
            && let Some(packet) = packets.next_buffered()
        {
            out.put(Item::Packet(packet));
        }
        if out.len() >= BATCH {
            return None;
        }
        next = match packets.next().now_or_never() {
            Some(next) => next,
            None => {
                // The connection is read by a task of its own. One turn for it: what the socket
                // holds comes along, so that a fast stream costs a wake-up per socket read, not per
                // chunk.
                give_way().await;
                packets.next().now_or_never()?
            }
        };
    }
}

/// Lets the tasks have their turn that are ready. `yield_now` would ask the kernel first which ones
/// are, each time.
async fn give_way() {
    let mut is_back = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut is_back, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// What the caller gets.
pub(crate) enum Handed {
    Text(String),
    Packet(StreamPacket),
    /// A packet that text readers do not see.
    Nothing,
    /// Text that was handed out is void.
    Reset(Box<CapError>),
}

/// The reading side of a stream.
#[derive(Debug)]
pub(crate) struct Reader {
    conversation: Option<Uuid>,
    transcript: Transcript,
    pub(crate) stream_id: Option<Uuid>,
    pub(crate) cursor: Option<Cursor>,
    /// All of the text is wanted at once: resets are applied instead of raised.
    pub(crate) is_collecting: bool,
}

impl Reader {
    /// With a conversation it reads text, without one packets.
    pub(crate) fn new(conversation: Option<Uuid>) -> Self {
        let transcript = Transcript::default();
        Self { conversation, transcript, stream_id: None, cursor: None, is_collecting: false }
    }

    pub(crate) fn conversation(&self) -> Option<Uuid> {
        self.conversation
    }

    pub(crate) fn text(&self) -> &str {
        self.transcript.text()
    }

    /// How the stream ended, if it did: its reason, and what it reports.
    pub(crate) fn close(&self) -> Option<&Close> {
        self.transcript.close()
    }

    pub(crate) fn take(&mut self, packet: StreamPacket) -> Handed {
        self.stream_id = Some(packet.stream_id);
        self.cursor = Some(packet.cursor());
        if self.conversation.is_none() {
            return Handed::Packet(packet);
        }
        match &packet.payload {
            Payload::Delta(_) | Payload::Close(_) => self.transcript.take(&packet),
            Payload::Event(raw) if is_reset(raw) => {
                self.transcript.take(&packet);
                if !self.is_collecting {
                    return Handed::Reset(Box::new(self.reset()));
                }
            }
            // Events are not kept: a reader of text never asks for them. A WARNING was logged
            // before it came.
            Payload::Event(_) | Payload::Error(_) => {}
        }
        match packet.payload {
            Payload::Delta(text) if !self.is_collecting => Handed::Text(text),
            Payload::Delta(_) | Payload::Event(_) | Payload::Error(_) | Payload::Close(_) => {
                Handed::Nothing
            }
        }
    }

    fn reset(&self) -> CapError {
        let message =
            "A second attempt gave another answer; text that was already handed out is void.";
        let error = Some(StreamError::new(STREAM_RESET, message, ErrorSeverity::Transient));
        let partial_text = Some(self.text().to_owned());
        CapError::Runtime(Box::new(RuntimeError { error, partial_text, ..RuntimeError::default() }))
    }

    /// A failure of a text reader carries the text that came before it.
    pub(crate) fn with_text(&self, error: CapError) -> CapError {
        match error {
            CapError::Runtime(mut runtime) if self.conversation.is_some() => {
                runtime.partial_text = Some(self.text().to_owned());
                CapError::Runtime(runtime)
            }
            other @ (CapError::Connection(_) | CapError::Protocol(_) | CapError::Runtime(_)) => {
                other
            }
        }
    }
}

fn is_reset(raw: &RawObject) -> bool {
    // Most events are not, and reading one costs more than looking for the word.
    raw.get().contains(STREAM_RESET) && matches!(Event::of(raw).view(), EventView::Reset(_))
}

/// Turns what was handed into Python's.
pub(crate) fn show(py: Python<'_>, handed: Handed) -> PyResult<Option<Bound<'_, PyAny>>> {
    match handed {
        Handed::Text(text) => Ok(Some(PyString::new(py, &text).into_any())),
        Handed::Packet(packet) => Ok(Some(Bound::new(py, Packet::from(packet))?.into_any())),
        Handed::Nothing => Ok(None),
        Handed::Reset(error) => Err(failure::raised(py, &error)),
    }
}

/// Logs a notice, as RFC 004 words it.
pub(crate) fn log(py: Python<'_>, notice: &Notice) -> PyResult<()> {
    imports::log(py)?.call1((notice.is_warning(), notice.to_string())).map(drop)
}

/// The usage that CLOSE reports, as JSON text.
pub(crate) fn usage(close: Option<&Close>) -> Option<String> {
    let Some(Close::Report(report)) = close else { return None };
    Some(report.to_map().get("usage").filter(|usage| usage.is_object())?.to_string())
}

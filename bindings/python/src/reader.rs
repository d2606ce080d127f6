//! The common part of both kinds of stream: the item for a packet, and the state that a reader
//! keeps. It does not call Python, so no Python code can run while a lock is held.

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

/// An item of a call, in order.
#[derive(Debug)]
pub(crate) enum Item {
    Packet(StreamPacket),
    Notice(Notice),
}

/// The queue of items for the caller.
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

/// The most items of a batch, so that a slow reader does not fill the memory.
pub(crate) const BATCH: usize = 1024;

/// Waits for a packet, then takes all that arrived with it. If the future is dropped, nothing is
/// lost: the taken packets are in `out`.
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
                // A task of its own reads the connection. Yielding to it once brings all bytes of
                // the socket, so that a fast stream costs one wake-up per read of the socket, not
                // per chunk.
                give_way().await;
                packets.next().now_or_never()?
            }
        };
    }
}

/// Yields to the tasks that are ready. `yield_now` would ask the kernel for events each time.
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

/// The item for the caller.
pub(crate) enum Handed {
    Text(String),
    Packet(StreamPacket),
    /// A packet that readers of text do not get.
    Nothing,
    /// Text that was returned is void.
    Reset(Box<CapError>),
}

/// The reading side of a stream.
#[derive(Debug)]
pub(crate) struct Reader {
    conversation: Option<Uuid>,
    transcript: Transcript,
    pub(crate) stream_id: Option<Uuid>,
    pub(crate) cursor: Option<Cursor>,
    /// The caller wants all of the text at once, so resets are applied and not raised.
    pub(crate) is_collecting: bool,
}

impl Reader {
    /// Reads text if there is a conversation, else packets.
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

    /// The end of the stream, if it has come: its reason and its report.
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
            // Events are not stored, because a reader of text does not need them. A WARNING was
            // logged before.
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

    /// Adds the text so far to a failure, for readers of text.
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
    // Most events are no resets, and parsing one costs more than searching for the word.
    raw.get().contains(STREAM_RESET) && matches!(Event::of(raw).view(), EventView::Reset(_))
}

/// Converts an item to Python.
pub(crate) fn show(py: Python<'_>, handed: Handed) -> PyResult<Option<Bound<'_, PyAny>>> {
    match handed {
        Handed::Text(text) => Ok(Some(PyString::new(py, &text).into_any())),
        Handed::Packet(packet) => Ok(Some(Bound::new(py, Packet::from(packet))?.into_any())),
        Handed::Nothing => Ok(None),
        Handed::Reset(error) => Err(failure::raised(py, &error)),
    }
}

/// Logs a notice with the text of RFC 004.
pub(crate) fn log(py: Python<'_>, notice: &Notice) -> PyResult<()> {
    imports::log(py)?.call1((notice.is_warning(), notice.to_string())).map(drop)
}

/// The usage that CLOSE reports, as JSON text.
pub(crate) fn usage(close: Option<&Close>) -> Option<String> {
    let Some(Close::Report(report)) = close else { return None };
    Some(report.to_map().get("usage").filter(|usage| usage.is_object())?.to_string())
}

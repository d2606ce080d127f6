//! The stream for asyncio: what the channel has is handed out by a plain iterator. How to wait is
//! Python's part, `_streams.py`; nothing here does.

use std::sync::{Arc, Mutex};

use capstan_client::{Notice, PacketStream};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::channel::{Channel, Waiter, pump};
use crate::client::Call;
use crate::machine::{Machine, Step};
use crate::parcels::Parcels;
use crate::reader::{self, End, Handed, Item, Reader};
use crate::runtime::{Engine, lock};
use crate::{failure, json};

/// So many packets in a row, then other tasks of the loop get their turn.
const BREATH: u32 = 1024;

enum Source {
    /// Nothing was asked for yet.
    Fresh { packets: Box<PacketStream>, engine: Arc<Engine> },
    /// The worker reads.
    Pumped,
    /// The caller's own HTTP client does.
    Driven { machine: Py<Machine> },
    /// Nothing more comes.
    Over,
}

/// The packets or the text of one run, for `async for`. Private: `AsyncPacketStream` and
/// `AsyncChatStream` are the public ones; they know how to wait and how to let others run.
#[pyclass(frozen, subclass, module = "coreason_client._core")]
pub(crate) struct AsyncStream {
    source: Mutex<Source>,
    channel: Arc<Channel>,
    near: Mutex<Near>,
    closed: CancellationToken,
    /// None if the caller's own HTTP client is used.
    engine: Option<Arc<Engine>>,
}

/// What the event loop's side has at hand: one lock per packet, and it is never contended.
struct Near {
    items: Parcels,
    reader: Reader,
    /// Packets handed out since the loop last had its turn.
    in_a_row: u32,
}

enum Next {
    Handed(Handed),
    Notice(Notice),
}

impl Near {
    /// Takes over what has come meanwhile, once nothing is left. False if there is nothing.
    fn refill(&mut self, stream: &AsyncStream) -> bool {
        if self.items.is_empty() && !stream.is_foreign() {
            stream.channel.take_all(&mut self.items);
        }
        !self.items.is_empty()
    }

    fn next(&mut self, stream: &AsyncStream) -> Option<Next> {
        if self.in_a_row == BREATH || !self.refill(stream) {
            return None;
        }
        match self.items.next()? {
            Item::Packet(packet) => {
                self.in_a_row += 1;
                Some(Next::Handed(self.reader.take(packet)))
            }
            Item::Notice(notice) => Some(Next::Notice(notice)),
        }
    }
}

impl Drop for AsyncStream {
    fn drop(&mut self) {
        if !self.is_foreign() {
            self.closed.cancel();
        }
    }
}

#[pymethods]
impl AsyncStream {
    #[new]
    #[pyo3(signature = (source, conversation_id = None))]
    fn new(source: &Bound<'_, PyAny>, conversation_id: Option<Uuid>) -> PyResult<Self> {
        let (source, closed, engine) = if let Ok(call) = source.cast::<Call>() {
            let (packets, engine) = (Box::new(call.get().take()?), Arc::clone(&call.get().engine));
            let closed = engine.closed.child_token();
            (Source::Fresh { packets, engine: Arc::clone(&engine) }, closed, Some(engine))
        } else if let Ok(machine) = source.cast::<Machine>() {
            (Source::Driven { machine: machine.clone().unbind() }, CancellationToken::new(), None)
        } else {
            return Err(PyTypeError::new_err("expected a call or a machine"));
        };
        Ok(Self {
            source: Mutex::new(source),
            channel: Arc::default(),
            near: Mutex::new(Near {
                items: Parcels::default(),
                reader: Reader::new(conversation_id),
                in_a_row: 0,
            }),
            closed,
            engine,
        })
    }

    /// What is there.
    fn _ready(slf: Bound<'_, Self>) -> Ready {
        Ready { stream: slf.unbind() }
    }

    /// Whether there is something to hand out: false at the end, nothing if it has to be waited
    /// for. Raises what the call failed with.
    fn _look(&self, py: Python<'_>) -> PyResult<Option<bool>> {
        if let Some(engine) = &self.engine {
            engine.check_process()?;
        }
        self.advance();
        let mut near = lock(&self.near);
        near.in_a_row = 0;
        if near.refill(self) {
            return Ok(Some(true));
        }
        drop(near);
        if let Some(end) = self.channel.take_end() {
            *lock(&self.source) = Source::Over;
            return self.finish(py, end).map(|()| Some(false));
        }
        let is_over = matches!(&*lock(&self.source), Source::Over) || self.closed.is_cancelled();
        Ok(if is_over { Some(false) } else { None })
    }

    /// Has the future woken when something comes. False if something came already.
    fn _arm(&self, event_loop: Py<PyAny>, future: Py<PyAny>) -> PyResult<bool> {
        self.start()?;
        self.channel.arm(Waiter::new(event_loop, future))
    }

    /// What the driver of the caller's own HTTP client has to do; nothing if something came.
    fn _step<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.advance().map(|step| step.into_python(py)).transpose()
    }

    /// Reads what is there in text mode without handing it out; the text if that was all.
    fn _begin_text(&self) {
        lock(&self.near).reader.is_collecting = true;
    }

    /// Closes the connection. The run continues at the server.
    fn _close(&self) {
        if self.is_foreign() {
            return;
        }
        self.closed.cancel();
        *lock(&self.source) = Source::Over;
        lock(&self.near).items = Parcels::default();
        self.channel.clear();
    }

    /// The stream that is read, as soon as the server has named it.
    #[getter]
    fn stream_id(&self) -> Option<Uuid> {
        lock(&self.near).reader.stream_id
    }

    /// The place after the last packet that was handed out: `<stream_id>:<seq>`.
    #[getter]
    fn cursor(&self) -> Option<String> {
        lock(&self.near).reader.cursor.map(|cursor| cursor.to_string())
    }

    #[getter]
    fn _conversation(&self) -> Option<String> {
        lock(&self.near).reader.conversation().map(|id| id.to_string())
    }

    #[getter]
    fn _text(&self) -> String {
        lock(&self.near).reader.text().to_owned()
    }

    #[getter]
    fn _reason(&self) -> Option<String> {
        lock(&self.near).reader.close().map(capstan_protocol::Close::reason)
    }

    #[getter]
    fn _usage<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let usage = reader::usage(lock(&self.near).reader.close());
        usage.map(|text| json::read(py, &text)).transpose()
    }
}

impl AsyncStream {
    /// Whether its worker is in the process that this one was forked from.
    fn is_foreign(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| engine.is_foreign())
    }

    /// Starts the worker's part when something is first waited for.
    fn start(&self) -> PyResult<()> {
        let mut source = lock(&self.source);
        let Source::Fresh { engine, .. } = &*source else { return Ok(()) };
        let handle = engine.worker()?.handle()?;
        if let Source::Fresh { packets, .. } = std::mem::replace(&mut *source, Source::Pumped) {
            handle.spawn(pump(packets, Arc::clone(&self.channel), self.closed.clone()));
        }
        Ok(())
    }

    /// Moves what the machine has into the channel, if a machine is what there is. What it wants
    /// done, if it has nothing.
    fn advance(&self) -> Option<Step> {
        let Source::Driven { machine } = &*lock(&self.source) else { return None };
        self.channel.advance(machine.get())
    }

    fn finish(&self, py: Python<'_>, end: End) -> PyResult<()> {
        end.map_err(|error| {
            let error = lock(&self.near).reader.with_text(error);
            failure::raised(py, &error)
        })
    }
}

/// Hands out what is there, and ends where it has to be waited: for more, or for other tasks.
#[pyclass(frozen, module = "coreason_client._core")]
pub(crate) struct Ready {
    stream: Py<AsyncStream>,
}

#[pymethods]
impl Ready {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let stream = self.stream.get();
        loop {
            let next = lock(&stream.near).next(stream);
            // Without the lock: logging runs whatever a program has set up, which may come back to
            // us.
            match next {
                Some(Next::Handed(handed)) => {
                    if let Some(shown) = reader::show(py, handed)? {
                        return Ok(Some(shown));
                    }
                }
                Some(Next::Notice(notice)) => reader::log(py, &notice)?,
                None => return Ok(None),
            }
        }
    }
}

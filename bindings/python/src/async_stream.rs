//! The stream for asyncio. A plain iterator returns the items of the channel. Waiting is the task
//! of `_streams.py`; nothing here waits.

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

/// How many packets are returned in a row before other tasks of the loop run.
const BREATH: u32 = 1024;

enum Source {
    /// The first item was not requested yet.
    Fresh { packets: Box<PacketStream>, engine: Arc<Engine> },
    /// The worker reads.
    Pumped,
    /// The caller's own HTTP client reads.
    Driven { machine: Py<Machine> },
    /// The stream has ended.
    Over,
}

/// The packets or the text of one run, for `async for`. Private: the public classes are
/// `AsyncPacketStream` and `AsyncChatStream`, which also wait and yield to other tasks.
#[pyclass(frozen, subclass, module = "coreason_client._core")]
pub(crate) struct AsyncStream {
    source: Mutex<Source>,
    channel: Arc<Channel>,
    near: Mutex<Near>,
    closed: CancellationToken,
    /// None if the caller's own HTTP client is used.
    engine: Option<Arc<Engine>>,
}

/// The state on the side of the event loop. Its lock is taken once per packet and is never
/// contended.
struct Near {
    items: Parcels,
    reader: Reader,
    /// Packets that were returned since the loop last ran other tasks.
    in_a_row: u32,
}

enum Next {
    Handed(Handed),
    Notice(Notice),
}

impl Near {
    /// Takes the items that have arrived, if none is left. Returns false if there are none.
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

    /// The available items.
    fn _ready(slf: Bound<'_, Self>) -> Ready {
        Ready { stream: slf.unbind() }
    }

    /// Whether there is an item: false at the end, `None` if the caller has to wait. Raises the
    /// failure of the call.
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

    /// Registers a future to be woken when an item arrives. Returns false if one has arrived
    /// already.
    fn _arm(&self, event_loop: Py<PyAny>, future: Py<PyAny>) -> PyResult<bool> {
        self.start()?;
        self.channel.arm(Waiter::new(event_loop, future))
    }

    /// The next action of the driver of the caller's own HTTP client; `None` if an item arrived.
    fn _step<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.advance().map(|step| step.into_python(py)).transpose()
    }

    /// Collects the available text without returning it. Returns the text if the stream has ended.
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

    /// The id of the stream, as soon as the server has sent it.
    #[getter]
    fn stream_id(&self) -> Option<Uuid> {
        lock(&self.near).reader.stream_id
    }

    /// The cursor after the last returned packet: `<stream_id>:<seq>`.
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
    /// Whether its worker is in the process from which this one was forked.
    fn is_foreign(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| engine.is_foreign())
    }

    /// Starts the worker when an item is first waited for.
    fn start(&self) -> PyResult<()> {
        let mut source = lock(&self.source);
        let Source::Fresh { engine, .. } = &*source else { return Ok(()) };
        let handle = engine.worker()?.handle()?;
        if let Source::Fresh { packets, .. } = std::mem::replace(&mut *source, Source::Pumped) {
            handle.spawn(pump(packets, Arc::clone(&self.channel), self.closed.clone()));
        }
        Ok(())
    }

    /// Moves the items of the machine into the channel, if there is a machine. Returns its next
    /// action if it has none.
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

/// Returns the available items, and stops where the caller has to wait: for more items, or for
/// other tasks.
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
            // Without the lock, because a log handler of the program may call this stream.
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

//! The stream for asyncio: a worker reads and decodes, the event loop is woken once per batch, and a packet that is there
//! is handed over without asking the loop. A future per packet would cost more than all the rest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use capstan_client::PacketStream;
use pyo3::exceptions::{PyRuntimeError, PyStopAsyncIteration, PyStopIteration, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::client::Call;
use crate::machine::Machine;
use crate::reader::{self, End, Item, Reader, batch};
use crate::runtime::{Engine, lock};
use crate::{failure, json};

/// So much may wait for a slow reader; then the network has to.
const FULL: usize = 4096;

/// So many packets in a row, then other tasks of the loop get their turn.
const BREATH: u32 = 1024;

/// A future of an event loop, to be woken from another thread.
#[derive(Debug)]
pub(crate) struct Waiter {
    event_loop: Py<PyAny>,
    future: Py<PyAny>,
}

impl Waiter {
    pub(crate) fn new(event_loop: Py<PyAny>, future: Py<PyAny>) -> Self {
        Self { event_loop, future }
    }

    /// The loop sets the result itself; one that is closed by now, or an interpreter that is going down, needs nothing.
    pub(crate) fn wake(self) {
        let _ = Python::try_attach(|py| {
            let Self { event_loop, future } = self;
            let wake = wrap_pyfunction!(wake, py)?;
            let name = intern!(py, "call_soon_threadsafe");
            event_loop.bind(py).call_method1(name, (wake, future)).map(drop)
        });
    }
}

/// Sets a future's result, unless it was cancelled meanwhile. Runs in the event loop.
#[pyfunction]
pub(crate) fn wake(future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if !future.call_method0(intern!(py, "done"))?.is_truthy()? {
        future.call_method1(intern!(py, "set_result"), (py.None(),))?;
    }
    Ok(())
}

/// An awaitable that is done: awaiting it neither suspends nor touches the event loop. There is one per packet, and hardly
/// ever two at a time, so their memory is used again.
#[pyclass(freelist = 4, module = "coreason_client._core")]
pub(crate) struct Ready {
    outcome: Option<PyResult<Py<PyAny>>>,
}

impl Ready {
    fn of(outcome: PyResult<Py<PyAny>>) -> Self {
        Self { outcome: Some(outcome) }
    }
}

#[pymethods]
impl Ready {
    /// A done awaitable of a value.
    #[new]
    fn new(value: Py<PyAny>) -> Self {
        Self::of(Ok(value))
    }

    fn __await__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&mut self) -> PyResult<Py<PyAny>> {
        match self.outcome.take() {
            // The value itself, not a tuple of it, which would be taken for the exception's arguments.
            Some(Ok(value)) => Err(PyStopIteration::new_err(value)),
            Some(Err(error)) => Err(error),
            None => Err(PyRuntimeError::new_err("cannot reuse already awaited item")),
        }
    }
}

/// Between the worker, which reads, and the event loop, which hands out.
#[derive(Default)]
struct Channel {
    state: Mutex<State>,
    /// There is room again.
    room: Notify,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    end: Option<End>,
    waiter: Option<Waiter>,
    is_full: bool,
}

impl Channel {
    /// Appends, and wakes whoever waits. What comes back is empty, with room for the next batch.
    fn push(&self, items: &mut VecDeque<Item>, end: Option<End>) {
        let waiter = {
            let mut state = lock(&self.state);
            if state.items.is_empty() {
                std::mem::swap(&mut state.items, items);
            } else {
                state.items.append(items);
            }
            state.end = end.or(state.end.take());
            state.is_full = state.items.len() >= FULL;
            state.waiter.take()
        };
        // Without the lock: waking wants the interpreter, whose holder may want the lock.
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Everything that is there.
    fn take_all(&self, into: &mut VecDeque<Item>) {
        let mut state = lock(&self.state);
        std::mem::swap(&mut state.items, into);
        if std::mem::take(&mut state.is_full) {
            self.room.notify_one();
        }
    }

    async fn until_room(&self) {
        while lock(&self.state).is_full {
            self.room.notified().await;
        }
    }
}

/// Reads until the end, or until the stream is closed; dropping the packets closes the connection.
async fn pump(mut packets: Box<PacketStream>, channel: Arc<Channel>, closed: CancellationToken) {
    let teller = Arc::clone(&channel);
    packets.listen(move |notice| teller.push(&mut VecDeque::from([Item::Notice(notice.clone())]), None));
    let reading = async {
        let mut items = VecDeque::new();
        loop {
            let end = batch(&mut packets, &mut items).await;
            let is_over = end.is_some();
            channel.push(&mut items, end);
            if is_over {
                return;
            }
            channel.until_room().await;
        }
    };
    if closed.run_until_cancelled(reading).await.is_none() {
        channel.push(&mut VecDeque::new(), Some(Ok(())));
    }
}

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

/// What comes next.
enum Next {
    Ready(Ready),
    Wait,
    /// There is more, but others want to run, too.
    Breathe,
}

/// The packets or the text of one run, read by `async for`. Private: `AsyncPacketStream` and `AsyncChatStream` are the
/// public ones; they know how to wait (`_wait`) and how to let others run (`_breathe`).
#[pyclass(frozen, subclass, module = "coreason_client._core")]
pub(crate) struct AsyncStream {
    source: Mutex<Source>,
    channel: Arc<Channel>,
    near: Mutex<Near>,
    closed: CancellationToken,
}

/// What the event loop's side has at hand: one lock per packet, and it is never contended.
struct Near {
    items: VecDeque<Item>,
    reader: Reader,
    /// Packets handed out since the loop last had its turn.
    in_a_row: u32,
}

impl Drop for AsyncStream {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

#[pymethods]
impl AsyncStream {
    #[new]
    #[pyo3(signature = (source, conversation_id = None))]
    fn new(source: &Bound<'_, PyAny>, conversation_id: Option<Uuid>) -> PyResult<Self> {
        let (source, closed) = if let Ok(call) = source.cast::<Call>() {
            let (packets, engine) = (Box::new(call.get().take()?), Arc::clone(&call.get().engine));
            let closed = engine.closed.child_token();
            (Source::Fresh { packets, engine }, closed)
        } else if let Ok(machine) = source.cast::<Machine>() {
            (Source::Driven { machine: machine.clone().unbind() }, CancellationToken::new())
        } else {
            return Err(PyTypeError::new_err("expected a call or a machine"));
        };
        Ok(Self {
            source: Mutex::new(source),
            channel: Arc::default(),
            near: Mutex::new(Near {
                items: VecDeque::new(),
                reader: Reader::new(conversation_id),
                in_a_row: 0,
            }),
            closed,
        })
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        match slf.get().next(py)? {
            Next::Ready(ready) => Ok(Bound::new(py, ready)?.into_any()),
            Next::Wait => slf.call_method0(intern!(py, "_wait")),
            Next::Breathe => slf.call_method0(intern!(py, "_breathe")),
        }
    }

    /// What is there: an item, the end or a failure; nothing if it has to be waited for.
    fn _take(&self, py: Python<'_>) -> PyResult<Option<Ready>> {
        loop {
            match self.next(py)? {
                Next::Ready(ready) => return Ok(Some(ready)),
                Next::Wait => return Ok(None),
                Next::Breathe => {}
            }
        }
    }

    /// Has the future woken when something comes. False if something came already.
    fn _arm(&self, event_loop: Py<PyAny>, future: Py<PyAny>) -> PyResult<bool> {
        self.start()?;
        let mut state = lock(&self.channel.state);
        if !state.items.is_empty() || state.end.is_some() {
            return Ok(false);
        }
        if state.waiter.is_some() {
            return Err(PyRuntimeError::new_err("another task is reading this stream"));
        }
        state.waiter = Some(Waiter::new(event_loop, future));
        Ok(true)
    }

    /// What the driver of the caller's own HTTP client has to do; nothing if something came.
    fn _step<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, pyo3::types::PyTuple>>> {
        let Source::Driven { machine } = &*lock(&self.source) else { return Ok(None) };
        let mut state = lock(&self.channel.state);
        let State { items, end, .. } = &mut *state;
        match machine.get().advance(items, end) {
            Some(step) if items.is_empty() => step.into_python(py).map(Some),
            _ => Ok(None),
        }
    }

    /// Reads what is there in text mode without handing it out; the text if that was all.
    fn _begin_text(&self) {
        lock(&self.near).reader.is_collecting = true;
    }

    /// Closes the connection. The run goes on at the server.
    fn _close(&self) {
        self.closed.cancel();
        *lock(&self.source) = Source::Over;
        lock(&self.near).items.clear();
        let mut state = lock(&self.channel.state);
        state.items.clear();
        state.end = None;
        let waiter = state.waiter.take();
        drop(state);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
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

    fn next(&self, py: Python<'_>) -> PyResult<Next> {
        loop {
            let item = {
                let mut near = lock(&self.near);
                let Near { items, reader, in_a_row } = &mut *near;
                match items.pop_front() {
                    Some(Item::Packet(packet)) if *in_a_row < BREATH => {
                        *in_a_row += 1;
                        Ok(reader.take(packet))
                    }
                    Some(packet @ Item::Packet(_)) => {
                        *in_a_row = 0;
                        items.push_front(packet);
                        return Ok(Next::Breathe);
                    }
                    Some(Item::Notice(notice)) => Err(Some(notice)),
                    None => Err(None),
                }
            };
            // Without the lock: logging runs whatever a program has set up, which may come back to us.
            match item {
                Ok(handed) => {
                    if let Some(outcome) = reader::show(py, handed).transpose() {
                        return Ok(Next::Ready(Ready::of(outcome.map(Bound::unbind))));
                    }
                }
                Err(Some(notice)) => reader::log(py, &notice)?,
                Err(None) => {
                    if let Some(next) = self.refill(py) {
                        return Ok(next);
                    }
                }
            }
        }
    }

    /// Takes over what has come meanwhile; otherwise the end, or a wait.
    fn refill(&self, py: Python<'_>) -> Option<Next> {
        self.advance();
        let mut near = lock(&self.near);
        self.channel.take_all(&mut near.items);
        if !near.items.is_empty() {
            return None;
        }
        near.in_a_row = 0;
        drop(near);
        let end = {
            let mut state = lock(&self.channel.state);
            // Between the two locks the last batch may have come, and its end with it.
            if !state.items.is_empty() {
                return None;
            }
            state.end.take()
        };
        if let Some(end) = end {
            *lock(&self.source) = Source::Over;
            return Some(Next::Ready(Ready::of(Err(self.finish(py, end)))));
        }
        let is_over = matches!(&*lock(&self.source), Source::Over) || self.closed.is_cancelled();
        let over = || Next::Ready(Ready::of(Err(PyStopAsyncIteration::new_err(()))));
        Some(if is_over { over() } else { Next::Wait })
    }

    /// Moves what the machine has into the channel, if a machine is what there is.
    fn advance(&self) {
        if let Source::Driven { machine } = &*lock(&self.source) {
            let mut state = lock(&self.channel.state);
            let State { items, end, .. } = &mut *state;
            machine.get().advance(items, end);
        }
    }

    fn finish(&self, py: Python<'_>, end: End) -> PyErr {
        match end {
            Ok(()) => PyStopAsyncIteration::new_err(()),
            Err(error) => {
                let error = lock(&self.near).reader.with_text(error);
                failure::raised(py, &error)
            }
        }
    }
}

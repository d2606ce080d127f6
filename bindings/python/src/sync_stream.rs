//! The blocking stream. It reads in the caller's thread, a batch per read of the network, and
//! releases the interpreter while it waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use capstan_client::{Notice, PacketStream};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::client::Call;
use crate::machine::Machine;
use crate::reader::{self, End, Item, Reader, batch};
use crate::runtime::{Engine, lock};
use crate::{failure, json};

/// The source of the packets.
enum Source {
    /// Our own connection.
    Native(Native),
    /// The caller's own HTTP client, which does what the machine requests.
    Driven { machine: Py<Machine>, step: Py<PyAny> },
    /// The stream has ended.
    Over,
}

struct Native {
    packets: Option<Box<PacketStream>>,
    engine: Arc<Engine>,
    notices: Arc<Notices>,
}

impl Drop for Native {
    fn drop(&mut self) {
        // The connection belongs to the parent process.
        if self.engine.is_foreign() {
            std::mem::forget(self.packets.take());
        }
    }
}

/// Notices of a call, for the log.
#[derive(Default)]
struct Notices {
    waiting: Mutex<Vec<Notice>>,
    arrived: Notify,
}

struct Inbox {
    source: Source,
    items: VecDeque<Item>,
    end: Option<End>,
}

/// The packets or the text of one run, by iteration. Private: the public classes are `PacketStream`
/// and `ChatStream`.
#[pyclass(frozen, subclass, module = "coreason_client._core")]
pub(crate) struct Stream {
    // Two locks: only the inbox is locked while waiting for the network.
    inbox: Mutex<Inbox>,
    reader: Mutex<Reader>,
    closed: CancellationToken,
    /// None if the caller's own HTTP client is used.
    engine: Option<Arc<Engine>>,
}

#[pymethods]
impl Stream {
    #[new]
    #[pyo3(signature = (source, conversation_id = None, step = None))]
    fn new(
        source: &Bound<'_, PyAny>,
        conversation_id: Option<Uuid>,
        step: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let engine = source.cast::<Call>().ok().map(|call| Arc::clone(&call.get().engine));
        let (source, closed) = match (source.cast::<Call>(), source.cast::<Machine>(), step) {
            (Ok(call), _, _) => native(call.get())?,
            (_, Ok(machine), Some(step)) => (
                Source::Driven { machine: machine.clone().unbind(), step },
                CancellationToken::new(),
            ),
            _ => {
                return Err(PyTypeError::new_err(
                    "expected a call, or a machine and what drives it",
                ));
            }
        };
        let inbox = Mutex::new(Inbox { source, items: VecDeque::new(), end: None });
        Ok(Self { inbox, reader: Mutex::new(Reader::new(conversation_id)), closed, engine })
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut inbox = self.inbox()?;
        loop {
            while let Some(item) = inbox.items.pop_front() {
                match item {
                    Item::Notice(notice) => reader::log(py, &notice)?,
                    Item::Packet(packet) => {
                        let handed = lock(&self.reader).take(packet);
                        if let Some(shown) = reader::show(py, handed)? {
                            return Ok(Some(shown));
                        }
                    }
                }
            }
            if let Some(end) = inbox.end.take() {
                inbox.source = Source::Over;
                return self.finish(py, end);
            }
            if let Some(engine) = &self.engine {
                engine.check_process()?;
            }
            if matches!(inbox.source, Source::Over) || self.closed.is_cancelled() {
                inbox.source = Source::Over;
                return Ok(None);
            }
            inbox.fill(py, &self.closed)?;
        }
    }

    /// Reads to the end. Returns all of the text, with resets applied.
    fn _read_text(&self, py: Python<'_>) -> PyResult<String> {
        lock(&self.reader).is_collecting = true;
        while self.__next__(py)?.is_some() {}
        Ok(lock(&self.reader).text().to_owned())
    }

    /// Closes the connection. The run continues at the server.
    fn close(&self) {
        if self.engine.as_ref().is_some_and(|engine| engine.is_foreign()) {
            return;
        }
        self.closed.cancel();
        // A waiting reader notices the close itself.
        if let Ok(mut inbox) = self.inbox() {
            inbox.source = Source::Over;
            inbox.items.clear();
            inbox.end = None;
        }
    }

    /// The id of the stream, as soon as the server has sent it.
    #[getter]
    fn stream_id(&self) -> Option<Uuid> {
        lock(&self.reader).stream_id
    }

    /// The cursor after the last returned packet: `<stream_id>:<seq>`.
    #[getter]
    fn cursor(&self) -> Option<String> {
        lock(&self.reader).cursor.map(|cursor| cursor.to_string())
    }

    #[getter]
    fn _conversation(&self) -> Option<String> {
        lock(&self.reader).conversation().map(|id| id.to_string())
    }

    #[getter]
    fn _text(&self) -> String {
        lock(&self.reader).text().to_owned()
    }

    #[getter]
    fn _reason(&self) -> Option<String> {
        lock(&self.reader).close().map(capstan_protocol::Close::reason)
    }

    #[getter]
    fn _usage<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let usage = reader::usage(lock(&self.reader).close());
        usage.map(|text| json::read(py, &text)).transpose()
    }
}

impl Stream {
    fn inbox(&self) -> PyResult<MutexGuard<'_, Inbox>> {
        match self.inbox.try_lock() {
            Ok(inbox) => Ok(inbox),
            Err(TryLockError::Poisoned(broken)) => Ok(broken.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err(PyRuntimeError::new_err("another thread is reading this stream"))
            }
        }
    }

    fn finish<'py>(&self, py: Python<'py>, end: End) -> PyResult<Option<Bound<'py, PyAny>>> {
        match end {
            Ok(()) => Ok(None),
            Err(error) => {
                let error = lock(&self.reader).with_text(error);
                Err(failure::raised(py, &error))
            }
        }
    }
}

fn native(call: &Call) -> PyResult<(Source, CancellationToken)> {
    let (mut packets, engine) = (Box::new(call.take()?), Arc::clone(&call.engine));
    let notices = Arc::new(Notices::default());
    let sender = Arc::clone(&notices);
    packets.listen(move |notice| {
        lock(&sender.waiting).push(notice.clone());
        sender.arrived.notify_one();
    });
    let closed = engine.closed.child_token();
    Ok((Source::Native(Native { packets: Some(packets), engine, notices }), closed))
}

impl Inbox {
    /// Waits for packets, notices, or the end.
    fn fill(&mut self, py: Python<'_>, closed: &CancellationToken) -> PyResult<()> {
        match &mut self.source {
            Source::Native(Native { packets: Some(packets), engine, notices }) => {
                let items = &mut self.items;
                let read = async {
                    tokio::select! {
                        biased;
                        () = closed.cancelled() => Some(Ok(())),
                        end = batch(packets, items) => end,
                        () = notices.arrived.notified() => None,
                    }
                };
                let end = engine.worker()?.wait(py, read)?;
                for notice in lock(&notices.waiting).drain(..).rev() {
                    self.items.push_front(Item::Notice(notice));
                }
                self.end = end;
                Ok(())
            }
            Source::Driven { machine, step } => {
                match machine.get().advance(&mut self.items, &mut self.end) {
                    Some(what) if self.items.is_empty() => {
                        step.call1(py, what.into_python(py)?).map(drop)
                    }
                    _ => Ok(()),
                }
            }
            Source::Native(_) | Source::Over => Ok(()),
        }
    }
}

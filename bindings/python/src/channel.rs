//! The queue between the worker, which reads and decodes, and the event loop, which is woken once
//! per batch.

use std::sync::{Arc, Mutex};

use capstan_client::PacketStream;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::machine::{Machine, Step};
use crate::parcels::Parcels;
use crate::reader::{End, Item, Sink as _, batch};
use crate::runtime::lock;

/// The most items that wait for a slow reader. Then the worker stops reading from the network.
const FULL: usize = 4096;

/// A future of an event loop that another thread can wake.
#[derive(Debug)]
pub(crate) struct Waiter {
    event_loop: Py<PyAny>,
    future: Py<PyAny>,
}

impl Waiter {
    pub(crate) fn new(event_loop: Py<PyAny>, future: Py<PyAny>) -> Self {
        Self { event_loop, future }
    }

    /// Lets the loop set the result. A closed loop, or an interpreter that exits, needs nothing.
    pub(crate) fn wake(self) {
        let _ = Python::try_attach(|py| {
            let Self { event_loop, future } = self;
            let wake = wrap_pyfunction!(wake, py)?;
            let name = intern!(py, "call_soon_threadsafe");
            event_loop.bind(py).call_method1(name, (wake, future)).map(drop)
        });
    }
}

/// Sets the result of a future, unless it was cancelled. Runs in the event loop.
#[pyfunction]
pub(crate) fn wake(future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if !future.call_method0(intern!(py, "done"))?.is_truthy()? {
        future.call_method1(intern!(py, "set_result"), (py.None(),))?;
    }
    Ok(())
}

/// The items that have arrived and were not taken.
#[derive(Default)]
pub(crate) struct Channel {
    state: Mutex<State>,
    /// Notified when there is space again.
    room: Notify,
}

#[derive(Default)]
struct State {
    items: Parcels,
    end: Option<End>,
    waiter: Option<Waiter>,
    is_full: bool,
}

impl Channel {
    /// Appends items, and wakes the reader. `items` is empty afterwards, and keeps its capacity.
    fn push(&self, items: &mut Parcels, end: Option<End>) {
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
        // Without the lock: waking needs the interpreter, whose holder may wait for the lock.
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Takes all available items.
    pub(crate) fn take_all(&self, into: &mut Parcels) {
        let mut state = lock(&self.state);
        std::mem::swap(&mut state.items, into);
        if std::mem::take(&mut state.is_full) {
            self.room.notify_one();
        }
    }

    /// Takes the end, if no item is left before it.
    pub(crate) fn take_end(&self) -> Option<End> {
        let mut state = lock(&self.state);
        // The last batch may have arrived since the last check, together with the end.
        if state.items.is_empty() { state.end.take() } else { None }
    }

    /// Registers a future to be woken when an item arrives. Returns false if one has arrived
    /// already.
    pub(crate) fn arm(&self, waiter: Waiter) -> PyResult<bool> {
        let mut state = lock(&self.state);
        if !state.items.is_empty() || state.end.is_some() {
            return Ok(false);
        }
        if state.waiter.is_some() {
            return Err(PyRuntimeError::new_err("another task is reading this stream"));
        }
        state.waiter = Some(waiter);
        Ok(true)
    }

    /// Takes the items of a machine, where there is no worker. Returns the machine's next action if
    /// it has no items.
    pub(crate) fn advance(&self, machine: &Machine) -> Option<Step> {
        let mut state = lock(&self.state);
        let State { items, end, .. } = &mut *state;
        machine.advance(items, end).filter(|_| items.is_empty())
    }

    /// Drops all items, and wakes the reader.
    pub(crate) fn clear(&self) {
        let waiter = {
            let mut state = lock(&self.state);
            state.items = Parcels::default();
            state.end = None;
            state.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    async fn until_room(&self) {
        while lock(&self.state).is_full {
            self.room.notified().await;
        }
    }
}

/// Reads until the end, or until the stream is closed. Dropping the packets closes the connection.
pub(crate) async fn pump(
    mut packets: Box<PacketStream>,
    channel: Arc<Channel>,
    closed: CancellationToken,
) {
    let teller = Arc::clone(&channel);
    packets.listen(move |notice| {
        let mut items = Parcels::default();
        items.put(Item::Notice(notice.clone()));
        teller.push(&mut items, None);
    });
    let reading = async {
        let mut items = Parcels::default();
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
        channel.push(&mut Parcels::default(), Some(Ok(())));
    }
}

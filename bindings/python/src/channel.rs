//! Between the worker, which reads and decodes, and the event loop, which hands out and is woken
//! once per batch.

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

/// So much may wait for a slow reader; then the network has to.
const FULL: usize = 4096;

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

    /// The loop sets the result itself; one that is closed by now, or an interpreter that is going
    /// down, needs nothing.
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

/// What came and was not asked for yet.
#[derive(Default)]
pub(crate) struct Channel {
    state: Mutex<State>,
    /// There is room again.
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
    /// Appends, and wakes the reader. `items` is empty afterwards, with room for the next batch.
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
        // Without the lock: waking wants the interpreter, whose holder may want the lock.
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Everything that is there.
    pub(crate) fn take_all(&self, into: &mut Parcels) {
        let mut state = lock(&self.state);
        std::mem::swap(&mut state.items, into);
        if std::mem::take(&mut state.is_full) {
            self.room.notify_one();
        }
    }

    /// How it ended, if nothing is left before that.
    pub(crate) fn take_end(&self) -> Option<End> {
        let mut state = lock(&self.state);
        // The last batch may have come since the last check, and its end with it.
        if state.items.is_empty() { state.end.take() } else { None }
    }

    /// Has a future woken when something comes. False if something came already.
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

    /// Takes what a machine has, where there is no worker. What has to be done for more, unless
    /// something is there.
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

/// Reads until the end, or until the stream is closed; dropping the packets closes the connection.
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

//! The native client under `CAPClient` and `AsyncCAPClient`.

use std::sync::{Arc, Mutex};

use capstan_client::{CapClient, CapError, PacketStream};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use uuid::Uuid;

use crate::channel::Waiter;
use crate::failure;
use crate::packet::cursor_of;
use crate::request::Prepared;
use crate::runtime::{Engine, closed_error, lock};
use crate::settings::Settings;

/// A client of one server. Private: the public classes are `CAPClient` and `AsyncCAPClient`.
#[pyclass(frozen, weakref, module = "coreason_client._core")]
#[derive(Debug)]
pub(crate) struct Client {
    inner: CapClient,
    engine: Arc<Engine>,
}

impl Drop for Client {
    fn drop(&mut self) {
        // The connections belong to the parent process, so they are not dropped here.
        if self.engine.is_foreign() {
            std::mem::forget((self.inner.clone(), Arc::clone(&self.engine)));
        }
    }
}

/// A call before its begin. A stream takes it over.
#[pyclass(frozen, module = "coreason_client._core")]
#[derive(Debug)]
pub(crate) struct Call {
    packets: Mutex<Option<PacketStream>>,
    pub(crate) engine: Arc<Engine>,
}

impl Call {
    pub(crate) fn take(&self) -> PyResult<PacketStream> {
        lock(&self.packets)
            .take()
            .ok_or_else(|| PyRuntimeError::new_err("the call was taken over before"))
    }
}

#[pymethods]
impl Client {
    #[new]
    fn new(
        py: Python<'_>,
        base_url: &str,
        api_key: &str,
        settings: Settings,
        is_async: bool,
    ) -> PyResult<Self> {
        let inner = CapClient::with_options(base_url, api_key, settings.options()?);
        let inner = inner.map_err(|error| match &error {
            CapError::Connection(e) => PyValueError::new_err(e.message.clone()),
            CapError::Protocol(_) | CapError::Runtime(_) => failure::raised(py, &error),
        })?;
        Ok(Self { inner, engine: Arc::new(Engine::new(is_async)) })
    }

    /// Prepares a run of the default agent or of another one. Nothing is sent yet.
    #[pyo3(signature = (request, agent = None))]
    fn call(&self, request: &Prepared, agent: Option<&str>) -> PyResult<Call> {
        match agent {
            Some(name) => self.open(request.send(&self.inner.with_agent(name))),
            None => self.open(request.send(&self.inner)),
        }
    }

    /// Prepares a viewer from a cursor.
    fn attach(&self, cursor: &str) -> PyResult<Call> {
        self.open(self.inner.attach(cursor_of(cursor)?))
    }

    /// Stops a run.
    fn stop(&self, py: Python<'_>, stream_id: Uuid) -> PyResult<()> {
        self.wait(py, Exchange::Stop(stream_id)).map(drop)
    }

    /// The health of the server, as JSON text.
    fn health(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.wait(py, Exchange::Health)
    }

    /// Stops a run without waiting. Wakes the future when it is done.
    fn begin_stop(
        &self,
        stream_id: Uuid,
        event_loop: Py<PyAny>,
        future: Py<PyAny>,
    ) -> PyResult<Pending> {
        self.begin(Exchange::Stop(stream_id), Waiter::new(event_loop, future))
    }

    /// Requests the health of the server without waiting. Wakes the future when the answer is
    /// there.
    fn begin_health(&self, event_loop: Py<PyAny>, future: Py<PyAny>) -> PyResult<Pending> {
        self.begin(Exchange::Health, Waiter::new(event_loop, future))
    }

    /// Ends every call of this client; no thread is left when it returns.
    fn close(&self, py: Python<'_>) {
        self.engine.close(py);
    }

    /// Whether it was closed.
    #[getter]
    fn is_closed(&self) -> bool {
        self.engine.is_closed()
    }
}

impl Client {
    fn open(&self, packets: PacketStream) -> PyResult<Call> {
        self.engine.check_process()?;
        if self.is_closed() {
            return Err(closed_error());
        }
        Ok(Call { packets: Mutex::new(Some(packets)), engine: Arc::clone(&self.engine) })
    }

    fn wait(&self, py: Python<'_>, exchange: Exchange) -> PyResult<Option<String>> {
        let answer = self.engine.worker()?.wait(py, exchange.run(self.inner.clone()))?;
        answer.map_err(|error| failure::raised(py, &error))
    }

    fn begin(&self, exchange: Exchange, waiter: Waiter) -> PyResult<Pending> {
        let answer = Arc::new(Mutex::new(None));
        let handle = self.engine.worker()?.handle()?;
        let (slot, client, closed) =
            (Arc::clone(&answer), self.inner.clone(), self.engine.closed.clone());
        handle.spawn(async move {
            let done = closed.run_until_cancelled(exchange.run(client)).await;
            *lock(&slot) = done;
            waiter.wake();
        });
        Ok(Pending { answer })
    }
}

/// One request, one answer.
enum Exchange {
    Stop(Uuid),
    Health,
}

impl Exchange {
    async fn run(self, client: CapClient) -> Result<Option<String>, CapError> {
        match self {
            Self::Stop(stream) => client.stop(stream).await.map(|()| None),
            Self::Health => client.health().await.map(|health| serde_json::to_string(&health).ok()),
        }
    }
}

type Answer = Result<Option<String>, CapError>;

/// A pending answer.
#[pyclass(frozen, module = "coreason_client._core")]
#[derive(Debug)]
pub(crate) struct Pending {
    answer: Arc<Mutex<Option<Answer>>>,
}

#[pymethods]
impl Pending {
    /// The answer, or the failure. Called after the future was woken.
    fn result(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let Some(answer) = lock(&self.answer).take() else {
            return Err(closed_error());
        };
        answer.map_err(|error| failure::raised(py, &error))
    }
}

//! Faults: the rows of the catalogue, and their form in each dialect. Python maps exceptions to
//! kinds. Only the catalogue defines what a kind means.

use capstan_protocol::agui::RunErrorForm;
use capstan_protocol::fault::Cause;
use capstan_protocol::{CATALOGUE, Exposure, FaultKind, StreamError, decode};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use serde_json::Value;

use crate::{failure, imports, json};

/// One classified failure.
#[pyclass(frozen, module = "coreason_client._core")]
#[derive(Debug)]
pub(crate) struct Fault(capstan_protocol::Fault);

fn exposure(is_debug: bool) -> Exposure {
    if is_debug { Exposure::Debug } else { Exposure::Production }
}

fn kind_of(code: &str) -> PyResult<FaultKind> {
    FaultKind::parse(code)
        .ok_or_else(|| PyKeyError::new_err(format!("no kind of fault is called {code:?}")))
}

#[pymethods]
impl Fault {
    /// A fault from its row of the catalogue, with the given values in place of the row's.
    #[new]
    #[pyo3(signature = (code, *, message = None, retry_after = None))]
    fn new(code: &str, message: Option<String>, retry_after: Option<f64>) -> PyResult<Self> {
        let mut fault = capstan_protocol::Fault::new(kind_of(code)?);
        if let Some(message) = message {
            fault = fault.with_message(message);
        }
        if let Some(seconds) = retry_after {
            fault = fault.with_retry_after(seconds);
        }
        Ok(Self(fault))
    }

    /// The fault for an upstream's HTTP status.
    #[staticmethod]
    #[pyo3(signature = (status, retry_after = None))]
    fn from_upstream_status(status: u16, retry_after: Option<f64>) -> Self {
        Self(capstan_protocol::Fault::from_upstream_status(status, retry_after))
    }

    /// A fault from a StreamError. A foreign code stays.
    #[staticmethod]
    fn from_stream_error(error: &Bound<'_, PyAny>) -> PyResult<Self> {
        let text = imports::to_json(error)?;
        let error: StreamError =
            decode::from_str(&text).map_err(|e| failure::invalid(error.py(), &e))?;
        Ok(Self(error.into()))
    }

    /// Adds the cause, which leaves the process in debug mode only.
    fn with_cause(&self, error_type: String, chain: Vec<String>) -> Self {
        Self(self.0.clone().with_cause(Cause { error_type, chain }))
    }

    /// The wire code.
    #[getter]
    fn code(&self) -> &str {
        self.0.code()
    }

    /// One of AG-UI's ten codes.
    #[getter]
    fn agui_code(&self) -> &'static str {
        self.0.kind().entry().agui.as_str()
    }

    /// The HTTP status of its response.
    #[getter]
    fn status(&self) -> u16 {
        self.0.status()
    }

    /// The fault as the payload of an ERROR packet.
    fn to_stream_error<'py>(&self, py: Python<'py>, is_debug: bool) -> PyResult<Bound<'py, PyAny>> {
        let text = serde_json::to_string(&self.0.to_stream_error(exposure(is_debug)));
        imports::stream_error_of(py)?.call1((text.unwrap_or_default(),))
    }

    /// The fault as the data of a `user_error` event.
    fn to_user_error<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text = serde_json::to_string(&self.0.to_user_error()).unwrap_or_default();
        imports::user_error_of(py)?.call1((text,))
    }

    /// The fault as AG-UI's RUN_ERROR: its members, and the event's JSON.
    fn to_run_error<'py>(
        &self,
        py: Python<'py>,
        is_debug: bool,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let error = self.0.to_run_error(exposure(is_debug));
        let event = error.to_event(RunErrorForm::Story, None);
        let json = |value: Result<String, serde_json::Error>| value.unwrap_or_default();
        Ok((
            json::read(py, &json(serde_json::to_string(&error)))?,
            json::read(py, &json(serde_json::to_string(&event)))?,
        ))
    }

    /// The fault as RFC 9457 problem details.
    fn to_problem<'py>(&self, py: Python<'py>, is_debug: bool) -> PyResult<Bound<'py, PyAny>> {
        let text = serde_json::to_string(&self.0.to_problem(exposure(is_debug)));
        json::read(py, &text.unwrap_or_default())
    }

    fn __repr__(&self) -> String {
        format!("Fault({:?}, message={:?})", self.0.code(), self.0.message())
    }
}

/// The catalogue's rows.
#[pyfunction]
pub(crate) fn catalogue(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let text =
        serde_json::to_string(CATALOGUE).map_err(|e| PyValueError::new_err(e.to_string()))?;
    let mut rows: Vec<Value> =
        serde_json::from_str(&text).map_err(|e| PyValueError::new_err(e.to_string()))?;
    for (row, entry) in rows.iter_mut().zip(CATALOGUE) {
        if let Value::Object(members) = row {
            members.insert("http_status".into(), entry.agui.http_status().into());
            members.insert("is_head".into(), (entry.agui.head() == entry.kind).into());
            members.insert("is_agui_retryable".into(), entry.agui.is_retryable().into());
        }
    }
    json::read(py, &Value::Array(rows).to_string())
}

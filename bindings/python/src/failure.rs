//! Failures as the exceptions of RFC 004, section 5.

use capstan_client::{CapError, ConnectionError, RuntimeError};
use capstan_protocol::DecodeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{imports, json};

/// The exception of a failed call.
pub(crate) fn raised(py: Python<'_>, error: &CapError) -> PyErr {
    build(py, error).map_or_else(|e| e, PyErr::from_value)
}

fn build<'py>(py: Python<'py>, error: &CapError) -> PyResult<Bound<'py, PyAny>> {
    match error {
        CapError::Connection(e) => connection(py, e),
        CapError::Protocol(e) => imports::protocol_error(py)?.call1((e.to_string(),)),
        CapError::Runtime(e) => runtime(py, e),
    }
}

fn connection<'py>(py: Python<'py>, error: &ConnectionError) -> PyResult<Bound<'py, PyAny>> {
    let deadline = error.deadline.map(|limit| limit.as_secs_f64());
    let kind =
        if error.is_timeout { imports::timeout_error(py) } else { imports::connection_error(py) };
    kind?.call1((error.to_string(), error.retries, &error.address, deadline))
}

fn runtime<'py>(py: Python<'py>, error: &RuntimeError) -> PyResult<Bound<'py, PyAny>> {
    let json = |value: Result<String, serde_json::Error>| value.unwrap_or_default();
    let members = PyDict::new(py);
    members.set_item("status", error.status)?;
    members.set_item("code", error.code())?;
    let severity = imports::error_severity(py)?.call1((error.severity().as_str(),))?;
    members.set_item("severity", severity)?;
    members.set_item("retry_after", error.retry_after.map(|wait| wait.as_secs_f64()))?;
    members.set_item("is_retryable", error.is_retryable())?;
    members.set_item("partial_text", &error.partial_text)?;
    if let Some(stream) = &error.error {
        let stream = imports::stream_error_of(py)?.call1((json(serde_json::to_string(stream)),))?;
        members.set_item("error", stream)?;
    }
    if let Some(problem) = &error.problem {
        members.set_item("problem", json::read(py, &json(serde_json::to_string(problem)))?)?;
    }
    imports::runtime_error(py)?.call((error.to_string(),), Some(&members))
}

/// The exception for an invalid document, with the path of the member.
pub(crate) fn invalid(py: Python<'_>, error: &DecodeError) -> PyErr {
    let made =
        imports::validation_error(py).and_then(|kind| kind.call1((error.path(), error.what())));
    made.map_or_else(|e| e, PyErr::from_value)
}

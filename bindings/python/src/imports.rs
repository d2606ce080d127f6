//! Python objects that the native half needs. They are looked up once and late, so that importing
//! the package imports little else.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

macro_rules! imports {
    ($($name:ident: $module:literal, $attribute:literal;)*) => {$(
        pub(crate) fn $name(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
            static FOUND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            FOUND.import(py, $module, $attribute)
        }
    )*};
}

imports! {
    json_loads: "json", "loads";
    json_dumps: "coreason_client._model", "to_json_text";
    datetime_of: "coreason_client._model", "to_datetime";
    pydantic_schema: "coreason_client._pydantic", "core_schema";
    pydantic_json_schema: "coreason_client._pydantic", "json_schema";
    op_codes: "coreason_client.definitions.presentation", "StreamOpCode";
    event_with: "coreason_client.definitions.presentation", "_event_with";
    stream_error_of: "coreason_client.definitions.presentation", "_stream_error_of";
    user_error_of: "coreason_client.definitions.presentation", "_user_error_of";
    validation_error: "coreason_client.errors", "CAPValidationError";
    timeout_error: "coreason_client.errors", "CAPTimeoutError";
    error_severity: "coreason_client.definitions.presentation", "ErrorSeverity";
    connection_error: "coreason_client.errors", "CAPConnectionError";
    protocol_error: "coreason_client.errors", "CAPProtocolError";
    runtime_error: "coreason_client.errors", "CAPRuntimeError";
    log: "coreason_client._log", "log";
}

/// Any Python value as JSON text: dicts, our models, pydantic's, UUIDs, times and enums.
pub(crate) fn to_json(value: &Bound<'_, PyAny>) -> PyResult<String> {
    json_dumps(value.py())?.call1((value,))?.extract()
}

/// A JSON document from `str` or `bytes`.
pub(crate) fn document(value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = value.extract::<String>() {
        return Ok(text);
    }
    let bytes: Vec<u8> = value.extract()?;
    Ok(String::from_utf8(bytes)?)
}

//! `StreamPacket`: stored as the Rust type, and converted to Python values on access.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::OnceLock;

use capstan_protocol::{Close, Payload, StreamOpCode, StreamPacket, Timestamp};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyType};
use uuid::Uuid;

use crate::{failure, imports, json};

/// One packet of a stream: `stream_id`, `seq`, `op`, `t` and `p`.
///
/// `p` is a `str` for DELTA, a `PresentationEvent` for EVENT, a `StreamError` for ERROR, and a
/// `str` or a `dict` for CLOSE. A payload that does not fit its op raises `ValueError`. Packets are
/// frozen.
#[pyclass(frozen, name = "StreamPacket", module = "coreason_client")]
pub(crate) struct Packet {
    inner: StreamPacket,
    /// Made on the first access, because many readers look at `op` only. Not a `PyOnceLock`, which
    /// would release the interpreter for each packet.
    payload: OnceLock<Py<PyAny>>,
}

impl From<StreamPacket> for Packet {
    fn from(inner: StreamPacket) -> Self {
        Self { inner, payload: OnceLock::new() }
    }
}

/// The member of `StreamOpCode`, looked up once: attribute access on an enum class is slow.
fn op_code(py: Python<'_>, op: StreamOpCode) -> PyResult<Bound<'_, PyAny>> {
    static CODES: PyOnceLock<[Py<PyAny>; 4]> = PyOnceLock::new();
    let [delta, event, error, close] = CODES.get_or_try_init(py, || {
        let kind = imports::op_codes(py)?;
        let code = |op: StreamOpCode| PyResult::Ok(kind.getattr(op.as_str())?.unbind());
        let [delta, event, error, close] = StreamOpCode::ALL.map(code);
        PyResult::Ok([delta?, event?, error?, close?])
    })?;
    let code = match op {
        StreamOpCode::Delta => delta,
        StreamOpCode::Event => event,
        StreamOpCode::Error => error,
        StreamOpCode::Close => close,
    };
    Ok(code.bind(py).clone())
}

fn payload_of(py: Python<'_>, payload: &Payload) -> PyResult<Py<PyAny>> {
    let made = match payload {
        Payload::Delta(text) => PyString::new(py, text).into_any(),
        Payload::Event(raw) => imports::event_with(py)?.call1((json::read(py, raw.get())?,))?,
        Payload::Error(error) => imports::stream_error_of(py)?
            .call1((serde_json::to_string(error).unwrap_or_default(),))?,
        Payload::Close(Close::Reason(reason)) => PyString::new(py, reason).into_any(),
        Payload::Close(Close::Report(report)) => json::read(py, report.get())?,
        Payload::Close(Close::Unstated) => PyString::new(py, Close::COMPLETED).into_any(),
    };
    Ok(made.unbind())
}

/// Decodes one packet. An error names the member.
pub(crate) fn decode(py: Python<'_>, text: &str) -> PyResult<StreamPacket> {
    StreamPacket::decode(text).map_err(|error| failure::invalid(py, &error))
}

#[pymethods]
impl Packet {
    #[new]
    #[pyo3(signature = (*, op, p, stream_id = None, seq = None, t = None))]
    fn new(
        py: Python<'_>,
        op: &Bound<'_, PyAny>,
        p: &Bound<'_, PyAny>,
        stream_id: Option<&Bound<'_, PyAny>>,
        seq: Option<&Bound<'_, PyAny>>,
        t: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let members = PyDict::new(py);
        members.set_item("op", op)?;
        members.set_item("p", p)?;
        // Missing members are filled in first, so that the error about an invalid payload comes
        // first.
        match stream_id {
            Some(id) => members.set_item("stream_id", id)?,
            None => members.set_item("stream_id", Uuid::nil().to_string())?,
        }
        match seq {
            Some(seq) => members.set_item("seq", seq)?,
            None => members.set_item("seq", 0)?,
        }
        match t {
            Some(t) => members.set_item("t", t)?,
            None => members.set_item("t", Timestamp::now().to_string())?,
        }
        let packet = decode(py, &imports::to_json(&members)?)?;
        for (name, given) in [("stream_id", stream_id), ("seq", seq), ("t", t)] {
            if given.is_none() {
                let error = capstan_protocol::DecodeError::new(
                    capstan_protocol::DecodeErrorKind::Missing,
                    name,
                    "required member is absent",
                );
                return Err(failure::invalid(py, &error));
            }
        }
        Ok(packet.into())
    }

    /// The id of the stream.
    #[getter]
    fn stream_id(&self) -> Uuid {
        self.inner.stream_id
    }

    /// The position in the stream: 1, 2, 3, … without gaps.
    #[getter]
    fn seq(&self) -> u64 {
        self.inner.seq
    }

    /// The operation of the packet.
    #[getter]
    fn op<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        op_code(py, self.inner.op())
    }

    /// When it was written, with the offset. The order is that of `seq`.
    #[getter]
    fn t<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        imports::datetime_of(py)?.call1((self.inner.t.to_string(),))
    }

    /// The payload.
    #[getter]
    fn p(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(payload) = self.payload.get() {
            return Ok(payload.clone_ref(py));
        }
        // Two threads may both make one, outside of the lock. The first one is used by both.
        let made = payload_of(py, &self.inner.payload)?;
        Ok(self.payload.get_or_init(|| made).clone_ref(py))
    }

    /// The cursor right after this packet: `<stream_id>:<seq>`.
    #[getter]
    fn cursor(&self) -> String {
        self.inner.cursor().to_string()
    }

    /// The packet as JSON text, in the form of the wire.
    fn to_json(&self) -> String {
        self.inner.to_json()
    }

    /// The packet as a dict of JSON values.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::read(py, &self.inner.to_json())
    }

    /// Decodes JSON text. An invalid member raises `ValueError` with its path.
    #[classmethod]
    fn from_json(_cls: &Bound<'_, PyType>, text: &Bound<'_, PyAny>) -> PyResult<Self> {
        decode(text.py(), &imports::document(text)?).map(Self::from)
    }

    /// Decodes a dict. An invalid member raises `ValueError` with its path.
    #[classmethod]
    fn from_dict(_cls: &Bound<'_, PyType>, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        decode(value.py(), &imports::to_json(value)?).map(Self::from)
    }

    /// Pydantic's method: a dict of Python values, or of JSON values with `mode="json"`.
    #[pyo3(signature = (*, mode = "python"))]
    fn model_dump<'py>(&self, py: Python<'py>, mode: &str) -> PyResult<Bound<'py, PyAny>> {
        if mode == "json" {
            return self.to_dict(py);
        }
        let members = PyDict::new(py);
        members.set_item("stream_id", self.inner.stream_id)?;
        members.set_item("seq", self.inner.seq)?;
        members.set_item("op", self.op(py)?)?;
        members.set_item("t", self.t(py)?)?;
        let payload = self.p(py)?.into_bound(py);
        let is_model = payload.hasattr("model_dump")?;
        members
            .set_item("p", if is_model { payload.call_method0("model_dump")? } else { payload })?;
        Ok(members.into_any())
    }

    /// Pydantic's name for `to_json`.
    fn model_dump_json(&self) -> String {
        self.inner.to_json()
    }

    /// Pydantic's name for `from_dict`. A packet is returned unchanged.
    #[classmethod]
    fn model_validate<'py>(
        cls: &Bound<'py, PyType>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if value.is_instance_of::<Self>() {
            return Ok(value.clone());
        }
        Ok(Bound::new(value.py(), Self::from_dict(cls, value)?)?.into_any())
    }

    /// Pydantic's name for `from_json`.
    #[classmethod]
    fn model_validate_json(cls: &Bound<'_, PyType>, text: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::from_json(cls, text)
    }

    #[classmethod]
    fn __get_pydantic_core_schema__<'py>(
        cls: &Bound<'py, PyType>,
        _source: &Bound<'py, PyAny>,
        _handler: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        imports::pydantic_schema(cls.py())?.call1((cls,))
    }

    #[classmethod]
    fn __get_pydantic_json_schema__<'py>(
        cls: &Bound<'py, PyType>,
        _schema: &Bound<'py, PyAny>,
        _handler: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        imports::pydantic_json_schema(cls.py())?.call1(("StreamPacket",))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().inner == self.inner)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.inner.stream_id, self.inner.seq).hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let payload = self.p(py)?.bind(py).repr()?.to_string();
        let StreamPacket { stream_id, seq, t, .. } = &self.inner;
        let op = self.inner.op();
        Ok(format!("StreamPacket(seq={seq}, op={op}, p={payload}, t={t}, stream_id={stream_id})"))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        Ok((slf.get_type().getattr("from_json")?, (slf.get().inner.to_json(),)))
    }
}

/// Parses a cursor, or the id of a stream for its beginning.
pub(crate) fn cursor_of(text: &str) -> PyResult<capstan_protocol::Cursor> {
    let parsed = text.parse::<capstan_protocol::LastEventId>();
    let cursor = parsed.map_err(|_| {
        PyValueError::new_err(format!(
            "{text:?} is neither a cursor (<stream_id>:<seq>) nor the UUID of a stream"
        ))
    })?;
    Ok(cursor.cursor())
}

//! The agent's side: numbers packets and encodes them as SSE frames.

use std::sync::atomic::{AtomicU64, Ordering};

use capstan_protocol::{Close, Cursor, Payload, StreamPacket, Timestamp, sse};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use uuid::Uuid;

use crate::{imports, packet};

/// Plain agents have no journal to resume from, but readers must not retry at once either.
const RETRY_MS: u32 = 500;

/// Numbers and writes the packets of one stream.
#[pyclass(frozen, module = "coreason_client._core")]
#[derive(Debug)]
pub(crate) struct PacketWriter {
    #[pyo3(get)]
    stream_id: Uuid,
    seq: AtomicU64,
}

impl PacketWriter {
    fn write<'py>(&self, py: Python<'py>, payload: Payload) -> Bound<'py, PyBytes> {
        let seq = self.seq.fetch_add(1, Ordering::Relaxed) + 1;
        let packet = StreamPacket { stream_id: self.stream_id, seq, t: Timestamp::now(), payload };
        let mut frame = Vec::new();
        sse::encode_packet(&packet, &mut frame);
        PyBytes::new(py, &frame)
    }
}

#[pymethods]
impl PacketWriter {
    #[new]
    #[pyo3(signature = (stream_id = None))]
    fn new(stream_id: Option<Uuid>) -> Self {
        Self { stream_id: stream_id.unwrap_or_else(Uuid::now_v7), seq: AtomicU64::new(0) }
    }

    /// The number of written packets.
    #[getter]
    fn seq(&self) -> u64 {
        self.seq.load(Ordering::Relaxed)
    }

    /// The first bytes of a response.
    fn opening<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut bytes = Vec::new();
        sse::encode_opening(&Cursor::start(self.stream_id), RETRY_MS, &mut bytes);
        PyBytes::new(py, &bytes)
    }

    /// The frame of a piece of text.
    fn delta<'py>(&self, py: Python<'py>, text: String) -> Bound<'py, PyBytes> {
        self.write(py, Payload::Delta(text))
    }

    /// The frame of any packet. A payload that does not fit its op raises `ValueError`, and uses no
    /// number.
    fn packet<'py>(
        &self,
        py: Python<'py>,
        op: &Bound<'py, PyAny>,
        p: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let members = PyDict::new(py);
        members.set_item("stream_id", self.stream_id.to_string())?;
        members.set_item("seq", 0)?;
        members.set_item("op", op)?;
        members.set_item("t", Timestamp::now().to_string())?;
        members.set_item("p", p)?;
        let checked = packet::decode(py, &imports::to_json(&members)?)?;
        Ok(self.write(py, checked.payload))
    }

    /// The frame that ends the stream.
    fn close<'py>(&self, py: Python<'py>, reason: String) -> Bound<'py, PyBytes> {
        self.write(py, Payload::Close(Close::Reason(reason)))
    }
}

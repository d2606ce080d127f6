//! The native half of the Python package `coreason_client`: the client's loop, packets, validation,
//! faults and assistant frames. Parts that are simpler in Python (exceptions, request models, the
//! agent side) are in `python/coreason_client`.
//!
//! It decides nothing about the protocol: `capstan-client` and `capstan-protocol` do.

mod assistant;
mod async_stream;
mod channel;
mod client;
mod failure;
mod fault;
mod imports;
mod json;
mod machine;
mod model;
mod packet;
mod packet_writer;
mod parcels;
mod reader;
mod request;
mod runtime;
mod settings;
mod sync_stream;

use pyo3::prelude::*;

/// The native half of `coreason_client`. Private: import from the package.
#[pymodule]
mod _core {
    #[allow(unused_imports)]
    use super::*;
    #[pymodule_export]
    use crate::assistant::parse_frame;
    #[pymodule_export]
    use crate::async_stream::{AsyncStream, Ready};
    #[pymodule_export]
    use crate::channel::wake;
    #[pymodule_export]
    use crate::client::{Call, Client, Pending};
    #[pymodule_export]
    use crate::fault::{Fault, catalogue};
    #[pymodule_export]
    use crate::machine::Machine;
    #[pymodule_export]
    use crate::model::check;
    #[pymodule_export]
    use crate::packet::Packet;
    #[pymodule_export]
    use crate::packet_writer::PacketWriter;
    #[pymodule_export]
    use crate::request::{Prepared, prepare, question};
    #[pymodule_export]
    use crate::runtime::wait_for_threads;
    #[pymodule_export]
    use crate::sync_stream::Stream;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

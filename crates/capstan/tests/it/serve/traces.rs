//! The spans that an OpenTelemetry collector receives of runs: one for each run, for any number of
//! requests, and without content.

mod collector;
mod delivery;
mod spans;
mod upstream;

use std::path::Path;

use crate::serve::process::Server;
use collector::Collector;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// The trace of a client that comes later.
const OTHER_TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const OTHER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A server that exports to the collector, with more variables if need be.
fn traced(folder: &Path, collector: &Collector, env: &[(&str, &str)]) -> Server {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.peer.url.as_str());
    Server::start_with(folder, &[&[endpoint], env].concat())
}

/// Ends it, which sends what is left; its log.
fn end(server: Server) -> String {
    server.signal("TERM");
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0), "{log}");
    log
}

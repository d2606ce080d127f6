//! Logs: structured lines on standard error, never a body or a key, nor the inside unless it was asked for.

use std::io::{self, IsTerminal as _};

use capstan_gateway::SPANS;
use capstan_protocol::Exposure;
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt, registry};

use super::traces::SpanLayer;

/// Starts logging; `CAPSTAN_LOG` filters (`info` by default), and a pipe gets JSON. Spans of runs are not for the log.
pub(crate) fn start(exposure: Exposure, spans: Option<SpanLayer>) {
    let filter = EnvFilter::try_from_env("CAPSTAN_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let filter = filter.and(filter_fn(|metadata| metadata.target() != SPANS));
    let lines = fmt::layer().with_writer(io::stderr).with_target(false);
    let lines = if io::stderr().is_terminal() {
        lines.compact().boxed()
    } else {
        lines.json().flatten_event(true).with_span_list(false).boxed()
    };
    registry().with(spans).with(lines.with_filter(filter)).init();
    if exposure == Exposure::Production {
        // Where, but not what: its words may hold what was said.
        std::panic::set_hook(Box::new(|panic| {
            let at = panic.location().map(ToString::to_string);
            tracing::error!(at, "a task panicked; --debug shows why");
        }));
    }
}

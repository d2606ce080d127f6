//! Logs: structured lines on standard error, never a body or a key, nor the inside unless it was asked for.

use std::io::{self, IsTerminal as _};

use capstan_protocol::Exposure;
use tracing_subscriber::EnvFilter;

/// Starts logging; `CAPSTAN_LOG` filters (`info` by default), and a pipe gets JSON.
pub(crate) fn start(exposure: Exposure) {
    let filter = EnvFilter::try_from_env("CAPSTAN_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    if io::stderr().is_terminal() {
        builder.compact().init();
    } else {
        builder.json().flatten_event(true).with_span_list(false).init();
    }
    if exposure == Exposure::Production {
        std::panic::set_hook(Box::new(|_| tracing::error!("a task panicked; --debug shows where")));
    }
}

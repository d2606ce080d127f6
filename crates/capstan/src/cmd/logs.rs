//! Logs: structured lines on standard error, never a body or a key.

use std::io::{self, IsTerminal as _};
use std::panic::PanicHookInfo;

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
    log_panics(exposure);
}

/// A panic is a line like any other, with its place: in the log, which is the operator's own. In debug mode the usual
/// words follow, with the backtrace if one is asked for.
fn log_panics(exposure: Exposure) {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tracing::error!(
            place = panic.location().map(tracing::field::display),
            words = words(panic),
            "a task panicked"
        );
        if exposure == Exposure::Debug {
            usual(panic);
        }
    }));
}

fn words(panic: &PanicHookInfo<'_>) -> Option<String> {
    /// Longer ones are somebody's data.
    const LONGEST: usize = 500;
    let payload = panic.payload();
    let words = payload.downcast_ref::<&str>().copied();
    let words = words.or_else(|| payload.downcast_ref::<String>().map(String::as_str))?;
    Some(words.chars().take(LONGEST).collect())
}

//! Logs: structured lines on standard error, never a body or a key.

use std::fmt::Debug;
use std::io::{self, IsTerminal as _};
use std::panic::PanicHookInfo;

use capstan_gateway::SPANS;
use capstan_protocol::Exposure;
use tracing::field::Field;
use tracing_subscriber::filter::{FilterExt as _, LevelFilter, Targets, filter_fn};
use tracing_subscriber::fmt::format::{self, Writer};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, registry};

use super::traces::SpanLayer;

/// Starts logging. `CAPSTAN_LOG` filters (`info` by default), and a pipe gets JSON. The log omits
/// spans of runs.
pub(crate) fn start(exposure: Exposure, spans: Option<SpanLayer>) {
    let filter = filter().and(filter_fn(|metadata| metadata.target() != SPANS));
    let lines = fmt::layer().with_writer(io::stderr).with_target(false);
    let lines = if io::stderr().is_terminal() {
        lines.compact().fmt_fields(format::debug_fn(write_field)).boxed()
    } else {
        // Collectors recognise audit lines by their target.
        lines.json().with_target(true).flatten_event(true).with_span_list(false).boxed()
    };
    registry().with(spans).with(lines.with_filter(filter)).init();
    log_panics(exposure);
}

/// Parses levels by target, such as `info` or `capstan_gateway=debug`. Other targets than the named
/// ones still log errors.
fn filter() -> Targets {
    let filter = std::env::var("CAPSTAN_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let Some(targets) = filter else { return Targets::new().with_default(LevelFilter::INFO) };
    if targets.default_level().is_some() {
        targets
    } else {
        targets.with_default(LevelFilter::ERROR)
    }
}

/// Writes a field to a terminal. Its content may come from a client: a line end would forge a line,
/// and an escape sequence could control the terminal.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let text = harmless(&format!("{value:?}"));
    if field.name() == "message" {
        write!(writer, "{text}")
    } else {
        write!(writer, " {}={text}", field.name())
    }
}

/// Escapes control characters, and characters that change the direction of text.
fn harmless(text: &str) -> String {
    let is_harmful = |c: char| {
        c.is_control()
            || matches!(c,
            '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmful(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Logs a panic with its place. In debug mode Rust's own message follows, with the backtrace if one
/// is configured.
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
    /// The longest panic message. A longer one probably contains data of a client.
    const LONGEST: usize = 500;
    let payload = panic.payload();
    let words = payload.downcast_ref::<&str>().copied();
    let words = words.or_else(|| payload.downcast_ref::<String>().map(String::as_str))?;
    Some(words.chars().take(LONGEST).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_as_text() {
        let wrong = "run\n2026-01-01 ERROR forged \u{1b}[2J\r\u{7}\u{9b}\u{202e}";
        let shown = harmless(wrong);
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        assert_eq!(shown, r"run\n2026-01-01 ERROR forged \u{1b}[2J\r\u{7}\u{9b}\u{202e}");
        assert_eq!(harmless("Grüße, 世界"), "Grüße, 世界");
    }
}

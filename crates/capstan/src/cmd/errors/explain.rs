//! Explains one kind of fault: meaning, cause, remedy, and its form in each protocol.

use std::io::{self, Write};

use capstan_protocol::agui::RunErrorForm;
use capstan_protocol::fault::Entry;
use capstan_protocol::{ErrorDomain, ErrorSeverity, Exposure, Fault};
use owo_colors::OwoColorize as _;
use serde_json::{Value, json};

/// Says in a few words whether and when to retry.
pub(super) fn retry(entry: &Entry) -> String {
    match (entry.retryable, entry.retry_after) {
        (true, Some(seconds)) => format!("after {seconds} s"),
        (true, None) => "yes".into(),
        (false, _) => "no".into(),
    }
}

fn cause_of(domain: ErrorDomain) -> &'static str {
    match domain {
        ErrorDomain::Client => "the caller: the request itself",
        ErrorDomain::System => "the platform: the gateway or the agent",
        ErrorDomain::Llm => "the model provider, or another upstream",
        ErrorDomain::Tool => "a tool that the agent used",
        ErrorDomain::Security => "authentication, authorization or governance",
    }
}

fn what_next(severity: ErrorSeverity) -> &'static str {
    match severity {
        ErrorSeverity::Fatal => "FATAL: the stream ends; a client raises it",
        ErrorSeverity::Transient => "TRANSIENT: a client waits and sends the same request again",
        ErrorSeverity::Warning => "WARNING: the stream continues",
    }
}

/// The fault in each protocol, as an example.
fn dialects(entry: &Entry) -> [(&'static str, Value); 5] {
    let fault = Fault::new(entry.kind);
    let run_error = fault.to_run_error(Exposure::Production).to_event(RunErrorForm::Story, None);
    let value = |v: serde_json::Result<Value>| v.unwrap_or_default();
    [
        (
            "CAP: an ERROR packet's p",
            value(serde_json::to_value(fault.to_stream_error(Exposure::Production))),
        ),
        ("AG-UI: RUN_ERROR", value(serde_json::to_value(run_error))),
        (
            "HTTP: application/problem+json",
            value(serde_json::to_value(fault.to_problem(Exposure::Production))),
        ),
        ("CAP: a user_error event's data", value(serde_json::to_value(fault.to_user_error()))),
        ("assistant message: error", Value::from(fault.to_assistant_error().as_str())),
    ]
}

pub(super) fn json(entry: &Entry) -> Value {
    let [stream_error, run_error, problem, user_error, assistant_error] =
        dialects(entry).map(|(_, value)| value);
    let mut whole = serde_json::to_value(entry).unwrap_or_default();
    if let Some(members) = whole.as_object_mut() {
        members.insert(
            "dialects".into(),
            json!({
                "stream_error": stream_error, "run_error": run_error, "problem": problem,
                "user_error": user_error, "assistant_error": assistant_error,
            }),
        );
    }
    whole
}

pub(super) fn write(out: &mut impl Write, entry: &Entry) -> io::Result<()> {
    writeln!(out, "{}  {}", entry.code.bold(), entry.title)?;
    writeln!(out, "\n  {}", entry.meaning)?;
    let rows = [
        ("do", entry.remedy.to_owned()),
        ("cause", format!("{} ({})", cause_of(entry.domain), entry.domain.as_str())),
        ("then", what_next(entry.severity).to_owned()),
        ("retry", retry(entry)),
        ("HTTP", format!("{} {}", entry.status, entry.problem_type())),
        ("AG-UI", format!("{} {}", entry.agui, entry.agui.http_status())),
    ];
    for (name, text) in rows {
        writeln!(out, "  {}  {text}", format!("{name:<5}").dimmed())?;
    }
    for (name, example) in dialects(entry) {
        writeln!(out, "\n  {}\n    {example}", name.cyan())?;
    }
    Ok(())
}

//! Prints checks for people: one line for each, then the evidence, then the totals.

use std::io::{self, Write as _};

use capstan_check::{Check, Environment, Judged, Progress, Report, Summary, Verdict};
use owo_colors::OwoColorize as _;

/// The width of the column of ids; every id of the table fits.
const ID: usize = 22;
const CLAUSE: usize = 31;

/// Lists every check, its promise and its requirements.
pub(super) fn list(checks: &[Check]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for check in checks {
        writeln!(out, "{:ID$} {:CLAUSE$} {}", check.id, check.clause, check.title)?;
    }
    Ok(())
}

/// Prints one line at a time, to show progress. A closed pipe is no error.
pub(super) fn progress(progress: &Progress<'_>) {
    let mut out = anstream::stdout().lock();
    let _ = match progress {
        Progress::Begins(environment, checks, runs) => {
            writeln!(out, "{}\n", head(environment, *checks, *runs))
        }
        Progress::Judged(check) => writeln!(out, "{}", line(check)),
    };
}

fn head(environment: &Environment, checks: usize, runs: usize) -> String {
    let place = |face: &str, path: &Option<String>| match path.as_deref() {
        None => format!("no {face}"),
        Some("") => format!("{face} at /"),
        Some(path) => format!("{face} at {path}"),
    };
    let mut places = vec![place("CAP", &environment.assist), place("AG-UI", &environment.agui)];
    places.extend(environment.others.iter().cloned());
    let demo = if environment.is_demo { ", the demo agent" } else { "" };
    let (checks, runs) = (count(checks, "check"), count(runs, "run"));
    format!("{}: {}{demo}; {checks}, {runs} to be started", environment.url, places.join(", "))
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn line(check: &Judged) -> String {
    let (mark, note) = match &check.verdict {
        Verdict::Passed => ("passed ".green().to_string(), check.title.to_owned()),
        Verdict::Broken { .. } => ("BROKEN ".red().bold().to_string(), check.title.to_owned()),
        Verdict::Skipped { reason } => {
            ("skipped".yellow().to_string(), reason.dimmed().to_string())
        }
    };
    format!("{mark}  {:ID$} {:CLAUSE$} {note}", check.id, check.clause)
}

/// Prints evidence and totals at the end.
pub(super) fn report(report: &Report, is_json: bool) -> io::Result<()> {
    if is_json {
        let json = serde_json::to_string_pretty(report).unwrap_or_default();
        return writeln!(io::stdout().lock(), "{json}");
    }
    let mut out = anstream::stdout().lock();
    for check in &report.checks {
        if let Verdict::Broken { evidence } = &check.verdict {
            let name = check.id.red().bold().to_string();
            writeln!(out, "\n{name}  {}: {}", check.source(), check.title)?;
            writeln!(
                out,
                "  sent      {}\n  expected  {}\n  came      {}",
                evidence.sent, evidence.expected, evidence.came
            )?;
        }
    }
    let Summary { passed, broken, skipped, .. } = report.summary;
    writeln!(out, "\n{passed} passed, {broken} broken, {skipped} skipped")
}

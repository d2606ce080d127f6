//! `capstan errors`: prints the fault catalogue, or explains one kind.

mod explain;

use std::io::{self, Write};
use std::process::ExitCode;

use capstan_protocol::assistant::AssistantError;
use capstan_protocol::fault::Entry;
use capstan_protocol::{AguiErrorCode, CATALOGUE, Fault, FaultKind, nearest};
use comfy_table::{ContentArrangement, Table, presets};
use owo_colors::OwoColorize as _;

use super::Failure;

/// Show the fault catalogue, or explain one fault
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A code in any spelling (rate_limit_exceeded, RATE_LIMITED, rate-limited, rate_limit) or an
    /// HTTP status
    code: Option<String>,

    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut out = anstream::AutoStream::auto(io::stdout().lock());
        let entries = match &self.code {
            None => CATALOGUE.iter().collect(),
            Some(code) => lookup(code)?,
        };
        match (self.json, self.code) {
            (true, None) => writeln!(out, "{}", pretty(&entries))?,
            (true, Some(_)) => writeln!(
                out,
                "{}",
                pretty(&entries.iter().map(|e| explain::json(e)).collect::<Vec<_>>())
            )?,
            (false, None) => overview(&mut out, &entries)?,
            (false, Some(code)) => details(&mut out, &code, &entries)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn pretty(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// Finds the rows for a code or status; the best match comes first.
fn lookup(code: &str) -> Result<Vec<&'static Entry>, Failure> {
    if let Ok(status) = code.parse::<u16>() {
        let found: Vec<_> = CATALOGUE.iter().filter(|e| e.status == status).collect();
        let statuses: std::collections::BTreeSet<_> = CATALOGUE.iter().map(|e| e.status).collect();
        let known = statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        let wrong = || {
            Failure::usage(format!("no fault answers with status {status}"))
                .with_help(format!("known are {known}"))
        };
        return if found.is_empty() { Err(wrong()) } else { Ok(found) };
    }
    if let Ok(agui) = code.parse::<AguiErrorCode>() {
        let head = agui.head();
        let mut family: Vec<_> = CATALOGUE.iter().filter(|e| e.agui == agui).collect();
        family.sort_by_key(|e| e.kind != head);
        return Ok(family);
    }
    if let Some(kind) = FaultKind::parse(code) {
        return Ok(vec![kind.entry()]);
    }
    if let word @ (AssistantError::AuthenticationFailed
    | AssistantError::BillingError
    | AssistantError::RateLimit
    | AssistantError::ServerError
    | AssistantError::Unknown
    | AssistantError::OauthOrgNotAllowed
    | AssistantError::AccountOnHold
    | AssistantError::VerificationRequired
    | AssistantError::Overloaded
    | AssistantError::ModelNotFound
    | AssistantError::MaxOutputTokens
    | AssistantError::CloudCredentialError) = AssistantError::from(code)
    {
        return Ok(vec![Fault::from_assistant_error(&word, None).kind().entry()]);
    }
    Err(unknown(code))
}

fn unknown(code: &str) -> Failure {
    let known =
        CATALOGUE.iter().map(|e| e.code).chain(AguiErrorCode::ALL.iter().map(|c| c.as_str()));
    let message = match nearest(code, known) {
        Some(close) => format!("unknown code {code:?}, did you mean {close}?"),
        None => format!("unknown code {code:?}"),
    };
    Failure::usage(message).with_help("`capstan errors` shows all of them")
}

fn overview(out: &mut impl Write, entries: &[&Entry]) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["code", "AG-UI", "HTTP", "severity", "domain", "retry", "title"]);
    for entry in entries {
        table.add_row([
            entry.code.to_owned(),
            entry.agui.to_string(),
            entry.status.to_string(),
            entry.severity.to_string(),
            entry.domain.as_str().to_owned(),
            explain::retry(entry),
            entry.title.to_owned(),
        ]);
    }
    writeln!(out, "{table}")?;
    writeln!(out, "{}", "`capstan errors CODE` explains one; docs/errors.md has them all.".dimmed())
}

fn details(out: &mut impl Write, code: &str, entries: &[&'static Entry]) -> io::Result<()> {
    let Some((first, others)) = entries.split_first() else { return Ok(()) };
    explain::write(out, first)?;
    if others.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = others.iter().map(|e| e.code).collect();
    writeln!(out, "\n{code} also covers {}.", names.join(", "))
}

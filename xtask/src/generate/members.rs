//! The tables of docs/agents.md: what becomes of each documented member of a request.

use std::fmt::Write as _;

use capstan_protocol::Dialect;
use capstan_upstream::fates::{Fate, rows};

const DIALECTS: [(Dialect, &str); 3] = [
    (Dialect::OpenaiChat, "Chat Completions"),
    (Dialect::OpenaiResponses, "Responses"),
    (Dialect::AnthropicMessages, "Messages"),
];

/// One table for each protocol, a column for each kind of agent.
pub(super) fn markdown() -> String {
    let mut out = String::new();
    for (from, name) in DIALECTS {
        let _ = writeln!(out, "### A request of {name}\n");
        let heads = DIALECTS.map(|(_, to)| format!("to {to}")).join(" | ");
        let _ = writeln!(out, "| member | {heads} |\n|---|---|---|---|");
        for (member, fate) in rows(from) {
            let cells = DIALECTS.map(|(to, _)| cell(from, to, *fate)).join(" | ");
            let _ = writeln!(out, "| `{member}` | {cells} |");
        }
        out.push('\n');
    }
    out
}

fn cell(from: Dialect, to: Dialect, fate: Fate) -> &'static str {
    match fate {
        Fate::Gateway => "the gateway decides",
        Fate::Refused => "refused by name",
        Fate::OwnOnly if from == to => "as it came",
        Fate::OwnOnly => "refused by name",
        Fate::Translated(_) if from == to => "as it came",
        Fate::Translated(known) if known.contains(&to) => "translated",
        Fate::Translated(_) => "left out, with a warning",
    }
}

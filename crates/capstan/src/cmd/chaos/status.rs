//! The output in a terminal: one status line, redrawn, and the totals at the end.

use std::time::Duration;

use capstan_chaos::{Handle, Tally};
use owo_colors::OwoColorize as _;

/// How often the status line is redrawn.
const REDRAW: Duration = Duration::from_millis(200);
/// Moves to the start of the line, and erases it.
const OVER: &str = "\r\u{1b}[2K";

/// Draws the status line until dropped.
pub(super) async fn follow(handle: &Handle) {
    let mut ticks = tokio::time::interval(REDRAW);
    loop {
        ticks.tick().await;
        let tally = handle.tally();
        anstream::eprint!("{OVER}{} {}", "chaos".bold(), passed(&tally));
        if tally.faults() > 0 {
            anstream::eprint!("  {}", broken(&tally).red());
        }
    }
}

/// Prints the totals.
pub(super) fn sum_up(tally: &Tally, seed: u64, is_terminal: bool) {
    let over = if is_terminal { OVER } else { "" };
    let broken = if tally.faults() > 0 { broken(tally) } else { "no faults".to_owned() };
    anstream::eprintln!("{over}{} {}; {broken}; seed {seed}", "chaos".bold(), passed(tally));
}

fn passed(tally: &Tally) -> String {
    let Tally { connections, streams, packets, .. } = tally;
    format!("connections {connections}, streams {streams}, packets {packets}")
}

/// Names only the faults that happened, so that the line fits a terminal.
fn broken(tally: &Tally) -> String {
    let kinds = tally.kinds().into_iter().filter(|(_, count)| *count > 0);
    let kinds: Vec<String> = kinds.map(|(name, count)| format!("{name} {count}")).collect();
    format!("faults {}: {}", tally.faults(), kinds.join(", "))
}

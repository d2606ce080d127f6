//! What a person at the terminal sees: one line that is drawn over and over, and the sum at the
//! end.

use std::time::Duration;

use capstan_chaos::{Handle, Tally};
use owo_colors::OwoColorize as _;

/// Often enough to seem live.
const REDRAW: Duration = Duration::from_millis(200);
/// To the start of the line, and erase it.
const OVER: &str = "\r\u{1b}[2K";

/// Draws the line until dropped.
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

/// The last words.
pub(super) fn sum_up(tally: &Tally, seed: u64, is_terminal: bool) {
    let over = if is_terminal { OVER } else { "" };
    let broken = if tally.faults() > 0 { broken(tally) } else { "no faults".to_owned() };
    anstream::eprintln!("{over}{} {}; {broken}; seed {seed}", "chaos".bold(), passed(tally));
}

fn passed(tally: &Tally) -> String {
    let Tally { connections, streams, packets, .. } = tally;
    format!("connections {connections}, streams {streams}, packets {packets}")
}

/// Only the kinds that there were: a line must fit a terminal.
fn broken(tally: &Tally) -> String {
    let kinds = tally.kinds().into_iter().filter(|(_, count)| *count > 0);
    let kinds: Vec<String> = kinds.map(|(name, count)| format!("{name} {count}")).collect();
    format!("faults {}: {}", tally.faults(), kinds.join(", "))
}

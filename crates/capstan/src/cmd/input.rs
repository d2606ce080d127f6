//! The text of an argument or a pipe.

use std::io::{self, IsTerminal as _};

use super::Failure;

/// Returns the argument. It reads standard input to its end for `-`, or if there is no argument and
/// a pipe.
pub(crate) fn text(argument: Option<String>) -> Result<String, Failure> {
    match argument {
        Some(text) if text == "-" => piped(),
        Some(text) if text.trim().is_empty() => Err(nothing("the message is empty")),
        Some(text) => Ok(text),
        None if io::stdin().is_terminal() => Err(nothing("there is no message")),
        None => piped(),
    }
}

/// Reads the pipe without its last line end.
fn piped() -> Result<String, Failure> {
    let text = io::read_to_string(io::stdin())?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.trim().is_empty() {
        Err(nothing("standard input is empty"))
    } else {
        Ok(text.to_owned())
    }
}

fn nothing(why: &str) -> Failure {
    Failure::usage(why).with_help("give it as an argument, or through a pipe")
}

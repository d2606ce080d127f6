//! What a person says as an argument or through a pipe: one text, whole.

use std::io::{self, IsTerminal as _};

use super::Failure;

/// The argument; standard input to its end for `-`, or if there is none and a pipe instead.
pub(crate) fn text(argument: Option<String>) -> Result<String, Failure> {
    match argument {
        Some(text) if text == "-" => piped(),
        Some(text) if text.trim().is_empty() => Err(nothing("the message is empty")),
        Some(text) => Ok(text),
        None if io::stdin().is_terminal() => Err(nothing("there is no message")),
        None => piped(),
    }
}

/// Its last line end is the pipe's, not the text's.
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

//! The demo's commands. To add one: a row here, a variant, and what it does in `perform`.

use std::fmt::Write as _;
use std::time::Duration;

use capstan_protocol::FaultKind;
use capstan_protocol::fault::Validation;

use crate::args::{Args, Syntax, did_you_mean, short};

/// More deltas than any test or bench uses; a higher number is a typing mistake.
const MAX_DELTAS: u32 = 1_000_000;
/// Enough to see an answer begin before it breaks.
const DEFAULT_AFTER: u32 = 3;

/// The commands of a user.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Command {
    Help,
    Echo { text: String },
    Tokens { count: u32, delay: Duration },
    Fault { kind: FaultKind, after: u32, retry_after: Option<Duration> },
    Warn,
    UserError,
    Events,
    Flaky { failures: u32, wait: Option<Duration> },
    Diverge,
    Ask { question: Option<String>, expires: Option<Duration> },
    Hang,
    Panic,
}

/// A command's name, syntax and parser.
struct Row {
    name: &'static str,
    usage: &'static str,
    about: &'static str,
    options: &'static [&'static str],
    read: fn(&mut Args<'_>) -> Result<Command, Validation>,
}

impl Row {
    /// A command that takes no arguments.
    const fn plain(
        name: &'static str,
        about: &'static str,
        read: fn(&mut Args<'_>) -> Result<Command, Validation>,
    ) -> Self {
        Self { name, usage: name, about, options: &[], read }
    }
}

/// Every command.
static COMMANDS: &[Row] = &[
    Row::plain("/help", "shows this list", |_| Ok(Command::Help)),
    Row {
        name: "/echo",
        usage: "/echo TEXT",
        about: "says TEXT, as it is",
        options: &[],
        read: |args| Ok(Command::Echo { text: args.text("TEXT")? }),
    },
    Row {
        name: "/tokens",
        usage: "/tokens N [--delay 10ms]",
        about: "streams exactly N deltas",
        options: &["--delay"],
        read: |args| {
            let delay = args.duration_option("--delay")?.unwrap_or_default();
            Ok(Command::Tokens { count: args.number("N", MAX_DELTAS)?, delay })
        },
    },
    Row {
        name: "/fault",
        usage: "/fault CODE [--after N] [--retry-after S]",
        about: "ends the run with any fault of the catalogue, in any spelling, after N deltas (3)",
        options: &["--after", "--retry-after"],
        read: |args| {
            let after = args.number_option("--after", MAX_DELTAS)?.unwrap_or(DEFAULT_AFTER);
            let retry_after = args.wait_option("--retry-after")?;
            Ok(Command::Fault { kind: args.kind("CODE")?, after, retry_after })
        },
    },
    Row::plain("/warn", "sends a WARNING in the middle and goes on", |_| Ok(Command::Warn)),
    Row::plain("/user-error", "tells of a tool that failed (503, retryable) and goes on", |_| {
        Ok(Command::UserError)
    }),
    Row::plain("/events", "shows one of each presentation event", |_| Ok(Command::Events)),
    Row {
        name: "/flaky",
        usage: "/flaky N [--wait S]",
        about: "the first N attempts fail half-way, then the same text completes",
        options: &["--wait"],
        read: |args| {
            let wait = args.wait_option("--wait")?;
            Ok(Command::Flaky { failures: args.number("N", MAX_DELTAS)?, wait })
        },
    },
    Row::plain("/diverge", "fails half-way; the second attempt says something else", |_| {
        Ok(Command::Diverge)
    }),
    Row {
        name: "/ask",
        usage: "/ask [QUESTION] [--expires S]",
        about: "asks you, and goes on with your answer",
        options: &["--expires"],
        read: |args| {
            let expires = args.wait_option("--expires")?;
            Ok(Command::Ask { question: args.rest(), expires })
        },
    },
    Row::plain("/hang", "says nothing until it is stopped", |_| Ok(Command::Hang)),
    Row::plain("/panic", "panics, as a broken agent would", |_| Ok(Command::Panic)),
];

impl Command {
    /// Reads a message. `None` if it is no command but plain text.
    pub(super) fn parse(message: &str) -> Result<Option<Self>, Validation> {
        let message = message.trim();
        let (name, typed) = message.split_once(char::is_whitespace).unwrap_or((message, ""));
        if !name.starts_with('/') {
            return Ok(None);
        }
        let row = COMMANDS
            .iter()
            .find(|row| row.name.eq_ignore_ascii_case(name))
            .ok_or_else(|| unknown(name))?;
        let &Row { name, usage, options, .. } = row;
        let mut args = Args::new(Syntax { name, usage, options }, typed.trim_start())?;
        let command = (row.read)(&mut args)?;
        args.finish()?;
        Ok(Some(command))
    }
}

fn unknown(name: &str) -> Validation {
    let hint = did_you_mean(name, COMMANDS.iter().map(|row| row.name));
    let message = format!(
        "{} is not a command of the demo agent.{hint} `/help` lists them all.",
        short(name)
    );
    Validation { message }
}

/// The answer to `/help`.
pub(super) fn help() -> String {
    let mut text = "I am the demo agent. Ask me anything, or try a command:\n\n".to_owned();
    for Row { usage, about, .. } in COMMANDS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "- `{usage}` {about}");
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Command {
        Command::parse(text).unwrap().unwrap()
    }

    #[test]
    fn help_lists_every_command_with_its_options() {
        let help = help();
        for row in COMMANDS {
            assert!(help.contains(&format!("`{}`", row.usage)), "{}", row.name);
            assert!(row.usage.starts_with(row.name));
            assert!(row.options.iter().all(|option| row.usage.contains(option)), "{}", row.name);
        }
    }

    #[test]
    fn plain_text_is_no_command() {
        for text in ["", "  ", "hello", "what does /help do?", "-- /help"] {
            assert_eq!(Command::parse(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn options_stand_anywhere_and_may_be_written_with_an_equals_sign() {
        let expected = Command::Tokens { count: 5, delay: Duration::from_millis(10) };
        for text in
            ["/tokens 5 --delay 10ms", "/tokens --delay 10ms 5", " /TOKENS 5\t--delay=10ms\n"]
        {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn an_echo_keeps_its_white_space() {
        let text = "a  b\u{2028}c\td";
        assert_eq!(parse(&format!(" /echo {text} ")), Command::Echo { text: text.to_owned() });
    }

    #[test]
    fn omitted_options_have_defaults() {
        assert_eq!(parse("/tokens 5"), Command::Tokens { count: 5, delay: Duration::ZERO });
        let fault = Command::Fault { kind: FaultKind::Timeout, after: 3, retry_after: None };
        assert_eq!(parse("/fault timeout"), fault);
        assert_eq!(parse("/flaky 2"), Command::Flaky { failures: 2, wait: None });
    }

    #[test]
    fn waits_are_plain_seconds_or_have_a_unit() {
        for (text, millis) in [("2", 2_000), ("1.5", 1_500), ("2s", 2_000), ("500ms", 500)] {
            let wait = Some(Duration::from_millis(millis));
            assert_eq!(
                parse(&format!("/flaky 1 --wait {text}")),
                Command::Flaky { failures: 1, wait }
            );
        }
    }

    #[test]
    fn a_mistake_is_answered_with_its_place_and_its_remedy() {
        for (text, place, remedy) in [
            ("/tokns 5", "`/tokns`", "Did you mean `/tokens`?"),
            ("/", "`/`", "`/help` lists them all"),
            ("/xyzzy", "`/xyzzy`", "`/help` lists them all"),
            ("/echo", "TEXT: it is missing", "Write `/echo TEXT`"),
            ("/tokens", "N: it is missing", "Write `/tokens N [--delay 10ms]`"),
            ("/tokens many", "N: `many`", "a whole number from 0 to 1000000"),
            ("/tokens 1000001", "N: `1000001`", "from 0 to 1000000"),
            ("/tokens -1", "N: `-1`", "a whole number"),
            ("/tokens 5 6", "`6`", "one argument too many"),
            ("/tokens 5 --dely 1ms", "`--dely`", "Did you mean `--delay`?"),
            ("/tokens 5 --delay", "--delay: its value is missing", "Write `/tokens"),
            ("/tokens 5 --delay 10", "--delay: `10`", "`10ms`"),
            ("/tokens 5 --delay 1s --delay 2s", "--delay: it is given twice", "Write `/tokens"),
            ("/fault", "CODE: it is missing", "Write `/fault CODE"),
            (
                "/fault rate_limit_exeeded",
                "CODE: `rate_limit_exeeded`",
                "Did you mean `rate_limit_exceeded`?",
            ),
            ("/fault timeout --after x", "--after: `x`", "a whole number"),
            ("/fault timeout --retry-after soon", "--retry-after: `soon`", "a number of seconds"),
            ("/flaky", "N: it is missing", "Write `/flaky N [--wait S]`"),
            ("/hang on", "`on`", "Write `/hang`"),
            ("/panic --now", "`--now`", "Write `/panic`"),
        ] {
            let Validation { message } = Command::parse(text).unwrap_err();
            assert!(message.contains(place) && message.contains(remedy), "{text} -> {message}");
        }
    }

    #[test]
    fn a_long_mistake_is_not_quoted_in_full() {
        let Validation { message } =
            Command::parse(&format!("/{}", "x".repeat(1_000_000))).unwrap_err();
        assert!(message.len() < 300);
    }

    #[test]
    fn a_million_deltas_are_the_most() {
        assert_eq!(
            parse("/tokens 1000000"),
            Command::Tokens { count: 1_000_000, delay: Duration::ZERO }
        );
        assert!(Command::parse("/tokens 1000001").is_err());
    }
}

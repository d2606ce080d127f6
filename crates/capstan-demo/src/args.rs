//! The arguments of a command: words and `--options`, and errors about wrong ones.
//!
//! Every error names the place and the remedy, for the user who typed the command.

use std::time::Duration;

use capstan_protocol::fault::Validation;
use capstan_protocol::{AguiErrorCode, CATALOGUE, FaultKind, nearest};

/// A year: what a fault's own `retry_after` can hold. A longer wait is a slip of the finger.
const LONGEST: Duration = Duration::from_secs(31_536_000);

/// The syntax of a command, for errors.
#[derive(Clone, Copy)]
pub(super) struct Syntax {
    pub(super) name: &'static str,
    pub(super) usage: &'static str,
    pub(super) options: &'static [&'static str],
}

/// The text after a command's name.
pub(super) struct Args<'a> {
    syntax: Syntax,
    /// The complete text.
    typed: &'a str,
    words: std::vec::IntoIter<&'a str>,
    options: Vec<(&'static str, &'a str)>,
}

impl<'a> Args<'a> {
    /// Splits the text into words and options; refuses unknown options.
    pub(super) fn new(syntax: Syntax, typed: &'a str) -> Result<Self, Validation> {
        let mut args = Self { syntax, typed, words: Vec::new().into_iter(), options: Vec::new() };
        let (mut words, mut typed) = (Vec::new(), typed.split_whitespace());
        while let Some(word) = typed.next() {
            if !word.starts_with("--") {
                words.push(word);
                continue;
            }
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, typed.next()),
            };
            args.add_option(name, value)?;
        }
        args.words = words.into_iter();
        Ok(args)
    }

    fn add_option(&mut self, name: &str, value: Option<&'a str>) -> Result<(), Validation> {
        let Some(known) = self.syntax.options.iter().find(|option| **option == name) else {
            let hint = did_you_mean(name, self.syntax.options.iter().copied());
            return Err(self.wrong(&short(name), &format!("there is no such option.{hint}")));
        };
        if self.options.iter().any(|(given, _)| given == known) {
            return Err(self.wrong(known, "it is given twice."));
        }
        let value = value.ok_or_else(|| self.wrong(known, "its value is missing."))?;
        self.options.push((known, value));
        Ok(())
    }

    /// Refuses extra words.
    pub(super) fn finish(mut self) -> Result<(), Validation> {
        match self.words.next() {
            Some(word) => Err(self.wrong(&short(word), "that is one argument too many.")),
            None => Ok(()),
        }
    }

    /// The complete text, white space included.
    pub(super) fn text(&mut self, place: &str) -> Result<String, Validation> {
        self.word(place)?;
        self.words = Vec::new().into_iter();
        Ok(self.typed.to_owned())
    }

    /// The remaining words, if there are any.
    pub(super) fn rest(&mut self) -> Option<String> {
        let words: Vec<&str> = self.words.by_ref().collect();
        (!words.is_empty()).then(|| words.join(" "))
    }

    /// The next word, a number from 0 to `most`.
    pub(super) fn number(&mut self, place: &str, most: u32) -> Result<u32, Validation> {
        let word = self.word(place)?;
        self.parse_number(place, word, most)
    }

    /// The next word, a code of the catalogue in any spelling.
    pub(super) fn kind(&mut self, place: &str) -> Result<FaultKind, Validation> {
        let word = self.word(place)?;
        FaultKind::parse(word).ok_or_else(|| {
            let agui = AguiErrorCode::ALL.iter().map(|code| code.as_str());
            let hint = did_you_mean(word, CATALOGUE.iter().map(|entry| entry.code).chain(agui));
            self.wrong(place, &format!("{} is not a code of the catalogue.{hint}", short(word)))
        })
    }

    /// An option that is a number from 0 to `most`.
    pub(super) fn number_option(&self, name: &str, most: u32) -> Result<Option<u32>, Validation> {
        self.value(name).map(|value| self.parse_number(name, value, most)).transpose()
    }

    /// An option that is a duration with its unit. Without one, `10` might mean seconds as well as
    /// milliseconds.
    pub(super) fn duration_option(&self, name: &str) -> Result<Option<Duration>, Validation> {
        let parse = |value| {
            parse_duration(value).ok_or_else(|| {
                let problem =
                    format!("{} is not a duration; `10ms`, `2s` and `1.5s` are.", short(value));
                self.wrong(name, &problem)
            })
        };
        self.value(name).map(parse).transpose()
    }

    /// An option that is a wait: plain seconds, or a duration with its unit.
    pub(super) fn wait_option(&self, name: &str) -> Result<Option<Duration>, Validation> {
        let parse = |value| {
            parse_seconds(value, 1.0).or_else(|| parse_duration(value)).ok_or_else(|| {
                let problem = format!(
                    "{} is not a number of seconds; `2`, `1.5` and `500ms` are.",
                    short(value)
                );
                self.wrong(name, &problem)
            })
        };
        self.value(name).map(parse).transpose()
    }

    fn word(&mut self, place: &str) -> Result<&'a str, Validation> {
        self.words.next().ok_or_else(|| self.wrong(place, "it is missing."))
    }

    fn value(&self, name: &str) -> Option<&'a str> {
        self.options.iter().find(|(given, _)| *given == name).map(|(_, value)| *value)
    }

    fn parse_number(&self, place: &str, word: &str, most: u32) -> Result<u32, Validation> {
        let number = word.parse().ok().filter(|number| *number <= most);
        number.ok_or_else(|| {
            self.wrong(place, &format!("{} is not a whole number from 0 to {most}.", short(word)))
        })
    }

    fn wrong(&self, place: &str, problem: &str) -> Validation {
        let Syntax { name, usage, .. } = self.syntax;
        Validation { message: format!("In `{name}`, {place}: {problem} Write `{usage}`.") }
    }
}

/// ` Did you mean …?`, or nothing if no known word is close.
pub(super) fn did_you_mean(word: &str, known: impl Iterator<Item = &'static str>) -> String {
    nearest(word, known).map(|known| format!(" Did you mean `{known}`?")).unwrap_or_default()
}

/// A user's word, shortened for an error.
pub(super) fn short(word: &str) -> String {
    const ENOUGH: usize = 40;
    match word.char_indices().nth(ENOUGH).and_then(|(at, _)| word.get(..at)) {
        Some(start) => format!("`{start}…`"),
        None => format!("`{word}`"),
    }
}

fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s')?, 1.0),
    };
    parse_seconds(number, unit)
}

fn parse_seconds(text: &str, unit: f64) -> Option<Duration> {
    // Rust accepts more as a float (`inf`, `1e9`, `-0`), but nobody means that as a wait.
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let seconds = text.parse::<f64>().ok().filter(|_| is_plain)? * unit;
    Duration::try_from_secs_f64(seconds).ok().filter(|wait| *wait <= LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_may_have_a_fraction() {
        for (text, millis) in
            [("10ms", 10), ("2s", 2_000), ("1.5s", 1_500), ("0s", 0), ("0.5ms", 0)]
        {
            assert_eq!(parse_duration(text).unwrap().as_millis(), millis, "{text}");
        }
        assert_eq!(parse_duration("10ms"), Some(Duration::from_millis(10)));
    }

    #[test]
    fn an_invalid_duration_is_refused() {
        for text in [
            "",
            "10",
            "ms",
            "s",
            ".s",
            "-1s",
            "+1s",
            "infs",
            "NaNs",
            "1e3s",
            "1h",
            "1.2.3s",
            "31536001s",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn a_long_word_is_quoted_in_part_and_between_characters() {
        assert_eq!(short("short"), "`short`");
        assert_eq!(short(&"ü".repeat(1_000)), format!("`{}…`", "ü".repeat(40)));
    }

    #[test]
    fn the_nearest_known_word_is_proposed() {
        assert_eq!(
            did_you_mean("/tokns", ["/help", "/tokens"].into_iter()),
            " Did you mean `/tokens`?"
        );
        assert_eq!(did_you_mean("xyzzy", ["/help", "/tokens"].into_iter()), "");
    }
}

//! What a provider does: its answer, its pace and its faults; built in code or read from a TOML
//! file.

use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use crate::answer::Answer;
use crate::rule::{Rule, RuleError, When};

/// How a provider behaves. The default one is healthy.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// What it says.
    pub answer: Answer,
    /// How long it takes for each token.
    pub token_interval: Duration,
    /// What decides about faults that strike a share of calls.
    pub seed: u64,
    /// What goes wrong. The first rule that strikes a call decides.
    pub faults: Vec<Rule>,
}

/// A script that cannot be read.
#[derive(Debug, Error)]
pub enum ScriptError {
    /// It is not TOML, or has keys that nobody knows.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// A fault in it.
    #[error("faults[{index}]: {error}")]
    Rule {
        /// Which one, from 0.
        index: usize,
        /// What is wrong with it.
        error: RuleError,
    },
    /// A number that is no time.
    #[error("{0}: expected a number of seconds that is not negative")]
    Seconds(&'static str),
}

impl Script {
    /// With one more fault.
    #[must_use]
    pub fn fault(mut self, rule: Rule) -> Self {
        self.faults.push(rule);
        self
    }

    /// With another answer.
    #[must_use]
    pub fn answer(self, answer: Answer) -> Self {
        Self { answer, ..self }
    }

    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let file: File = toml::from_str(text)?;
        let rule = |(index, entry): (usize, Entry)| {
            entry.rule().map_err(|error| match error {
                EntryError::Rule(error) => ScriptError::Rule { index, error },
                EntryError::Seconds => ScriptError::Seconds("faults.seconds"),
            })
        };
        Ok(Self {
            answer: file.answer,
            token_interval: duration(file.token_interval)
                .ok_or(ScriptError::Seconds("token_interval"))?,
            seed: file.seed,
            faults: file.faults.into_iter().enumerate().map(rule).collect::<Result<_, _>>()?,
        })
    }
}

fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

/// A script file.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    answer: Answer,
    token_interval: f64,
    seed: u64,
    faults: Vec<Entry>,
}

impl Default for File {
    fn default() -> Self {
        Self { answer: Answer::default(), token_interval: 0.015, seed: 0, faults: Vec::new() }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    fault: String,
    when: Option<String>,
    model: Option<String>,
    after: Option<usize>,
    seconds: Option<f64>,
    retry_after: Option<u64>,
}

enum EntryError {
    Rule(RuleError),
    Seconds,
}

impl Entry {
    fn rule(self) -> Result<Rule, EntryError> {
        let fault =
            self.fault.parse().map_err(|error| EntryError::Rule(RuleError::Fault(error)))?;
        let when =
            self.when.map_or(Ok(When::Always), |when| when.parse()).map_err(EntryError::Rule)?;
        let seconds =
            self.seconds.map(|seconds| duration(seconds).ok_or(EntryError::Seconds)).transpose()?;
        Ok(Rule {
            when,
            model: self.model,
            after: self.after,
            seconds,
            retry_after: self.retry_after,
            ..Rule::new(fault)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;

    #[test]
    fn a_file_says_everything_that_code_can() {
        let text = r#"
            seed = 7
            token_interval = 0.002
            [answer]
            text = "Hello there"
            tool_calls = [{ name = "pay", arguments = { amount = 5 } }]
            [[faults]]
            fault = "status-429"
            when = "1-2"
            model = "gpt"
            retry_after = 2
            [[faults]]
            fault = "reset-mid-stream"
            after = 1
            seconds = 0.5
        "#;
        let script = Script::parse(text).unwrap();
        assert_eq!((script.seed, script.token_interval), (7, Duration::from_millis(2)));
        assert_eq!(
            (script.answer.text.as_str(), script.answer.tool_calls.len()),
            ("Hello there", 1)
        );
        let first = Rule { when: When::Calls(1, 2), ..Rule::new(Fault::Status(429)) };
        let second = Rule::new(Fault::ResetMidStream).after(1).seconds(Duration::from_millis(500));
        assert_eq!(script.faults, [first.model("gpt").retry_after(2), second]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, words) in [
            ("[[faults]]\nfault = \"silence\"", "faults[0]: no fault is called \"silence\""),
            ("[[faults]]\nfault = \"silent\"\nwhen = \"soon\"", "\"soon\" is no time for a fault"),
            ("[[faults]]\nfault = \"silent\"\nseconds = -1", "faults.seconds"),
            ("anser = 1", "unknown field `anser`"),
        ] {
            let error = Script::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}

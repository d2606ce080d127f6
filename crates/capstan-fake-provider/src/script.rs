//! The behaviour of a provider: its answer, its pace and its faults. Built in code, or read from a
//! TOML file.

use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use crate::answer::Answer;
use crate::condition::Condition;
use crate::question::Question;
use crate::rule::{Rule, RuleError, When};

/// A provider's behaviour. The default is healthy.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// The answer to calls without a matching reply.
    pub answer: Answer,
    /// Answers to some calls. The first matching reply wins.
    pub replies: Vec<Reply>,
    /// Whether each call gets ids of its own, as from real providers. Otherwise equal calls get the
    /// same ids.
    pub unique_ids: bool,
    /// Models that it lists beside those with names of faults.
    pub models: Vec<String>,
    /// The time for each token.
    pub token_interval: Duration,
    /// The seed for faults that strike a share of calls.
    pub seed: u64,
    /// The faults. The first rule that strikes a call wins.
    pub faults: Vec<Rule>,
}

/// An answer for some calls.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    /// The calls that it answers.
    pub only: Condition,
    /// The answer.
    pub answer: Answer,
}

/// A script that cannot be read.
#[derive(Debug, Error)]
pub enum ScriptError {
    /// The file is not TOML, or has unknown keys.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// A fault in it.
    #[error("faults[{index}]: {error}")]
    Rule {
        /// The index of the rule, from 0.
        index: usize,
        /// The mistake.
        error: RuleError,
    },
    /// A number that is not a valid time.
    #[error("{0}: expected a number of seconds that is not negative")]
    Seconds(&'static str),
}

impl Script {
    /// Adds a fault.
    #[must_use]
    pub fn fault(mut self, rule: Rule) -> Self {
        self.faults.push(rule);
        self
    }

    /// Adds a reply.
    #[must_use]
    pub fn reply(mut self, only: Condition, answer: Answer) -> Self {
        self.replies.push(Reply { only, answer });
        self
    }

    /// The answer to a call.
    pub(crate) fn answer_to(&self, question: &Question) -> &Answer {
        let reply = self.replies.iter().find(|reply| reply.only.fits(question));
        reply.map_or(&self.answer, |reply| &reply.answer)
    }

    /// Replaces the answer.
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
            replies: file.replies.into_iter().map(ReplyEntry::reply).collect(),
            unique_ids: file.unique_ids,
            models: file.models,
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
    replies: Vec<ReplyEntry>,
    unique_ids: bool,
    models: Vec<String>,
    token_interval: f64,
    seed: u64,
    faults: Vec<Entry>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            answer: Answer::default(),
            replies: Vec::new(),
            unique_ids: false,
            models: Vec::new(),
            token_interval: 0.015,
            seed: 0,
            faults: Vec::new(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    fault: String,
    when: Option<String>,
    model: Option<String>,
    user: Option<String>,
    offers: Option<String>,
    tool_results: Option<usize>,
    at: Option<String>,
    after: Option<usize>,
    seconds: Option<f64>,
    retry_after: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyEntry {
    model: Option<String>,
    user: Option<String>,
    offers: Option<String>,
    tool_results: Option<usize>,
    answer: Answer,
}

impl ReplyEntry {
    fn reply(self) -> Reply {
        let Self { model, user, offers, tool_results, answer } = self;
        Reply { only: Condition { model, user, offers, tool_results }, answer }
    }
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
        let place =
            |name: String| name.parse().map_err(|()| EntryError::Rule(RuleError::Place(name)));
        let (model, user) = (self.model, self.user);
        let (offers, tool_results) = (self.offers, self.tool_results);
        Ok(Rule {
            when,
            only: Condition { model, user, offers, tool_results },
            at: self.at.map(place).transpose()?,
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
    use crate::place::Place;

    #[test]
    fn a_script_file_can_express_what_code_can() {
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
            [[faults]]
            fault = "close-mid-stream"
            at = "mid-arguments"
            offers = "Write"
            [[replies]]
            user = "a file"
            tool_results = 0
            answer = { text = "", signed = true, tool_calls = [{ name = "Write" }] }
        "#;
        let script = Script::parse(text).unwrap();
        assert_eq!((script.seed, script.token_interval), (7, Duration::from_millis(2)));
        assert_eq!(
            (script.answer.text.as_str(), script.answer.tool_calls.len()),
            ("Hello there", 1)
        );
        let first = Rule { when: When::Calls(1, 2), ..Rule::new(Fault::Status(429)) };
        let second = Rule::new(Fault::ResetMidStream).after(1).seconds(Duration::from_millis(500));
        let only = Condition { offers: Some("Write".into()), ..Condition::default() };
        let third = Rule { only, ..Rule::new(Fault::CloseMidStream).at(Place::MidArguments) };
        assert_eq!(script.faults, [first.model("gpt").retry_after(2), second, third]);
        assert_eq!(script.replies[0].only.tool_results, Some(0));
        assert!(script.replies[0].answer.signed);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, words) in [
            ("[[faults]]\nfault = \"silence\"", "faults[0]: no fault is called \"silence\""),
            ("[[faults]]\nfault = \"silent\"\nwhen = \"soon\"", "\"soon\" is no time for a fault"),
            ("[[faults]]\nfault = \"silent\"\nseconds = -1", "faults.seconds"),
            ("[[faults]]\nfault = \"silent\"\nat = \"here\"", "\"here\" is no place in a stream"),
            ("anser = 1", "unknown field `anser`"),
        ] {
            let error = Script::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}

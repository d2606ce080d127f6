//! When a fault strikes: `NAME`, `NAME@3`, `NAME@2-5`, `NAME@2-`, `NAME@30%` or `NAME@60s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::fault::{Fault, UnknownFault};

/// A fault and when it strikes.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// What happens.
    pub fault: Fault,
    /// To which calls.
    pub when: When,
    /// Only to calls of this model.
    pub model: Option<String>,
    /// After so many tokens.
    pub after: Option<usize>,
    /// How long it takes.
    pub seconds: Option<Duration>,
    /// What a refusal's `Retry-After` says.
    pub retry_after: Option<u64>,
}

/// To which calls of a model a fault happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    /// To all.
    Always,
    /// From one call to another, both included; the first is 1.
    Calls(usize, usize),
    /// To this share of them, as the seed has it.
    Share(f64),
    /// To those that come this soon after the start.
    Within(Duration),
}

/// A rule that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RuleError {
    /// Its fault.
    #[error(transparent)]
    Fault(#[from] UnknownFault),
    /// Its time.
    #[error("{0:?} is no time for a fault; expected 3, 2-5, 2-, 30% or 60s")]
    When(String),
}

impl Rule {
    /// A fault that always strikes.
    pub fn new(fault: Fault) -> Self {
        Self {
            fault,
            when: When::Always,
            model: None,
            after: None,
            seconds: None,
            retry_after: None,
        }
    }

    /// After so many tokens.
    #[must_use]
    pub fn after(self, tokens: usize) -> Self {
        Self { after: Some(tokens), ..self }
    }

    /// How long it takes.
    #[must_use]
    pub fn seconds(self, time: Duration) -> Self {
        Self { seconds: Some(time), ..self }
    }

    /// Only to calls of this model.
    #[must_use]
    pub fn model(self, model: impl Into<String>) -> Self {
        Self { model: Some(model.into()), ..self }
    }

    /// What a refusal's `Retry-After` says.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// Whether it strikes the nth call of a model.
    pub(crate) fn strikes(&self, model: &str, nth: usize, seed: u64, since: Duration) -> bool {
        if self.model.as_deref().is_some_and(|own| own != model) {
            return false;
        }
        match self.when {
            When::Always => true,
            When::Calls(first, last) => (first..=last).contains(&nth),
            When::Share(share) => draw(seed, nth) < share,
            When::Within(time) => since < time,
        }
    }
}

/// A number from 0 to 1 that depends on the seed and the call alone.
fn draw(seed: u64, nth: usize) -> f64 {
    let nth = u64::try_from(nth).unwrap_or(u64::MAX);
    fastrand::Rng::with_seed(seed ^ nth.wrapping_mul(0x9E37_79B9_7F4A_7C15)).f64()
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let (fault, when) = match text.trim().split_once('@') {
            Some((fault, when)) => (fault, when.parse()?),
            None => (text.trim(), When::Always),
        };
        Ok(Self { when, ..Self::new(fault.parse()?) })
    }
}

impl FromStr for When {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let number = |text: &str| text.parse::<usize>().ok().filter(|nth| *nth > 0);
        let read = if let Some(percent) = text.strip_suffix('%') {
            let percent =
                percent.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
            percent.map(|percent| Self::Share(percent / 100.0))
        } else if let Some(seconds) = text.strip_suffix('s') {
            let time =
                seconds.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            time.map(Self::Within)
        } else if let Some((first, last)) = text.split_once('-') {
            let last = if last.is_empty() { Some(usize::MAX) } else { number(last) };
            number(first)
                .zip(last)
                .filter(|(first, last)| first <= last)
                .map(|(a, b)| Self::Calls(a, b))
        } else {
            number(text).map(|nth| Self::Calls(nth, nth))
        };
        read.ok_or_else(|| RuleError::When(text.to_owned()))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fault)?;
        match self.when {
            When::Always => Ok(()),
            When::Calls(first, last) if first == last => write!(f, "@{first}"),
            When::Calls(first, usize::MAX) => write!(f, "@{first}-"),
            When::Calls(first, last) => write!(f, "@{first}-{last}"),
            When::Share(share) => write!(f, "@{}%", share * 100.0),
            When::Within(time) => write!(f, "@{}s", time.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_reads_as_it_is_written() {
        for text in [
            "silent",
            "status-503@1",
            "status-503@2-5",
            "truncated@2-",
            "gzip@30%",
            "status-429@60s",
        ] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
        for wrong in ["silent@", "silent@0", "silent@5-2", "silent@x", "silent@120%", "silence@1"] {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn it_strikes_by_number_by_share_of_a_seed_and_for_a_time() {
        let strikes = |text: &str, nth, seed, seconds| {
            let rule: Rule = text.parse().unwrap();
            rule.strikes("m", nth, seed, Duration::from_secs(seconds))
        };
        assert!(strikes("silent@2-3", 2, 0, 0) && !strikes("silent@2-3", 4, 0, 0));
        assert!(strikes("silent@60s", 9, 0, 59) && !strikes("silent@60s", 9, 0, 60));
        let struck = |seed| {
            (1..=1000).filter(|nth| strikes("silent@30%", *nth, seed, 0)).collect::<Vec<_>>()
        };
        assert!((250..350).contains(&struck(1).len()), "{}", struck(1).len());
        assert_eq!(struck(1), struck(1));
        assert_ne!(struck(1), struck(2));
        assert!(!Rule::new(Fault::Silent).model("other").strikes("m", 1, 0, Duration::ZERO));
    }
}

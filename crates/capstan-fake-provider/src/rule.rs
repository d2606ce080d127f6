//! When a fault strikes: `NAME`, `NAME@3`, `NAME@2-5`, `NAME@2-`, `NAME@30%` or `NAME@60s`. And
//! where in the stream: `NAME:PLACE@3`, with a place's name or a number of tokens.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::condition::Condition;
use crate::fault::{Fault, UnknownFault};
use crate::place::{PLACES, Place};

/// A fault and when it strikes.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The fault.
    pub fault: Fault,
    /// To which calls.
    pub when: When,
    /// Only to these calls.
    pub only: Condition,
    /// Its place in the stream.
    pub at: Option<Place>,
    /// The number of tokens before it.
    pub after: Option<usize>,
    /// Its duration.
    pub seconds: Option<Duration>,
    /// The `Retry-After` of a refusal.
    pub retry_after: Option<u64>,
}

/// Which calls of a model a fault strikes, counted among those of the rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    /// All calls.
    Always,
    /// A range of calls, both included; the first is 1.
    Calls(usize, usize),
    /// This share of the calls, chosen by the seed.
    Share(f64),
    /// Calls within this time after the start.
    Within(Duration),
}

/// A rule that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RuleError {
    /// Its fault.
    #[error(transparent)]
    Fault(#[from] UnknownFault),
    /// Its place.
    #[error(
        "{0:?} is no place in a stream; expected a number of tokens or one of: {places}",
        places = places()
    )]
    Place(String),
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
            only: Condition::default(),
            at: None,
            after: None,
            seconds: None,
            retry_after: None,
        }
    }

    /// Sets the number of tokens before it.
    #[must_use]
    pub fn after(self, tokens: usize) -> Self {
        Self { after: Some(tokens), ..self }
    }

    /// Sets its place in the stream.
    #[must_use]
    pub fn at(self, place: Place) -> Self {
        Self { at: Some(place), ..self }
    }

    /// Sets its duration.
    #[must_use]
    pub fn seconds(self, time: Duration) -> Self {
        Self { seconds: Some(time), ..self }
    }

    /// Limits the rule to calls of this model.
    #[must_use]
    pub fn model(self, model: impl Into<String>) -> Self {
        Self { only: Condition { model: Some(model.into()), ..self.only }, ..self }
    }

    /// Sets the `Retry-After` of a refusal.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// Whether it strikes the nth of its calls.
    pub(crate) fn strikes(&self, nth: usize, seed: u64, since: Duration) -> bool {
        match self.when {
            When::Always => true,
            When::Calls(first, last) => (first..=last).contains(&nth),
            When::Share(share) => draw(seed, nth) < share,
            When::Within(time) => since < time,
        }
    }
}

fn places() -> String {
    PLACES.map(|(_, name)| name).join(", ")
}

/// A number from 0 to 1 that depends on the seed and the call alone.
fn draw(seed: u64, nth: usize) -> f64 {
    let nth = u64::try_from(nth).unwrap_or(u64::MAX);
    fastrand::Rng::with_seed(seed ^ nth.wrapping_mul(0x9E37_79B9_7F4A_7C15)).f64()
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let (what, when) = match text.trim().split_once('@') {
            Some((what, when)) => (what, when.parse()?),
            None => (text.trim(), When::Always),
        };
        let (fault, place) = what.split_once(':').unzip();
        let rule = Self { when, ..Self::new(fault.unwrap_or(what).parse()?) };
        let Some(place) = place else { return Ok(rule) };
        match (place.parse(), place.parse()) {
            (Ok(place), _) => Ok(rule.at(place)),
            (_, Ok(tokens)) => Ok(rule.after(tokens)),
            _ => Err(RuleError::Place(place.to_owned())),
        }
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
        match (self.at, self.after) {
            (Some(place), _) => write!(f, ":{place}")?,
            (None, Some(tokens)) => write!(f, ":{tokens}")?,
            (None, None) => {}
        }
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
            "close-mid-stream:mid-arguments@1",
            "reset-mid-stream:40",
        ] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
        for wrong in [
            "silent@",
            "silent@0",
            "silent@5-2",
            "silent@x",
            "silent@120%",
            "silence@1",
            "silent:here",
        ] {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn it_strikes_by_number_by_share_of_a_seed_and_for_a_time() {
        let strikes = |text: &str, nth, seed, seconds| {
            let rule: Rule = text.parse().unwrap();
            rule.strikes(nth, seed, Duration::from_secs(seconds))
        };
        assert!(strikes("silent@2-3", 2, 0, 0) && !strikes("silent@2-3", 4, 0, 0));
        assert!(strikes("silent@60s", 9, 0, 59) && !strikes("silent@60s", 9, 0, 60));
        let struck = |seed| {
            (1..=1000).filter(|nth| strikes("silent@30%", *nth, seed, 0)).collect::<Vec<_>>()
        };
        assert!((250..350).contains(&struck(1).len()), "{}", struck(1).len());
        assert_eq!(struck(1), struck(1));
        assert_ne!(struck(1), struck(2));
    }
}

//! Sums the usage of a run over all calls of all attempts, in total and by the members of a route.

use std::collections::BTreeMap;

use capstan_journal::Run;
use serde_json::{Map, Number, Value};

type Counts = Map<String, Value>;

/// The usage of a run.
#[derive(Default)]
pub(super) struct Spending {
    /// Usage of the attempts before the present one.
    before: Option<Counts>,
    before_by: BTreeMap<String, Counts>,
    /// Usage of failed or abandoned calls of the present attempt.
    failed: BTreeMap<String, Counts>,
    /// Usage of the call that answers. A later report replaces an earlier one.
    present: Option<Counts>,
    member: Option<String>,
}

impl Spending {
    /// Reads the usage of earlier attempts from the record.
    pub(super) fn of(run: &Run) -> Self {
        let mut spending = Self::default();
        for entry in &run.attempts {
            add(&mut spending.before, entry.usage.as_ref());
            for used in &entry.members {
                spending.charge_before(&used.name, used.usage.as_ref());
            }
        }
        if spending.before.is_none() {
            spending.before.clone_from(&run.usage);
        }
        spending
    }

    fn charge_before(&mut self, name: &str, usage: Option<&Counts>) {
        let Some(usage) = usage else { return };
        sum(self.before_by.entry(name.to_owned()).or_default(), usage);
    }

    /// Begins the next attempt. The usage so far stays.
    pub(super) fn begin_attempt(&mut self) {
        let (whole, by) = (self.attempt(), self.attempt_by());
        add(&mut self.before, whole.as_ref());
        by.iter().for_each(|(name, usage)| self.charge_before(name, Some(usage)));
        (self.present, self.member) = (None, None);
        self.failed.clear();
    }

    /// Sets the member whose output follows.
    pub(super) fn set_member(&mut self, member: &str) {
        self.member = Some(member.to_owned());
    }

    pub(super) fn member(&self) -> Option<&str> {
        self.member.as_deref()
    }

    /// Sets the usage of the call that answers.
    pub(super) fn set_usage(&mut self, usage: Counts) {
        self.present = Some(usage);
    }

    /// Adds the usage of a call that gave no answer.
    pub(super) fn add_failed(&mut self, member: &str, usage: &Counts) {
        sum(self.failed.entry(member.to_owned()).or_default(), usage);
    }

    /// The usage of the present attempt, if it is known.
    pub(super) fn attempt(&self) -> Option<Counts> {
        let mut whole = None;
        self.failed.values().chain(&self.present).for_each(|usage| add(&mut whole, Some(usage)));
        whole
    }

    /// The usage of the present attempt, by member.
    pub(super) fn attempt_by(&self) -> Vec<(String, Counts)> {
        let mut by = self.failed.clone();
        if let (Some(member), Some(usage)) = (&self.member, &self.present) {
            sum(by.entry(member.clone()).or_default(), usage);
        }
        by.into_iter().collect()
    }

    /// The usage of the run.
    pub(super) fn total(&self) -> Option<Counts> {
        let mut whole = self.before.clone();
        add(&mut whole, self.attempt().as_ref());
        whole
    }

    /// The usage of the run, by member.
    pub(super) fn total_by(&self) -> Option<Counts> {
        let mut by = self.before_by.clone();
        self.attempt_by()
            .iter()
            .for_each(|(name, usage)| sum(by.entry(name.clone()).or_default(), usage));
        (!by.is_empty())
            .then(|| by.into_iter().map(|(name, usage)| (name, Value::Object(usage))).collect())
    }
}

/// Bytes of text that count as one token if the provider does not report tokens.
const BYTES_PER_TOKEN: u64 = 4;

/// The tokens of an attempt, as limits count them: input plus output, else the total, else an
/// estimate from the bytes of its text.
pub(super) fn tokens(usage: Option<&Counts>, text_bytes: u64) -> u64 {
    let count = |name: &str| {
        let number = usage?.get(name)?;
        // Casting a float saturates, so a negative number counts as zero.
        number.as_u64().or_else(|| number.as_f64().map(|number| number.ceil() as u64))
    };
    match (count("input_tokens"), count("output_tokens")) {
        (None, None) => count("total_tokens").unwrap_or(text_bytes.div_ceil(BYTES_PER_TOKEN)),
        (read, wrote) => read.unwrap_or(0).saturating_add(wrote.unwrap_or(0)),
    }
}

fn add(to: &mut Option<Counts>, usage: Option<&Counts>) {
    if let Some(usage) = usage {
        sum(to.get_or_insert_with(Map::new), usage);
    }
}

/// Adds numbers at any depth. Of other values the later one stays.
fn sum(to: &mut Counts, usage: &Counts) {
    for (name, value) in usage {
        match (to.get_mut(name), value) {
            (Some(Value::Number(a)), Value::Number(b)) => *a = plus(a, b),
            (Some(Value::Object(a)), Value::Object(b)) => sum(a, b),
            (_, value) => {
                to.insert(name.clone(), value.clone());
            }
        }
    }
}

fn plus(a: &Number, b: &Number) -> Number {
    let whole = a.as_u64().zip(b.as_u64()).and_then(|(a, b)| a.checked_add(b)).map(Number::from);
    let broken = || Number::from_f64(a.as_f64()? + b.as_f64()?);
    whole.or_else(broken).unwrap_or_else(|| b.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counts(value: Value) -> Counts {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn tokens_are_what_was_said_to_be_used_or_a_guess() {
        let of = |usage: Value| tokens(Some(&counts(usage)), 401);
        assert_eq!(of(json!({ "input_tokens": 7, "output_tokens": 5, "total_tokens": 99 })), 12);
        assert_eq!(of(json!({ "output_tokens": 5, "cached_input_tokens": 4 })), 5);
        assert_eq!(of(json!({ "total_tokens": 99 })), 99);
        assert_eq!((of(json!({ "cost": 0.5 })), tokens(None, 401), tokens(None, 0)), (101, 101, 0));
        assert_eq!(of(json!({ "input_tokens": u64::MAX, "output_tokens": 1.5 })), u64::MAX);
        assert_eq!(of(json!({ "input_tokens": -5, "output_tokens": 1e300 })), u64::MAX);
        assert_eq!(of(json!({ "input_tokens": "many", "output_tokens": 3 })), 3);
    }

    #[test]
    fn attempts_add_up_and_within_one_the_last_word_counts() {
        let mut usage =
            Spending { before: Some(counts(json!({ "input_tokens": 7 }))), ..Spending::default() };
        usage.set_usage(counts(json!({ "input_tokens": 5, "output_tokens": 1 })));
        usage.set_usage(counts(
            json!({ "input_tokens": 5, "output_tokens": 9, "tier": "a", "cost": 0.5 }),
        ));
        usage.begin_attempt();
        let first = json!({ "input_tokens": 12, "output_tokens": 9, "tier": "a", "cost": 0.5 });
        assert_eq!(usage.total(), Some(counts(first)));
        usage.set_usage(counts(
            json!({ "input_tokens": 1, "tier": "b", "cost": 1, "more": { "n": 2 } }),
        ));
        let all = json!({ "input_tokens": 13, "output_tokens": 9, "tier": "b", "cost": 1.5,
        "more": { "n": 2 } });
        assert_eq!(usage.total(), Some(counts(all)));
    }

    #[test]
    fn calls_add_up_over_attempts_and_members_and_the_last_word_of_a_call_counts() {
        let mut spending = Spending::default();
        spending.add_failed("a", &counts(json!({ "input_tokens": 5 })));
        spending.set_member("b");
        spending.set_usage(counts(json!({ "input_tokens": 6 })));
        spending.set_usage(counts(json!({ "input_tokens": 6, "output_tokens": 3 })));
        assert_eq!(json!(spending.attempt()), json!({ "input_tokens": 11, "output_tokens": 3 }));
        spending.begin_attempt();
        assert_eq!(spending.attempt(), None);
        spending.set_member("a");
        spending.set_usage(counts(json!({ "input_tokens": 5, "output_tokens": 9 })));
        assert_eq!(json!(spending.total()), json!({ "input_tokens": 16, "output_tokens": 12 }));
        let by = json!({ "a": { "input_tokens": 10, "output_tokens": 9 }, "b": { "input_tokens": 6,
        "output_tokens": 3 } });
        assert_eq!(json!(spending.total_by()), by);
    }
}

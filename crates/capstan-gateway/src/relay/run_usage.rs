//! What a run took: all its attempts together, since all of them are paid for.

use serde_json::{Map, Number, Value};

type Counts = Map<String, Value>;

/// Counts of the attempts that are over, and of the present one.
#[derive(Debug, Default)]
pub(super) struct RunUsage {
    earlier: Option<Counts>,
    present: Option<Counts>,
}

impl RunUsage {
    /// After attempts that took so much.
    pub(super) fn after(earlier: Option<Counts>) -> Self {
        Self { earlier, present: None }
    }

    /// What the present attempt took so far; its last word counts.
    pub(super) fn count(&mut self, counts: Counts) {
        self.present = Some(counts);
    }

    pub(super) fn begin_attempt(&mut self) {
        self.earlier = self.total();
        self.present = None;
    }

    pub(super) fn of_attempt(&self) -> Option<&Counts> {
        self.present.as_ref()
    }

    pub(super) fn total(&self) -> Option<Counts> {
        match (&self.earlier, &self.present) {
            (Some(earlier), Some(present)) => Some(sum(earlier, present)),
            (earlier, present) => present.clone().or_else(|| earlier.clone()),
        }
    }
}

/// Numbers are added, wherever they stand; of anything else the later word counts.
fn sum(earlier: &Counts, later: &Counts) -> Counts {
    let mut total = earlier.clone();
    for (name, value) in later {
        let added = match (total.get(name), value) {
            (Some(Value::Number(a)), Value::Number(b)) => Value::Number(add(a, b)),
            (Some(Value::Object(a)), Value::Object(b)) => Value::Object(sum(a, b)),
            (_, value) => value.clone(),
        };
        total.insert(name.clone(), added);
    }
    total
}

fn add(a: &Number, b: &Number) -> Number {
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
    fn attempts_add_up_and_within_one_the_last_word_counts() {
        let mut usage = RunUsage::after(Some(counts(json!({ "input_tokens": 7 }))));
        usage.begin_attempt();
        usage.count(counts(json!({ "input_tokens": 5, "output_tokens": 1 })));
        usage.count(counts(json!({ "input_tokens": 5, "output_tokens": 9, "tier": "a", "cost": 0.5 })));
        assert_eq!(usage.of_attempt().unwrap()["output_tokens"], 9);
        usage.begin_attempt();
        assert_eq!(usage.of_attempt(), None);
        let first = json!({ "input_tokens": 12, "output_tokens": 9, "tier": "a", "cost": 0.5 });
        assert_eq!(usage.total(), Some(counts(first)));
        usage.count(counts(json!({ "input_tokens": 1, "tier": "b", "cost": 1, "more": { "n": 2 } })));
        let all =
            json!({ "input_tokens": 13, "output_tokens": 9, "tier": "b", "cost": 1.5, "more": { "n": 2 } });
        assert_eq!(usage.total(), Some(counts(all)));
    }
}

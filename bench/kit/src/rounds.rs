//! How often a figure is measured, and what is reported of it: the median, and every round in the
//! result.

use serde_json::{Value, json};

/// So many rounds as usual, thrice as many with `LONG=1`. Odd, so that the median is one of them.
/// One with `SHORT=1`.
pub fn how_many(usual: usize) -> usize {
    match (is_short(), is_set("LONG")) {
        (true, _) => 1,
        (false, true) => usual * 3,
        (false, false) => usual,
    }
}

/// One round shows whether a bench works, and is no result.
pub fn is_short() -> bool {
    is_set("SHORT")
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

/// One figure, measured several times.
#[derive(Debug, Clone, Default)]
pub struct Rounds(Vec<f64>);

impl Rounds {
    pub fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    pub fn median(&self) -> f64 {
        self.sorted()[self.0.len() / 2]
    }

    /// From where to where the middle half of them lies.
    pub fn middle_half(&self) -> [f64; 2] {
        let sorted = self.sorted();
        [sorted[sorted.len() / 4], sorted[sorted.len() * 3 / 4]]
    }

    pub fn spread(&self, digits: usize) -> String {
        let sorted = self.sorted();
        format!("{:.digits$}..{:.digits$}", sorted[0], sorted[sorted.len() - 1])
    }

    pub fn to_json(&self) -> Value {
        json!({ "median": self.median(), "rounds": self.0 })
    }
}

//! The report of all checks.

use capstan_protocol::Timestamp;
use serde::Serialize;

use crate::check::Check;
use crate::evidence::Evidence;

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Verdict {
    /// The server keeps the promise.
    Passed,
    /// The server breaks the promise.
    Broken {
        /// Why.
        evidence: Evidence,
    },
    /// It cannot be decided here.
    Skipped {
        /// Why.
        reason: String,
    },
}

/// A check and its verdict.
#[derive(Debug, Clone, Serialize)]
pub struct Judged {
    /// The check's name.
    pub id: &'static str,
    /// The section of PROTOCOL.md, or a page in docs/ and its heading.
    pub clause: &'static str,
    /// The promise.
    pub title: &'static str,
    /// The result.
    #[serde(flatten)]
    pub verdict: Verdict,
}

impl Judged {
    pub(crate) fn new(check: &'static Check, verdict: Verdict) -> Self {
        Self { id: check.id, clause: check.clause, title: check.title, verdict }
    }

    /// The document that makes the promise, and the place in it.
    pub fn source(&self) -> String {
        let is_section = self.clause.starts_with(|c: char| c.is_ascii_digit());
        let folder = if is_section { "PROTOCOL.md " } else { "docs/" };
        format!("{folder}{}", self.clause)
    }
}

/// The server, and which faces were found.
#[derive(Debug, Clone, Serialize)]
pub struct Environment {
    /// The server.
    pub url: String,
    /// The path of CAP requests, if there is a CAP face.
    pub assist: Option<String>,
    /// The path of AG-UI requests, if there is an AG-UI face.
    pub agui: Option<String>,
    /// The other faces that are there, by their names.
    pub others: Vec<String>,
    /// Whether the agent is the demo, whose commands are known.
    pub is_demo: bool,
    /// Whether a key was sent.
    pub has_key: bool,
    /// Whether there was a key of a second tenant.
    pub has_other_key: bool,
    /// When it began.
    pub started_at: Timestamp,
    /// The version of this crate.
    pub version: &'static str,
}

/// The counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The number of kept promises.
    pub passed: usize,
    /// Promises broken.
    pub broken: usize,
    /// Promises that could not be decided.
    pub skipped: usize,
    /// The number of runs that the checks start. A server that breaks "start once" starts more.
    pub runs: usize,
}

impl Summary {
    pub(crate) fn of(checks: &[Judged], runs: usize) -> Self {
        let mut sum = Self { runs, ..Self::default() };
        for check in checks {
            match check.verdict {
                Verdict::Passed => sum.passed += 1,
                Verdict::Broken { .. } => sum.broken += 1,
                Verdict::Skipped { .. } => sum.skipped += 1,
            }
        }
        sum
    }
}

/// The whole report.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The server.
    pub environment: Environment,
    /// The counts.
    pub summary: Summary,
    /// Each check, in the table's order.
    pub checks: Vec<Judged>,
}

//! The usage, model and finish reason of a run, for its CLOSE and its record.

use capstan_agent::Output;
use capstan_journal::Run;
use capstan_protocol::{Close, CloseReport, RawObject};
use serde_json::{Map, Value};

use super::spending::{self, Spending};

/// The model, usage and finish reason that the agent reported.
pub(super) struct RunSummary {
    model: Option<String>,
    spending: Spending,
    /// The route's member that answered last.
    member: Option<String>,
    reason: Option<String>,
}

impl RunSummary {
    pub(super) fn new(run: &Run) -> Self {
        Self { model: run.model.clone(), spending: Spending::of(run), member: None, reason: None }
    }

    pub(super) fn begin_attempt(&mut self) {
        self.spending.begin_attempt();
    }

    /// Takes an output that only concerns the summary. Returns any other output.
    pub(super) fn take(&mut self, output: Output) -> Option<Output> {
        match output {
            Output::Model(model) => self.model = Some(model),
            Output::Usage(usage) => self.spending.set_usage(usage),
            Output::Member(member) => {
                self.spending.set_member(&member);
                self.member = self.spending.member().map(str::to_owned);
            }
            Output::CallEnded(ended) => {
                if let Some(usage) = &ended.usage {
                    self.spending.add_failed(&ended.member, usage);
                }
            }
            Output::Reason(reason) => self.reason = Some(reason),
            // These belong to the run's record, not to its stream.
            Output::FarId(_) | Output::CallBegan(_) | Output::Continued(_) => {}
            other @ (Output::Delta(_)
            | Output::Again { .. }
            | Output::Event { .. }
            | Output::Warning(_)
            | Output::Interrupt(_)) => return Some(other),
        }
        None
    }

    pub(super) fn model(&self) -> Option<&String> {
        self.model.as_ref()
    }

    /// The usage of the run.
    pub(super) fn usage(&self) -> Option<Map<String, Value>> {
        self.spending.total()
    }

    /// The usage of the present attempt, if its agent reports it.
    pub(super) fn attempt_usage(&self) -> Option<Map<String, Value>> {
        self.spending.attempt()
    }

    /// The tokens of the present attempt, as limits count them; estimated from its text if unknown.
    pub(super) fn attempt_tokens(&self, text_bytes: usize) -> u64 {
        spending::tokens(self.spending.attempt().as_ref(), text_bytes as u64)
    }

    /// The usage of the present attempt, by member of a route.
    pub(super) fn attempt_usage_by_member(&self) -> Vec<(String, Map<String, Value>)> {
        self.spending.attempt_by()
    }

    /// The content of CLOSE: a reason, or a report if there is more data.
    pub(super) fn close(
        &self,
        reason: &str,
        agent: &str,
        attempt: u32,
        calls: Option<u32>,
    ) -> Close {
        let reason =
            self.reason.as_deref().filter(|_| reason == Close::COMPLETED).unwrap_or(reason);
        let usage = self.usage();
        if self.model.is_none() && usage.is_none() && calls.is_none() && attempt == 1 {
            return Close::Reason(reason.to_owned());
        }
        let report = CloseReport {
            reason: reason.to_owned(),
            agent: Some(agent.to_owned()),
            member: self.member.clone(),
            model: self.model.clone(),
            attempts: Some(attempt),
            calls,
            usage,
            usage_by_member: self.spending.total_by(),
        };
        RawObject::from_serialize(&report)
            .map_or_else(|_| Close::Reason(reason.to_owned()), Close::Report)
    }
}

//! What a run took and who answered, as its CLOSE and its record say.

use capstan_agent::Output;
use capstan_journal::Run;
use capstan_protocol::{Close, CloseReport, RawObject};
use serde_json::{Map, Value};

use super::spending::{self, Spending};

/// The model, the usage and the reason of a run, as its agent reports them.
pub(super) struct RunSummary {
    model: Option<String>,
    spending: Spending,
    /// The member of a route that answered last.
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

    /// Takes an output that is about the run and not a part of its stream. Others come back.
    pub(super) fn take(&mut self, output: Output) -> Option<Output> {
        match output {
            Output::Model(model) => self.model = Some(model),
            Output::Usage(usage) => self.spending.say(usage),
            Output::Member(member) => {
                self.spending.speaks(&member);
                self.member = self.spending.member().map(str::to_owned);
            }
            Output::CallEnded(ended) => {
                if let Some(usage) = &ended.usage {
                    self.spending.set_aside(&ended.member, usage);
                }
            }
            Output::Reason(reason) => self.reason = Some(reason),
            // The record's, not the stream's.
            Output::FarId(_) | Output::CallBegan(_) => {}
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

    /// What the run took.
    pub(super) fn usage(&self) -> Option<Map<String, Value>> {
        self.spending.total()
    }

    /// What the present attempt took, as far as it said.
    pub(super) fn attempt_usage(&self) -> Option<Map<String, Value>> {
        self.spending.attempt()
    }

    /// Its tokens, as limits count them; estimated from its text if it does not say.
    pub(super) fn attempt_tokens(&self, text_bytes: usize) -> u64 {
        spending::tokens(self.spending.attempt().as_ref(), text_bytes as u64)
    }

    /// The usage of the present attempt by the members of a route.
    pub(super) fn attempt_usage_by_member(&self) -> Vec<(String, Map<String, Value>)> {
        self.spending.attempt_by()
    }

    /// What CLOSE says: a word, or a report when there is more to tell.
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

//! The agent's upstream calls: recorded before a further call is made, counted, and traced in
//! spans.

use std::sync::Arc;

use capstan_agent::{CallBegan, CallEnded, CallOutcome};
use capstan_journal::JournalError;
use serde_json::Value;
use tracing::Span;

use super::{Relay, ledger};
use crate::events::Happened;
use crate::traces;

/// The spans of a route's open calls.
#[derive(Default)]
pub(super) struct OpenCalls(Vec<(Arc<str>, Span)>);

impl OpenCalls {
    /// Ends the spans together with the attempt.
    pub(super) fn end(&mut self) {
        self.0.clear();
    }
}

impl Relay {
    /// Records a call. An agent that asks for a receipt makes the call only after it is stored, so
    /// that a crash does not allow an additional call.
    pub(super) async fn call_began(
        &mut self,
        call: &CallBegan,
        span: &Span,
    ) -> Result<(), JournalError> {
        ledger::call_began(&mut self.run, call.member.as_deref());
        if let Some(member) = &call.member {
            let span = self.engine.traces.call(span, &self.run, &call.about, member);
            self.calls.0.push((Arc::clone(member), span));
        }
        let Some(receipt) = &call.receipt else { return Ok(()) };
        let here = (self.run.state, self.run.attempt);
        self.engine.journal.transition(here, self.run.clone(), Vec::new(), None).await?;
        receipt.give();
        Ok(())
    }

    pub(super) fn call_ended(&mut self, call: &CallEnded) {
        ledger::call_ended(&mut self.run, call);
        self.engine.emit(
            &self.run,
            Happened::CallEnded { call: call.clone(), output_tokens: self.output_tokens() },
        );
        let at = self.calls.0.iter().position(|(member, _)| *member == call.member);
        let Some((_, span)) = at.map(|at| self.calls.0.swap_remove(at)) else { return };
        span.record("capstan.call_outcome", call.outcome.as_str());
        match &call.outcome {
            CallOutcome::Answered => {
                let (model, usage) =
                    (self.packets.summary().model(), self.packets.summary().attempt_usage());
                traces::answered(&span, model.map(String::as_str), usage.as_ref());
            }
            CallOutcome::Stopped => traces::answered(&span, None, call.usage.as_ref()),
            CallOutcome::Failed { code, .. } => traces::failed(&span, code),
        }
    }

    /// The output tokens of the present attempt, if they are counted.
    fn output_tokens(&self) -> Option<u64> {
        self.packets.summary().attempt_usage()?.get("output_tokens").and_then(Value::as_u64)
    }
}

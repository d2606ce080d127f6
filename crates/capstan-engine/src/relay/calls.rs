//! The agent's upstream calls: recorded before a further call is made, and reported.

use std::sync::Arc;

use capstan_agent::{CallBegan, CallEnded};
use capstan_journal::JournalError;

use super::{Relay, ledger};
use crate::events::Happened;

impl Relay {
    /// Records a call. An agent that asks for a receipt makes the call only after it is stored, so
    /// that a crash does not allow an additional call.
    pub(super) async fn call_began(&mut self, call: &CallBegan) -> Result<(), JournalError> {
        ledger::call_began(&mut self.run, call.member.as_deref());
        if let Some(member) = &call.member {
            let (member, about) = (Arc::clone(member), call.about.clone());
            self.engine.emit(&self.run, Happened::CallBegan { member, about });
        }
        let Some(receipt) = &call.receipt else { return Ok(()) };
        let here = (self.run.state, self.run.attempt);
        self.engine.journal.transition(here, self.run.clone(), Vec::new(), None).await?;
        receipt.give();
        Ok(())
    }

    pub(super) fn call_ended(&mut self, call: &CallEnded) {
        ledger::call_ended(&mut self.run, call);
        let (model, usage) = self.answered();
        self.engine.emit(&self.run, Happened::CallEnded { call: call.clone(), model, usage });
    }
}

//! Where the fold over packets stands. See `mapping` for what packets become.
//!
//! The state is what the readers' rules ask for: which text is open, which calls were told. Text is
//! not part of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use capstan_journal::Run;
use capstan_protocol::StreamError;

use super::ask::Manner;
use super::chunk::{Chunk, raw};
use super::message::UiMessage;

/// What a run's chunks need to know besides its packets. All of it is fixed when the run is
/// claimed.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// The message that the chunks make, or add to.
    pub(super) message_id: String,
    /// The message as it was when the run began, if it goes on with one.
    pub(super) continued: Option<Arc<UiMessage>>,
    pub(super) is_dynamic: bool,
}

impl Facts {
    pub(super) fn new(run: &Run, manner: Manner) -> Self {
        let is_dynamic = manner.dynamic_tools;
        let continued = manner.continued();
        let own = || format!("msg_{}", run.stream_id);
        let message_id = continued.as_ref().map_or_else(own, |message| message.id.clone());
        Self { message_id, continued, is_dynamic }
    }

    /// What the message begins with.
    pub(super) fn start(&self) -> Chunk {
        Chunk { message_id: Some(self.message_id.clone()), ..Chunk::of("start") }
    }
}

/// A call whose arguments are still told.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// The message has it already.
    pub(super) is_known: bool,
}

#[derive(Debug)]
pub(super) struct Fold {
    pub(super) facts: Facts,
    /// The seq at which the open text began.
    pub(super) text: Option<u64>,
    pub(super) open: Vec<Call>,
    /// Calls that the message has.
    pub(super) known: BTreeSet<String>,
    /// Calls of this run that nobody has answered.
    pub(super) pending: BTreeSet<String>,
    /// The agent itself has answered a call of this step: what it says next belongs to another one.
    /// Pages look at the last step for calls that were answered, and would send its results again.
    pub(super) is_step_done: bool,
    /// What is said no longer counts: the chat has ended in error.
    pub(super) has_failed: bool,
    pub(super) is_over: bool,
}

impl Fold {
    pub(super) fn new(facts: Facts) -> Self {
        let parts = facts.continued.iter().flat_map(|message| &message.parts);
        let known = parts.filter_map(|part| part.tool_call_id.clone()).collect();
        Self {
            facts,
            text: None,
            open: Vec::new(),
            known,
            pending: BTreeSet::new(),
            is_step_done: false,
            has_failed: false,
            is_over: false,
        }
    }

    /// Something is about to be said: in a new step, if the last one is done.
    pub(super) fn begin(&mut self, out: &mut Vec<Chunk>) {
        if !self.is_step_done || !self.pending.is_empty() {
            return;
        }
        self.is_step_done = false;
        self.end_text(out);
        out.extend([Chunk::of("finish-step"), Chunk::of("start-step")]);
    }

    pub(super) fn end_text(&mut self, out: &mut Vec<Chunk>) {
        if let Some(began) = self.text.take() {
            out.push(Chunk::edge("text-end", began.to_string()));
        }
    }

    /// There is no room for a code in an error, so that it comes before.
    pub(super) fn fail(&mut self, error: &StreamError, out: &mut Vec<Chunk>) {
        self.end_text(out);
        out.push(Chunk::transient("data-capstan-error", raw(error)));
        out.push(Chunk::error(&error.message));
        self.has_failed = true;
    }
}

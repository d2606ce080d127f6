//! The state of the fold over packets. `mapping` has the fold itself.
//!
//! The state has what the readers' rules need: which text is open, and which calls were sent. It
//! has no text.

use std::collections::BTreeSet;
use std::sync::Arc;

use capstan_journal::Run;
use capstan_protocol::StreamError;

use super::ask::RunOptions;
use super::chunk::{Chunk, raw};
use super::message::UiMessage;

/// The facts of a run that its chunks need besides the packets. They are fixed when the run is
/// claimed.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// The id of the message that the chunks make, or add to.
    pub(super) message_id: String,
    /// The message that the run continues, as it was when the run began.
    pub(super) continued: Option<Arc<UiMessage>>,
    pub(super) is_dynamic: bool,
}

impl Facts {
    pub(super) fn new(run: &Run, options: RunOptions) -> Self {
        let is_dynamic = options.dynamic_tools;
        let continued = options.continued();
        let own = || format!("msg_{}", run.stream_id);
        let message_id = continued.as_ref().map_or_else(own, |message| message.id.clone());
        Self { message_id, continued, is_dynamic }
    }

    /// The first chunks of the message.
    pub(super) fn start(&self) -> Chunk {
        Chunk { message_id: Some(self.message_id.clone()), ..Chunk::of("start") }
    }
}

/// A call whose arguments are still being sent.
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
    /// Calls of this run without an answer.
    pub(super) pending: BTreeSet<String>,
    /// The agent itself has answered a call of this step, so its next output begins another step.
    /// Pages look for answered calls in the last step, and would send the results again.
    pub(super) is_step_done: bool,
    /// The chat has ended in error, so later output does not count.
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

    /// Output follows. If the last step is done, it begins a new one.
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

    /// An error chunk has no member for a code, so the code comes in a chunk before it.
    pub(super) fn fail(&mut self, error: &StreamError, out: &mut Vec<Chunk>) {
        self.end_text(out);
        out.push(Chunk::transient("data-capstan-error", raw(error)));
        out.push(Chunk::error(&error.message));
        self.has_failed = true;
    }
}

//! Where an agent writes. Errors are typed; there is no way to write one as a string.

use std::fmt;

use capstan_protocol::agui::Interrupt;
use capstan_protocol::{
    CitationBlock, DecodeError, ErrorSeverity, Fault, MarkdownBlock, MediaCarousel,
    PresentationEventType, ProgressUpdate, RawObject, ThoughtTrace, UserError, event,
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::calls::CallBegan;
use crate::output::{Output, Stopped};
use crate::queue::{Inbox, Outbox, queue};

/// Why something could not be written.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteError {
    /// The run was stopped.
    Stopped(Stopped),
    /// The value is not a JSON object.
    Payload(DecodeError),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(e) => e.fmt(f),
            Self::Payload(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for WriteError {}

impl From<Stopped> for WriteError {
    fn from(e: Stopped) -> Self {
        Self::Stopped(e)
    }
}

/// The agent's end. Writing waits while the journal is slow: that is how back-pressure reaches the
/// upstream.
#[derive(Debug)]
pub struct Writer {
    outputs: Outbox,
    has_answered: bool,
}

/// A writer and the end that the run reads from; `capacity` outputs may be under way.
pub fn channel(capacity: usize) -> (Writer, Inbox) {
    let (outputs, inbox) = queue(capacity);
    (Writer { outputs, has_answered: false }, inbox)
}

impl Writer {
    /// A writer without a reader.
    pub fn closed() -> Self {
        channel(1).0
    }

    async fn send(&mut self, output: Output) -> Result<(), Stopped> {
        self.has_answered |= output.is_answer();
        self.outputs.send(|queue| queue.push(output)).await
    }

    /// Whether this writer has written a part of the answer.
    pub fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Reports that the agent calls an upstream.
    pub async fn call(&mut self, call: CallBegan) -> Result<(), Stopped> {
        let receipt = call.receipt.clone();
        self.send(Output::CallBegan(Box::new(call))).await?;
        if let Some(receipt) = receipt {
            // The reader gives it, or drops the attempt.
            receipt.given().await;
        }
        Ok(())
    }

    /// Writes what a decoder made.
    pub async fn put(&mut self, output: Output) -> Result<(), Stopped> {
        self.send(output).await
    }

    /// Writes all of it, in one go: the reader wakes up once.
    pub async fn put_all(&mut self, outputs: &mut Vec<Output>) -> Result<(), Stopped> {
        if outputs.is_empty() {
            return Ok(());
        }
        self.has_answered |= outputs.iter().any(Output::is_answer);
        self.outputs.send(|queue| queue.append(outputs)).await
    }

    /// Reports that the agent works on something that it cannot write yet, so that the idle timeout
    /// starts again.
    pub fn alive(&mut self) -> Result<(), Stopped> {
        self.outputs.alive()
    }

    /// Writes a piece of the answer.
    pub async fn delta(&mut self, text: impl Into<String>) -> Result<(), Stopped> {
        self.send(Output::Delta(text.into())).await
    }

    /// Takes back this attempt's text after its first `keep` bytes; the new text follows.
    pub async fn again(&mut self, keep: usize) -> Result<(), Stopped> {
        self.send(Output::Again { keep }).await
    }

    /// Writes an event of any type; `data` must become a JSON object.
    pub async fn event(&mut self, kind: &str, data: &impl Serialize) -> Result<(), WriteError> {
        let payload = event::envelope(kind, data).map_err(WriteError::Payload)?;
        Ok(self.send(Output::Event { kind: kind.to_owned(), payload }).await?)
    }

    /// Writes a finished event payload, such as one of another CAP server.
    pub async fn raw_event(&mut self, kind: &str, payload: RawObject) -> Result<(), Stopped> {
        self.send(Output::Event { kind: kind.to_owned(), payload }).await
    }

    /// Shows sources.
    pub async fn citations(&mut self, block: &CitationBlock) -> Result<(), WriteError> {
        self.event(PresentationEventType::CitationBlock.as_str(), block).await
    }

    /// Shows progress.
    pub async fn progress(&mut self, update: &ProgressUpdate) -> Result<(), WriteError> {
        self.event(PresentationEventType::ProgressIndicator.as_str(), update).await
    }

    /// Shows media.
    pub async fn media(&mut self, carousel: &MediaCarousel) -> Result<(), WriteError> {
        self.event(PresentationEventType::MediaCarousel.as_str(), carousel).await
    }

    /// Shows markdown; a client that cannot render blocks gets it as text.
    pub async fn markdown(&mut self, content: impl Into<String>) -> Result<(), WriteError> {
        let block = MarkdownBlock { content: content.into() };
        self.event(PresentationEventType::MarkdownBlock.as_str(), &block).await
    }

    /// Shows a thought.
    pub async fn thought(&mut self, thought: impl Into<String>) -> Result<(), WriteError> {
        let trace = ThoughtTrace { thought: thought.into() };
        self.event(PresentationEventType::ThoughtTrace.as_str(), &trace).await
    }

    /// Reports to the user that a part failed while the agent continues.
    pub async fn user_error(&mut self, error: &UserError) -> Result<(), WriteError> {
        self.event(event::USER_ERROR, error).await
    }

    /// Reports to the client that something minor failed, as a WARNING whatever the fault's
    /// severity.
    pub async fn warning(&mut self, fault: &Fault) -> Result<(), Stopped> {
        let warning = fault.clone().with_severity(ErrorSeverity::Warning);
        self.send(Output::Warning(Box::new(warning.to_stream_error(Default::default())))).await
    }

    /// Names the model that answers, for CLOSE and the list of streams.
    pub async fn model(&mut self, name: impl Into<String>) -> Result<(), Stopped> {
        self.send(Output::Model(name.into())).await
    }

    /// Reports the usage so far; the last report counts.
    pub async fn usage(&mut self, usage: Map<String, Value>) -> Result<(), Stopped> {
        self.send(Output::Usage(usage)).await
    }

    /// Reports the id of work that was started elsewhere, so that a stop can end it: see
    /// [`Agent::end`](crate::Agent::end). The gateway records it before anything that is written
    /// after it.
    pub async fn far_id(&mut self, id: impl Into<String>) -> Result<(), Stopped> {
        self.send(Output::FarId(id.into())).await
    }

    /// Names the reason of the end, if the answer is not complete.
    pub async fn reason(&mut self, reason: impl Into<String>) -> Result<(), Stopped> {
        self.send(Output::Reason(reason.into())).await
    }

    /// Asks the user. Return after the last question: the run ends with it, and the next one has
    /// the answers in [`Turn::answers`](crate::Turn::answers), under the same ids. An id is the
    /// agent's own, unique within the run.
    pub async fn ask(&mut self, interrupt: Interrupt) -> Result<(), Stopped> {
        self.send(Output::Interrupt(Box::new(interrupt))).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_small() {
        // The largest is a map of usage, whose size depends on a feature of serde_json.
        assert!(
            size_of::<Output>() <= 16 + size_of::<Map<String, Value>>().max(40),
            "{}",
            size_of::<Output>()
        );
    }
}

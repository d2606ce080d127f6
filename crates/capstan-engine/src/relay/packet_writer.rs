//! Turns an agent's outputs into packets. It leaves out what viewers have from an earlier attempt.

mod calls;
mod native;
#[cfg(test)]
mod tests;
mod thoughts;

use capstan_agent::{Continued, Output};
use capstan_journal::{ContinuedBy, Frame, JournalError, Run};
use capstan_protocol::agui::Interrupt;
use capstan_protocol::{
    ChatMessage, Close, Event, EventView, Fault, FaultKind, NATIVE, Payload, PresentationEventType,
    RawObject, StreamError, StreamReset, Timestamp, event, sse,
};

use self::native::Passed;
use self::thoughts::is_thought;
use super::attempt_diff::Again;
use super::call_event::TOOL_CALL;
use super::frame_encoder::FrameEncoder;
use super::native_log::NativeLog;
use super::run_summary::RunSummary;
use super::sent_log::SentLog;
use super::text_diff::Comparison;
use super::text_diff::Forgotten;
use crate::Engine;

/// Writes the packets of one stream.
pub(super) struct PacketWriter {
    engine: Engine,
    frames: FrameEncoder,
    sent: SentLog,
    summary: RunSummary,
    viewers: ViewerOptions,
    number: u32,
    attempt: Attempt,
}

/// The abilities of a run's viewers.
struct ViewerOptions {
    accepts_reset: bool,
    /// Clients see nothing of the run before its end, so everything can be taken back.
    is_unseen: bool,
    supported: Option<Vec<String>>,
}

impl ViewerOptions {
    fn of(run: &Run) -> Self {
        Self {
            accepts_reset: run.accepts_reset || run.is_unseen,
            is_unseen: run.is_unseen,
            supported: run.supported_events.clone(),
        }
    }

    fn wants(&self, kind: &str) -> bool {
        let is_listed =
            |supported: &Vec<String>| supported.iter().any(|s| s.eq_ignore_ascii_case(kind));
        kind == event::USER_ERROR || self.supported.as_ref().is_none_or(is_listed)
    }
}

/// The progress of the present attempt.
#[derive(Default)]
struct Attempt {
    /// Its interrupts. They are written with the end of the run if the attempt succeeds.
    asked: Vec<Interrupt>,
    /// Bytes of text that its agent wrote.
    received: usize,
    /// Its native parts.
    native: NativeLog,
    /// The length of its thoughts up to the last native part.
    thoughts_done: usize,
    /// Its thoughts since then, if viewers have others at this place.
    own_thoughts: Option<String>,
    /// Whether a thought was sent since the last native part.
    has_shown_thought: bool,
    /// Native events since the last other output that were not sent.
    passed_natives: Vec<(Passed, RawObject)>,
    /// For each block that became text, because the client cannot show blocks: its position and
    /// length.
    as_markdown: Vec<(usize, usize)>,
    /// Whether the agent restarted at an earlier position.
    is_rewound: bool,
    /// Bytes that it repeated and the relay left out.
    swallowed: u64,
    /// The lowest packet to which it reset the viewers.
    reset_to: Option<u64>,
    /// The time of its first text or event.
    first_at: Option<Timestamp>,
    /// Whether viewers have output of earlier attempts.
    is_later: bool,
    continued_by: Option<ContinuedBy>,
}

impl Attempt {
    /// Bytes of its text as viewers have it.
    fn place(&self) -> usize {
        self.received + self.as_markdown.iter().map(|(_, len)| len).sum::<usize>()
    }

    /// Records how the attempt continues the answer. The last way counts, but a reset stays.
    fn continues(&mut self, by: ContinuedBy) {
        if self.continued_by != Some(ContinuedBy::Reset) {
            self.continued_by = Some(by);
        }
    }

    /// Takes notice of an output before it is written.
    fn observe(&mut self, output: &Output) {
        if let Output::Continued(how) = output {
            self.continues(match how {
                Continued::Prefill => ContinuedBy::Prefill,
                Continued::Resume => ContinuedBy::UpstreamResume,
            });
        } else if self.is_later && self.continued_by.is_none() && output.is_answer() {
            self.continues(ContinuedBy::Comparison);
        }
    }
}

impl PacketWriter {
    pub(super) fn new(engine: &Engine, run: &Run) -> Self {
        Self {
            engine: engine.clone(),
            frames: FrameEncoder::new(engine, run),
            // A run with one attempt compares nothing, unless its agent restarts by itself.
            sent: SentLog::new(run.max_attempts > 1),
            summary: RunSummary::new(run),
            viewers: ViewerOptions::of(run),
            number: run.attempt,
            attempt: Attempt::default(),
        }
    }

    /// Creates a writer that continues a stream of another process. The last packet gives it the
    /// time.
    pub(super) async fn after_last(engine: &Engine, run: &Run) -> Self {
        let mut packets = Self::new(engine, run);
        if let Some(before) = run.last_seq.checked_sub(1) {
            // If that packet is damaged or in the gap of a lost tail, the record's time has to do.
            let last =
                engine.journal.store().read(run.stream_id, before, 1, 1).await.unwrap_or_default();
            if let Some(packet) = last.first().and_then(|f| sse::decode_packet(&f.bytes)) {
                packets.frames.saw(packet.t);
            }
        }
        packets
    }

    /// Whether this writer has neither written nor replayed a packet.
    pub(super) fn is_fresh(&self) -> bool {
        self.sent.is_empty()
    }

    /// Whether sent packets are stored for comparison.
    pub(super) fn compares(&self) -> bool {
        self.sent.diff.compares()
    }

    /// Prepares for comparison: reads the sent packets from the journal. They must be committed.
    pub(super) async fn compare(&mut self) -> Result<(), JournalError> {
        self.sent = SentLog::new(true);
        self.replay().await?;
        self.attempt.thoughts_done = self.sent.thoughts_done();
        Ok(())
    }

    /// The answer as viewers have it, after resets; only the beginning if it is very long.
    pub(super) fn text(&self) -> &str {
        self.sent.diff.text()
    }

    /// Takes the answer as messages, at the end of the run. A long answer is read from the journal.
    /// If it exceeds what a model can read, the session stores only its beginning.
    pub(super) async fn take_messages(&mut self) -> Result<Vec<ChatMessage>, JournalError> {
        let text = match self.sent.diff.take_text() {
            Some(text) => text,
            None => {
                self.compare().await?;
                self.sent.diff.text().to_owned()
            }
        };
        Ok(self.sent.take_messages(&text, self.attempt.native.take()))
    }

    /// The answer as messages, from memory only; just the beginning if it is very long.
    pub(super) fn messages_so_far(&mut self) -> Vec<ChatMessage> {
        let text = self.sent.diff.text().to_owned();
        self.sent.take_messages(&text, self.attempt.native.take())
    }

    /// Memory of the stored answer, in bytes.
    pub(super) fn remembered(&self) -> usize {
        self.sent.bytes() + self.attempt.native.bytes()
    }

    /// The interrupts of the run, if it ends now.
    pub(super) fn asked(&self) -> &[Interrupt] {
        &self.attempt.asked
    }

    /// Writes the interrupts, even if the client does not list their type: without them the end of
    /// the run makes no sense.
    pub(super) fn write_asked(&mut self) {
        let events: Vec<_> = self
            .attempt
            .asked
            .iter()
            .filter_map(|asked| event::envelope(event::INTERRUPT, asked).ok())
            .collect();
        events.into_iter().for_each(|payload| self.write(Payload::Event(payload)));
    }

    /// Records an interrupt. Its id on the wire begins with the stream, so that an answer finds the
    /// run.
    fn ask(&mut self, interrupt: Interrupt) {
        let id = format!("{}:{}", self.frames.stream_id(), interrupt.id);
        let known_as = |call: String| self.sent.calls.known_as(&call).map_or(call, str::to_owned);
        let tool_call_id = interrupt.tool_call_id.map(known_as);
        self.attempt.asked.retain(|asked| asked.id != id);
        self.attempt.asked.push(Interrupt { id, tool_call_id, ..interrupt });
    }

    pub(super) fn events(&self) -> u64 {
        self.sent.events()
    }

    pub(super) fn seq(&self) -> u64 {
        self.frames.seq()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.frames.bytes()
    }

    pub(super) fn take_frames(&mut self) -> Vec<Frame> {
        self.frames.take_frames()
    }

    pub(super) fn take_back(&mut self, seq: u64, bytes: u64) {
        self.frames.take_back(seq, bytes);
    }

    /// The model, the usage and the finish reason that the agent reported.
    pub(super) fn summary(&self) -> &RunSummary {
        &self.summary
    }

    /// The tokens of the present attempt, as limits count them.
    pub(super) fn attempt_tokens(&self) -> u64 {
        self.summary.attempt_tokens(self.attempt.received)
    }

    /// Whether a model could continue the text.
    pub(super) fn can_continue(&self) -> bool {
        self.sent.can_continue()
    }

    /// Whether viewers have a complete call, or a text with a call after it.
    pub(super) fn has_complete_part(&self) -> bool {
        self.sent.has_complete_part()
    }

    /// Bytes that the present attempt repeated and viewers have. After a prefill the model repeats
    /// nothing.
    pub(super) fn swallowed(&self) -> u64 {
        let is_prefilled = self.attempt.continued_by == Some(ContinuedBy::Prefill);
        if is_prefilled { 0 } else { self.attempt.swallowed }
    }

    /// The packet to which the present attempt reset the viewers, if it did.
    pub(super) fn reset_to(&self) -> Option<u64> {
        self.attempt.reset_to
    }

    /// How the present attempt continues an answer that had broken off, if it does.
    pub(super) fn continued_by(&self) -> Option<ContinuedBy> {
        self.attempt.continued_by
    }

    /// The time of the present attempt's first text or event. Errors and warnings do not count.
    pub(super) fn first_at(&self) -> Option<Timestamp> {
        self.attempt.first_at
    }

    /// The time of the last packet, or of the record if there is none.
    pub(super) fn latest(&self) -> Timestamp {
        self.frames.latest()
    }

    /// Reads the packets of earlier attempts, possibly of another process.
    pub(super) async fn replay(&mut self) -> Result<(), JournalError> {
        let (mut after, stream) = (0, self.frames.stream_id());
        loop {
            let frames = self.engine.journal.store().read(stream, after, 1024, 1024 * 1024).await?;
            let Some(last) = frames.last() else { return Ok(()) };
            after = last.seq;
            for frame in &frames {
                if let Some(packet) = sse::decode_packet(&frame.bytes) {
                    self.frames.saw(packet.t);
                    self.sent.remember(packet.seq, &packet.payload);
                }
            }
        }
    }

    /// Begins an attempt. Its outputs are compared with the packets of earlier ones.
    pub(super) fn begin_attempt(&mut self, number: u32) {
        let is_later = !self.sent.is_empty();
        (self.number, self.attempt) = (number, Attempt { is_later, ..Attempt::default() });
        self.sent.begin_attempt();
        self.summary.begin_attempt();
    }

    /// Takes an output of the agent.
    pub(super) fn take(&mut self, output: Output) -> Result<(), Fault> {
        self.attempt.observe(&output);
        match self.summary.take(output) {
            Some(Output::Delta(text)) => {
                self.attempt.received += text.len();
                self.delta(text)?;
            }
            Some(Output::Again { keep }) => self.restart(keep)?,
            Some(Output::Event { kind, payload }) => {
                let place = self.attempt.place();
                self.attempt.native.record(&kind, place, &payload);
                self.event(&kind, payload)?;
            }
            Some(Output::Warning(error)) => {
                self.log_left_out(&error);
                self.write(Payload::Error(error));
            }
            Some(Output::Interrupt(interrupt)) => self.ask(*interrupt),
            Some(_) | None => {}
        }
        let limits = &self.engine.settings.limits;
        if self.seq() > limits.packets_per_stream || self.bytes() > limits.bytes_per_stream {
            return Err(Fault::new(FaultKind::StreamTooLong));
        }
        Ok(())
    }

    /// Logs the parts of the request or of the answer that the agent left out or changed: many
    /// clients do not show warnings.
    fn log_left_out(&self, error: &StreamError) {
        const WORDS: &str = "the agent's protocol has no word for these";
        if error.code != FaultKind::NotTranslated.entry().code {
            return;
        }
        let stream = self.frames.stream_id();
        let detail = |name: &str| error.details.as_ref().and_then(|details| details.get(name));
        if let Some(left_out) = detail("left_out") {
            tracing::warn!(%stream, %left_out, "{WORDS}: left out");
        }
        if let Some(changed) = detail("changed") {
            tracing::warn!(%stream, %changed, "{WORDS}: changed");
        }
    }

    fn delta(&mut self, text: String) -> Result<(), Fault> {
        let length = text.len();
        self.settle_natives();
        match self.sent.diff.compare_text(text) {
            Comparison::Equal => {
                self.attempt.swallowed += length as u64;
                Ok(())
            }
            Comparison::New(rest) => {
                self.attempt.swallowed += length.saturating_sub(rest.len()) as u64;
                self.write_text(rest);
                Ok(())
            }
            Comparison::Different(rest) => self.diverge(Some(Again::Text(rest)), u64::MAX),
        }
    }

    /// The agent restarts at an earlier position. Its positions do not count blocks that became
    /// text, but ours do.
    fn restart(&mut self, keep: usize) -> Result<(), Fault> {
        self.settle_natives();
        self.attempt.received = keep.min(self.attempt.received);
        self.attempt.as_markdown.retain(|(at, _)| *at <= keep);
        self.attempt.native.rewind_to(self.attempt.place());
        let after = self.sent.diff.rewind_to(self.attempt.place()).map_err(diverged)?;
        self.sent.calls.rewind_after(after);
        self.attempt.is_rewound = true;
        Ok(())
    }

    /// Writes text. The string is moved from the agent, so encoding it is the first copy.
    fn write_text(&mut self, text: String) {
        self.sent.diff.sent_text(self.seq() + 1, &text);
        self.write(Payload::Delta(text));
    }

    fn event(&mut self, kind: &str, payload: RawObject) -> Result<(), Fault> {
        let is_wanted = self.viewers.wants(kind);
        if is_wanted && self.sent.diff.compares() {
            if kind == NATIVE {
                self.native(payload);
                return Ok(());
            }
            if kind.starts_with(TOOL_CALL) {
                return self.call_event(payload);
            }
            self.settle_natives();
            if is_thought(kind) {
                return self.thought(payload);
            }
        }
        if self.sent.diff.compare_event(&payload) {
            self.attempt.swallowed += payload.get().len() as u64;
            return Ok(());
        }
        if is_wanted {
            self.sent.count_event();
            self.show(payload);
            return Ok(());
        }
        // A client that cannot show blocks can still show markdown as text.
        let is_markdown = kind.eq_ignore_ascii_case(PresentationEventType::MarkdownBlock.as_str());
        if is_markdown && let EventView::Markdown(block) = Event::of(&payload).view() {
            self.attempt.as_markdown.push((self.attempt.received, block.content.len()));
            self.delta(block.content)?;
        }
        Ok(())
    }

    fn show(&mut self, payload: RawObject) {
        self.write(Payload::Event(payload.clone()));
        self.sent.sent_event(self.frames.seq(), &payload);
    }

    /// The packet to which viewers can be reset, if they can. It is at most `limit`, even if later
    /// packets agree.
    fn reset_place(&self, limit: u64, first_different: u64) -> Option<u64> {
        if !self.viewers.accepts_reset {
            return None;
        }
        let calls = &self.sent.calls;
        let agreed = self.sent.diff.last_agreed(first_different);
        let agreed = agreed.max(calls.last_repeated_before(first_different));
        let place = calls.outside(agreed.min(limit));
        // A client may have acted on a complete call, so the reset must not remove one.
        (place >= calls.last_whole() || self.viewers.is_unseen).then_some(place)
    }

    /// A later attempt differs: viewers drop the different part and get it again, if they accept
    /// resets.
    fn diverge(&mut self, rest: Option<Again>, limit: u64) -> Result<(), Fault> {
        let place = self.reset_place(limit, self.sent.diff.first_different());
        let place = place.ok_or_else(|| Fault::new(FaultKind::AttemptDiverged))?;
        self.go_back(place, rest)
    }

    /// Resets viewers to a packet, and repeats the removed packets that still agree.
    fn go_back(&mut self, after_seq: u64, rest: Option<Again>) -> Result<(), Fault> {
        let calls = self.sent.calls.repeated_after(after_seq);
        let mut again = self.sent.diff.cut(after_seq, calls).map_err(diverged)?;
        match (again.last_mut(), rest) {
            (Some(Again::Text(text)), Some(Again::Text(rest))) => text.push_str(&rest),
            (Some(Again::Thought(text, None)), Some(Again::Thought(rest, _))) => {
                text.push_str(&rest);
            }
            (_, rest) => again.extend(rest),
        }
        self.attempt.continues(ContinuedBy::Reset);
        let data = StreamReset { attempt: self.number, after_seq };
        self.attempt.reset_to =
            Some(self.attempt.reset_to.map_or(after_seq, |before| before.min(after_seq)));
        let payload = event::envelope(event::STREAM_RESET, &data).map_err(Fault::from_error)?;
        self.write(Payload::Event(payload));
        self.sent.reset(after_seq);
        for piece in again {
            match piece {
                Again::Text(text) => self.write_text(text),
                Again::Thought(text, event) => self.write_thought(&text, event),
                Again::Event(event) => self.show(event),
            }
        }
        Ok(())
    }

    /// Ends an attempt. If it wrote less than an earlier attempt, that is a difference too.
    pub(super) fn end_attempt(&mut self) -> Result<(), Fault> {
        self.settle_natives();
        self.complete_calls(None)?;
        match self.sent.calls.first_missing() {
            Some(limit) => self.diverge(None, limit),
            None if self.sent.diff.is_behind() => self.diverge(None, u64::MAX),
            None => Ok(()),
        }
    }

    /// The content of CLOSE: a reason, or a report if there is more data.
    pub(super) fn close(&self, reason: &str, agent: &str, calls: Option<u32>) -> Close {
        self.summary.close(reason, agent, self.number, calls)
    }

    /// Writes a packet.
    pub(super) fn write(&mut self, payload: Payload) {
        let is_output = is_output(&payload);
        self.frames.write(payload);
        if is_output {
            self.attempt.first_at = self.attempt.first_at.or(Some(self.frames.latest()));
        }
    }
}

/// Whether a packet is an agent's output. ERROR and CLOSE are not.
pub(super) fn is_output(payload: &Payload) -> bool {
    match payload {
        Payload::Delta(_) | Payload::Event(_) => true,
        Payload::Error(_) | Payload::Close(_) => false,
    }
}

/// The fault if a comparison needs text that is no longer in memory.
fn diverged(_: Forgotten) -> Fault {
    Fault::new(FaultKind::AttemptDiverged)
}

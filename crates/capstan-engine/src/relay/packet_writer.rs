//! The packets: turns an agent's outputs into packets that viewers have not seen yet.

mod calls;
#[cfg(test)]
mod tests;
mod thoughts;

use capstan_agent::Output;
use capstan_journal::{Frame, JournalError, Run};
use capstan_protocol::agui::Interrupt;
use capstan_protocol::{
    ChatMessage, Close, Event, EventView, Fault, FaultKind, NATIVE, Payload, PresentationEventType,
    RawObject, StreamReset, Timestamp, event, sse,
};

use self::thoughts::is_thought;
use super::attempt_diff::Again;
use super::call_event::TOOL_CALL;
use super::frame_encoder::FrameEncoder;
use super::native_log::NativeLog;
use super::run_summary::RunSummary;
use super::sent_log::SentLog;
use super::text_diff::Forgotten;
use super::text_diff::Met;
use crate::Engine;

/// Writes one stream.
pub(super) struct PacketWriter {
    engine: Engine,
    frames: FrameEncoder,
    sent: SentLog,
    summary: RunSummary,
    viewers: ViewerOptions,
    number: u32,
    attempt: Attempt,
}

/// What the viewers of a run can take.
struct ViewerOptions {
    accepts_reset: bool,
    /// Nobody sees anything of the run before its end, so that everything can be taken back.
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

/// What the present attempt has done so far.
#[derive(Default)]
struct Attempt {
    /// What it asks. It is written with the end of the run, if the attempt succeeds.
    asked: Vec<Interrupt>,
    /// Bytes of text that its agent wrote.
    heard: usize,
    /// What only its provider understands of it.
    native: NativeLog,
    /// Up to where its thoughts have a part that holds the rest of them.
    thoughts_done: usize,
    /// Its thoughts since then, where they are not those that viewers have.
    own_thoughts: Option<String>,
    /// Where in them a block was turned into text for a client without blocks, and its length.
    turned: Vec<(usize, usize)>,
    /// It went back within itself.
    is_rewound: bool,
    /// Bytes that it repeated.
    swallowed: u64,
    /// Back to which packet it took the viewers.
    reset_to: Option<u64>,
    /// The time of the first packet that says something of its.
    spoke_at: Option<Timestamp>,
}

impl Attempt {
    /// Bytes of text that viewers have of it.
    fn place(&self) -> usize {
        self.heard + self.turned.iter().map(|(_, len)| len).sum::<usize>()
    }
}

impl PacketWriter {
    pub(super) fn new(engine: &Engine, run: &Run) -> Self {
        Self {
            engine: engine.clone(),
            frames: FrameEncoder::new(engine, run),
            // What has one attempt has nothing to compare, unless it goes back by itself.
            sent: SentLog::new(run.max_attempts > 1),
            summary: RunSummary::new(run),
            viewers: ViewerOptions::of(run),
            number: run.attempt,
            attempt: Attempt::default(),
        }
    }

    /// A writer that goes on after what another life wrote, whose last packet tells the time.
    pub(super) async fn after_last(engine: &Engine, run: &Run) -> Self {
        let mut packets = Self::new(engine, run);
        if let Some(before) = run.last_seq.checked_sub(1) {
            // A place that is damaged, or the gap of a lost tail, tells nothing; the record is good
            // enough then.
            let last =
                engine.journal.store().read(run.stream_id, before, 1, 1).await.unwrap_or_default();
            if let Some(packet) = last.first().and_then(|f| sse::decode_packet(&f.bytes)) {
                packets.frames.saw(packet.t);
            }
        }
        packets
    }

    /// Nothing was written or replayed by this writer yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.sent.is_empty()
    }

    /// Whether what comes can be compared with what was sent.
    pub(super) fn compares(&self) -> bool {
        self.sent.diff.compares()
    }

    /// Makes ready for comparing, by reading what was sent so far. It must be in the journal.
    pub(super) async fn compare(&mut self) -> Result<(), JournalError> {
        self.sent = SentLog::new(true);
        self.replay().await?;
        self.attempt.thoughts_done = self.sent.thoughts_done();
        Ok(())
    }

    /// The answer as a viewer has it now, resets applied; of a very long one, the beginning.
    pub(super) fn text(&self) -> &str {
        self.sent.diff.text()
    }

    /// What was said as messages, when nothing more will be said. A long one is read from the
    /// journal; of one that no model could read again, the beginning is what a session remembers.
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

    /// What was said as far as it is at hand; of a very long answer, the beginning.
    pub(super) fn messages_so_far(&mut self) -> Vec<ChatMessage> {
        let text = self.sent.diff.text().to_owned();
        self.sent.take_messages(&text, self.attempt.native.take())
    }

    /// What is remembered of what was said, in bytes.
    pub(super) fn remembered(&self) -> usize {
        self.sent.bytes() + self.attempt.native.bytes()
    }

    /// What the run asks, if it ends now.
    pub(super) fn asked(&self) -> &[Interrupt] {
        &self.attempt.asked
    }

    /// Writes what the run asks. Nobody may leave it out: without it the end of the run makes no
    /// sense.
    pub(super) fn write_asked(&mut self) {
        let events: Vec<_> = self
            .attempt
            .asked
            .iter()
            .filter_map(|asked| event::envelope(event::INTERRUPT, asked).ok())
            .collect();
        events.into_iter().for_each(|payload| self.write(Payload::Event(payload)));
    }

    /// Its id on the wire says where it was asked, so that an answer finds it.
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

    /// The model, the usage and the reason, as the agent reports them.
    pub(super) fn summary(&self) -> &RunSummary {
        &self.summary
    }

    /// The present attempt's tokens, as limits count them.
    pub(super) fn attempt_tokens(&self) -> u64 {
        self.summary.attempt_tokens(self.attempt.heard)
    }

    /// Whether a model could go on from the text.
    pub(super) fn can_continue(&self) -> bool {
        self.sent.can_continue()
    }

    /// Bytes that the present attempt said again, of what viewers have.
    pub(super) fn swallowed(&self) -> u64 {
        self.attempt.swallowed
    }

    /// Back to which packet the present attempt took the viewers, if it did.
    pub(super) fn reset_to(&self) -> Option<u64> {
        self.attempt.reset_to
    }

    /// When the present attempt first said something, if it did. Warnings and errors are told of
    /// it, not said by it.
    pub(super) fn spoke_at(&self) -> Option<Timestamp> {
        self.attempt.spoke_at
    }

    /// The time of the last packet, or of the record if there is none.
    pub(super) fn latest(&self) -> Timestamp {
        self.frames.latest()
    }

    /// Reads what earlier attempts wrote, possibly in another process's life.
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

    /// From here on, what is taken is compared with what earlier attempts sent.
    pub(super) fn begin_attempt(&mut self, number: u32) {
        (self.number, self.attempt) = (number, Attempt::default());
        self.sent.begin_attempt();
        self.summary.begin_attempt();
    }

    /// Takes one output of the agent's.
    pub(super) fn take(&mut self, output: Output) -> Result<(), Fault> {
        match self.summary.take(output) {
            Some(Output::Delta(text)) => {
                self.attempt.heard += text.len();
                self.delta(text)?;
            }
            Some(Output::Again { keep }) => self.again(keep)?,
            Some(Output::Event { kind, payload }) => {
                let place = self.attempt.place();
                self.attempt.native.note(&kind, place, &payload);
                self.event(&kind, payload)?;
            }
            Some(Output::Warning(error)) => self.write(Payload::Error(error)),
            Some(Output::Interrupt(interrupt)) => self.ask(*interrupt),
            Some(_) | None => {}
        }
        let limits = &self.engine.settings.limits;
        if self.seq() > limits.packets_per_stream || self.bytes() > limits.bytes_per_stream {
            return Err(Fault::new(FaultKind::StreamTooLong));
        }
        Ok(())
    }

    fn delta(&mut self, text: String) -> Result<(), Fault> {
        let length = text.len();
        match self.sent.diff.meet_text(text) {
            Met::Equal => {
                self.attempt.swallowed += length as u64;
                Ok(())
            }
            Met::New(rest) => {
                self.attempt.swallowed += length.saturating_sub(rest.len()) as u64;
                self.say(rest);
                Ok(())
            }
            Met::Different(rest) => self.diverge(Some(Again::Text(rest)), u64::MAX),
        }
    }

    /// The agent goes back within its attempt. Its places do not count blocks that became text,
    /// ours do.
    fn again(&mut self, keep: usize) -> Result<(), Fault> {
        self.attempt.heard = keep.min(self.attempt.heard);
        self.attempt.turned.retain(|(at, _)| *at <= keep);
        self.attempt.native.rewind_to(self.attempt.place());
        let after = self.sent.diff.rewind_to(self.attempt.place()).map_err(diverged)?;
        self.sent.calls.rewind_after(after);
        self.attempt.is_rewound = true;
        Ok(())
    }

    /// Moved here from the agent: encoding it is the first copy.
    fn say(&mut self, text: String) {
        self.sent.diff.sent_text(self.seq() + 1, &text);
        self.write(Payload::Delta(text));
    }

    fn event(&mut self, kind: &str, payload: RawObject) -> Result<(), Fault> {
        let is_wanted = self.viewers.wants(kind);
        if is_wanted && self.sent.diff.compares() {
            if kind.starts_with(TOOL_CALL) {
                return self.call_event(payload);
            }
            if is_thought(kind) {
                return self.thought(payload);
            }
        }
        if self.sent.diff.meet_event(&payload) {
            self.attempt.swallowed += payload.get().len() as u64;
            self.attempt.passed_part(kind, &self.sent.diff, &payload);
            return Ok(());
        }
        if is_wanted {
            let payload = if kind == NATIVE { self.with_its_thoughts(payload) } else { payload };
            self.sent.count_event();
            self.show(payload);
            return Ok(());
        }
        // A client that cannot show blocks can still read markdown.
        let is_markdown = kind.eq_ignore_ascii_case(PresentationEventType::MarkdownBlock.as_str());
        if is_markdown && let EventView::Markdown(block) = Event::of(&payload).view() {
            self.attempt.turned.push((self.attempt.heard, block.content.len()));
            self.delta(block.content)?;
        }
        Ok(())
    }

    fn show(&mut self, payload: RawObject) {
        self.write(Payload::Event(payload.clone()));
        self.sent.sent_event(self.frames.seq(), &payload);
    }

    /// Back to which packet viewers can be taken, if they can: nothing after `limit` stays, even if
    /// it agrees.
    fn reset_place(&self, limit: u64, first_different: u64) -> Option<u64> {
        if !self.viewers.accepts_reset {
            return None;
        }
        let calls = &self.sent.calls;
        let agreed = self.sent.diff.last_agreed(first_different);
        let agreed = agreed.max(calls.last_met_before(first_different));
        let place = calls.outside(agreed.min(limit));
        // A call that somebody may have acted upon cannot be taken back, nor made again.
        (place >= calls.last_whole() || self.viewers.is_unseen).then_some(place)
    }

    /// A later attempt said something else: viewers drop what differs and get it anew, if they can.
    fn diverge(&mut self, rest: Option<Again>, limit: u64) -> Result<(), Fault> {
        let place = self.reset_place(limit, self.sent.diff.first_different());
        let place = place.ok_or_else(|| Fault::new(FaultKind::AttemptDiverged))?;
        self.go_back(place, rest)
    }

    /// Takes viewers back to a packet, and tells again what agrees of what stood behind it.
    fn go_back(&mut self, after_seq: u64, rest: Option<Again>) -> Result<(), Fault> {
        let calls = self.sent.calls.met_after(after_seq);
        let mut again = self.sent.diff.cut(after_seq, calls).map_err(diverged)?;
        match (again.last_mut(), rest) {
            (Some(Again::Text(text)), Some(Again::Text(rest))) => text.push_str(&rest),
            (Some(Again::Thought(text, None)), Some(Again::Thought(rest, _))) => {
                text.push_str(&rest);
            }
            (_, rest) => again.extend(rest),
        }
        let data = StreamReset { attempt: self.number, after_seq };
        self.attempt.reset_to =
            Some(self.attempt.reset_to.map_or(after_seq, |before| before.min(after_seq)));
        let payload = event::envelope(event::STREAM_RESET, &data).map_err(Fault::from_error)?;
        self.write(Payload::Event(payload));
        self.sent.reset(after_seq);
        for piece in again {
            match piece {
                Again::Text(text) => self.say(text),
                Again::Thought(text, event) => self.say_thought(&text, event),
                Again::Event(event) => self.show(event),
            }
        }
        Ok(())
    }

    /// The agent is done; if it said less than an earlier attempt, that is a difference, too.
    pub(super) fn end_attempt(&mut self) -> Result<(), Fault> {
        self.complete_calls(None)?;
        match self.sent.calls.first_missing() {
            Some(limit) => self.diverge(None, limit),
            None if self.sent.diff.is_behind() => self.diverge(None, u64::MAX),
            None => Ok(()),
        }
    }

    /// What CLOSE says: a word, or a report when there is more to tell.
    pub(super) fn close(&self, reason: &str, agent: &str, calls: Option<u32>) -> Close {
        self.summary.close(reason, agent, self.number, calls)
    }

    /// Writes a packet.
    pub(super) fn write(&mut self, payload: Payload) {
        let says_something = is_said(&payload);
        self.frames.write(payload);
        if says_something {
            self.attempt.spoke_at = self.attempt.spoke_at.or(Some(self.frames.latest()));
        }
    }
}

/// Whether an agent says it. Errors and CLOSE are said of it.
pub(super) fn is_said(payload: &Payload) -> bool {
    match payload {
        Payload::Delta(_) | Payload::Event(_) => true,
        Payload::Error(_) | Payload::Close(_) => false,
    }
}

/// It may say something else, and what it said before is not kept.
fn diverged(_: Forgotten) -> Fault {
    Fault::new(FaultKind::AttemptDiverged)
}

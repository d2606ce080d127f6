//! The packets: turns outputs into packets with the next seq, encodes each once, and remembers what
//! was said.

use bytes::Bytes;
use capstan_agent::Output;
use capstan_journal::{Frame, JournalError, Run};
use capstan_protocol::agui::Interrupt;
use capstan_protocol::{
    ChatMessage, Close, CloseReport, Event, EventView, Fault, FaultKind, Payload,
    PresentationEventType, RawObject, StreamPacket, StreamReset, Timestamp, event, sse,
};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::attempt_diff::{AttemptDiff, Forgotten, Met};
use super::call_diff::{Call, CallDiff, MetCall, Said};
use super::spending::{self, Spending};
use super::tool_log::ToolLog;
use crate::Engine;

/// How the types of a tool call's events begin.
const TOOL_CALL: &str = "TOOL_CALL_";

/// Writes one stream.
pub(super) struct PacketWriter {
    stream_id: Uuid,
    seq: u64,
    bytes: u64,
    /// The time of the last packet. The next one's is no earlier, whoever sets the clock.
    latest: Timestamp,
    attempt: u32,
    accepts_reset: bool,
    /// Nobody sees anything of the run before its end, so that everything can be taken back.
    is_unseen: bool,
    supported: Option<Vec<String>>,
    engine: Engine,
    /// Encoded and not yet taken: the frames one behind the other, and where each ends.
    buffer: Vec<u8>,
    ends: Vec<usize>,
    events: u64,
    diff: AttemptDiff,
    calls: CallDiff,
    tools: ToolLog,
    /// What the present attempt asks. It is written with the end of the run, if the attempt
    /// succeeds.
    asked: Vec<Interrupt>,
    /// Bytes of text that the present attempt's agent wrote.
    heard: usize,
    /// Where in them a block was turned into text for a client without blocks, and its length.
    turned: Vec<(usize, usize)>,
    model: Option<String>,
    spending: Spending,
    /// The member of a route that answered last.
    member: Option<String>,
    reason: Option<String>,
    /// Bytes that the present attempt repeated.
    swallowed: u64,
    /// Back to which packet it took the viewers.
    reset_to: Option<u64>,
    /// The time of the first packet that says something of its.
    spoke_at: Option<Timestamp>,
}

impl PacketWriter {
    pub(super) fn new(engine: &Engine, run: &Run) -> Self {
        Self {
            stream_id: run.stream_id,
            seq: run.last_seq,
            bytes: run.bytes,
            latest: run.updated_at,
            attempt: run.attempt,
            accepts_reset: run.accepts_reset || run.is_unseen,
            is_unseen: run.is_unseen,
            supported: run.supported_events.clone(),
            engine: engine.clone(),
            buffer: Vec::new(),
            ends: Vec::new(),
            events: 0,
            // What has one attempt has nothing to compare, unless it goes back by itself.
            diff: AttemptDiff::new(run.max_attempts > 1),
            calls: CallDiff::default(),
            tools: ToolLog::default(),
            asked: Vec::new(),
            heard: 0,
            turned: Vec::new(),
            model: run.model.clone(),
            spending: Spending::of(run),
            member: None,
            reason: None,
            swallowed: 0,
            reset_to: None,
            spoke_at: None,
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
            let last = last.first().and_then(|frame| sse::decode_packet(&frame.bytes));
            packets.latest = last.map_or(packets.latest, |packet| packets.latest.max(packet.t));
        }
        packets
    }

    /// Nothing was written or replayed by this writer yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.diff.is_empty()
    }

    /// Whether what comes can be compared with what was sent.
    pub(super) fn compares(&self) -> bool {
        self.diff.compares()
    }

    /// Makes ready for comparing, by reading what was sent so far. It must be in the journal.
    pub(super) async fn compare(&mut self) -> Result<(), JournalError> {
        (self.diff, self.tools, self.events) = (AttemptDiff::new(true), ToolLog::default(), 0);
        self.calls = CallDiff::default();
        self.replay().await
    }

    /// The answer as a viewer has it now, resets applied; of a very long one, the beginning.
    pub(super) fn text(&self) -> &str {
        self.diff.text()
    }

    /// What was said as messages, when nothing more will be said. A long one is read from the
    /// journal; of one that no model could read again, the beginning is what a session remembers.
    pub(super) async fn take_messages(&mut self) -> Result<Vec<ChatMessage>, JournalError> {
        let text = match self.diff.take_text() {
            Some(text) => text,
            None => {
                self.diff = AttemptDiff::new(true);
                self.calls = CallDiff::default();
                self.tools = ToolLog::default();
                self.replay().await?;
                self.diff.text().to_owned()
            }
        };
        Ok(std::mem::take(&mut self.tools).messages(&text))
    }

    /// What was said as far as it is at hand; of a very long answer, the beginning.
    pub(super) fn messages_so_far(&mut self) -> Vec<ChatMessage> {
        std::mem::take(&mut self.tools).messages(self.diff.text())
    }

    /// What is remembered of what was said, in bytes.
    pub(super) fn remembered(&self) -> usize {
        self.diff.bytes() + self.tools.bytes()
    }

    /// What the run asks, if it ends now.
    pub(super) fn asked(&self) -> &[Interrupt] {
        &self.asked
    }

    /// Writes what the run asks. Nobody may leave it out: without it the end of the run makes no
    /// sense.
    pub(super) fn write_asked(&mut self) {
        let events: Vec<_> = self
            .asked
            .iter()
            .filter_map(|asked| event::envelope(event::INTERRUPT, asked).ok())
            .collect();
        events.into_iter().for_each(|payload| self.write(Payload::Event(payload)));
    }

    /// Its id on the wire says where it was asked, so that an answer finds it.
    fn ask(&mut self, interrupt: Interrupt) {
        let id = format!("{}:{}", self.stream_id, interrupt.id);
        self.asked.retain(|asked| asked.id != id);
        self.asked.push(Interrupt { id, ..interrupt });
    }

    pub(super) fn events(&self) -> u64 {
        self.events
    }

    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What was written since. One allocation for all of it: a frame is a slice.
    pub(super) fn take_frames(&mut self) -> Vec<Frame> {
        let mut bytes = Bytes::copy_from_slice(&self.buffer);
        self.buffer.clear();
        let (first, mut start) = (self.seq + 1 - self.ends.len() as u64, 0);
        let slice = |(seq, end): (u64, usize)| {
            let frame = Frame { seq, bytes: bytes.split_to(end - start) };
            start = end;
            frame
        };
        (first..).zip(self.ends.drain(..)).map(slice).collect()
    }

    /// Takes back what was written after this packet and never reached the journal.
    pub(super) fn take_back(&mut self, seq: u64, bytes: u64) {
        (self.seq, self.bytes) = (seq, bytes);
        self.buffer.clear();
        self.ends.clear();
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

    /// Its tokens, as limits count them.
    pub(super) fn attempt_tokens(&self) -> u64 {
        spending::tokens(self.spending.attempt().as_ref(), self.heard as u64)
    }

    /// The same by the members of a route.
    pub(super) fn attempt_usage_by_member(&self) -> Vec<(String, Map<String, Value>)> {
        self.spending.attempt_by()
    }

    /// Whether a model could go on from the text.
    pub(super) fn can_continue(&self) -> bool {
        self.tools.is_empty() && self.diff.len() == self.diff.text().len()
    }

    /// Bytes that the present attempt said again, of what viewers have.
    pub(super) fn swallowed(&self) -> u64 {
        self.swallowed
    }

    /// Back to which packet the present attempt took the viewers, if it did.
    pub(super) fn reset_to(&self) -> Option<u64> {
        self.reset_to
    }

    /// When the present attempt first said something, if it did. Warnings and errors are told of
    /// it, not said by it.
    pub(super) fn spoke_at(&self) -> Option<Timestamp> {
        self.spoke_at
    }

    /// The time of the last packet, or of the record if there is none.
    pub(super) fn latest(&self) -> Timestamp {
        self.latest
    }

    /// Reads what earlier attempts wrote, possibly in another process's life.
    pub(super) async fn replay(&mut self) -> Result<(), JournalError> {
        let mut after = 0;
        loop {
            let frames =
                self.engine.journal.store().read(self.stream_id, after, 1024, 1024 * 1024).await?;
            let Some(last) = frames.last() else { return Ok(()) };
            after = last.seq;
            for frame in &frames {
                if let Some(packet) = sse::decode_packet(&frame.bytes) {
                    self.latest = self.latest.max(packet.t);
                    self.remember(packet.seq, &packet.payload);
                }
            }
        }
    }

    fn remember(&mut self, seq: u64, payload: &Payload) {
        match payload {
            Payload::Delta(text) => {
                self.diff.sent_text(seq, text);
            }
            Payload::Event(raw) => {
                let event = Event::of(raw);
                if let EventView::Reset(reset) = event.view() {
                    self.diff.reset(reset.after_seq);
                    self.calls.reset(reset.after_seq);
                    self.tools.reset(reset.after_seq);
                } else {
                    self.events += 1;
                    self.note_event(seq, raw, &event);
                }
            }
            Payload::Error(_) | Payload::Close(_) => {}
        }
    }

    /// Calls are compared in a way of their own; what they were answered is an event like others.
    fn note_event(&mut self, seq: u64, raw: &RawObject, event: &Event) {
        let said = Said::of(event).map(|(_, said)| said);
        if matches!(said, None | Some(Said::Result)) {
            self.diff.sent_event(seq, raw);
        }
        if said.is_some() {
            if self.diff.compares() {
                self.calls.sent(seq, event, raw);
            }
            self.tools.note(seq, self.diff.len(), event);
        }
    }

    /// From here on, what is taken is compared with what earlier attempts sent.
    pub(super) fn begin_attempt(&mut self, attempt: u32) {
        self.attempt = attempt;
        self.diff.rewind();
        self.calls.rewind();
        self.heard = 0;
        self.turned.clear();
        self.asked.clear();
        self.spending.begin_attempt();
        (self.swallowed, self.reset_to, self.spoke_at) = (0, None, None);
    }

    /// Takes one output of the agent's.
    pub(super) fn take(&mut self, output: Output) -> Result<(), Fault> {
        match output {
            Output::Delta(text) => {
                self.heard += text.len();
                self.delta(text)?;
            }
            Output::Again { keep } => self.again(keep)?,
            Output::Event { kind, payload } => self.event(&kind, payload)?,
            Output::Warning(error) => self.write(Payload::Error(error)),
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
            Output::Interrupt(interrupt) => self.ask(*interrupt),
        }
        let limits = &self.engine.settings.limits;
        if self.seq > limits.packets_per_stream || self.bytes > limits.bytes_per_stream {
            return Err(Fault::new(FaultKind::StreamTooLong));
        }
        Ok(())
    }

    fn delta(&mut self, text: String) -> Result<(), Fault> {
        let length = text.len();
        match self.diff.meet_text(text) {
            Met::Equal => {
                self.swallowed += length as u64;
                Ok(())
            }
            Met::New(rest) => {
                self.swallowed += length.saturating_sub(rest.len()) as u64;
                self.say(rest);
                Ok(())
            }
            Met::Different(rest) => self.diverge(&rest, u64::MAX),
        }
    }

    /// The agent goes back within its attempt. Its places do not count blocks that became text,
    /// ours do.
    fn again(&mut self, keep: usize) -> Result<(), Fault> {
        self.heard = keep.min(self.heard);
        self.turned.retain(|(at, _)| *at <= keep);
        let turned: usize = self.turned.iter().map(|(_, len)| len).sum();
        let after = self.diff.rewind_to(self.heard + turned).map_err(diverged)?;
        self.calls.rewind_after(after);
        Ok(())
    }

    /// Moved here from the agent: encoding it is the first copy.
    fn say(&mut self, text: String) {
        self.diff.sent_text(self.seq + 1, &text);
        self.write(Payload::Delta(text));
    }

    fn event(&mut self, kind: &str, payload: RawObject) -> Result<(), Fault> {
        let is_listed =
            |supported: &Vec<String>| supported.iter().any(|s| s.eq_ignore_ascii_case(kind));
        let is_wanted = kind == event::USER_ERROR || self.supported.as_ref().is_none_or(is_listed);
        if is_wanted && self.diff.compares() && kind.starts_with(TOOL_CALL) {
            return self.call_event(payload);
        }
        if self.diff.meet_event(&payload) {
            self.swallowed += payload.get().len() as u64;
            return Ok(());
        }
        if is_wanted {
            self.events += 1;
            self.show(payload);
            return Ok(());
        }
        // A client that cannot show blocks can still read markdown.
        let is_markdown = kind.eq_ignore_ascii_case(PresentationEventType::MarkdownBlock.as_str());
        if is_markdown && let EventView::Markdown(block) = Event::of(&payload).view() {
            self.turned.push((self.heard, block.content.len()));
            self.delta(block.content)?;
        }
        Ok(())
    }

    /// A part of a tool call, in a run that may have several attempts: shown when the call is
    /// whole.
    fn call_event(&mut self, payload: RawObject) -> Result<(), Fault> {
        let event = Event::of(&payload);
        let Some((id, said)) = Said::of(&event) else {
            self.show(payload);
            return Ok(());
        };
        if let Said::Result = said {
            // Some tell no end of a call but its result.
            self.whole_call(&id)?;
            return self.call_result(&id, &payload);
        }
        if !self.calls.hold(&id, &said, &event, &payload) {
            self.show(payload);
        }
        if let Said::End = said { self.whole_call(&id) } else { Ok(()) }
    }

    fn whole_call(&mut self, id: &str) -> Result<(), Fault> {
        self.calls.whole(id).map_or(Ok(()), |call| self.call(call))
    }

    fn call(&mut self, call: Call) -> Result<(), Fault> {
        let call = match self.calls.meet(call) {
            MetCall::Equal => return Ok(()),
            MetCall::New(call) => call,
            MetCall::Different(call) => {
                self.diverge("", self.calls.first_missing().unwrap_or(u64::MAX))?;
                call
            }
        };
        for part in call.into_events() {
            self.events += 1;
            self.show(part);
        }
        Ok(())
    }

    fn call_result(&mut self, id: &str, payload: &RawObject) -> Result<(), Fault> {
        let (result, told) = self.calls.result(id, payload);
        if self.diff.meet_event(&result) {
            return Ok(());
        }
        if let Some(before) = told {
            self.diverge("", before.saturating_sub(1))?;
        }
        self.events += 1;
        self.show(result);
        Ok(())
    }

    fn show(&mut self, payload: RawObject) {
        self.write(Payload::Event(payload.clone()));
        // Few events are about tools, and only these are looked into.
        if payload.get().contains(TOOL_CALL) {
            self.note_event(self.seq, &payload, &Event::of(&payload));
        } else {
            self.diff.sent_event(self.seq, &payload);
        }
    }

    /// A later attempt said something else: viewers drop what differs and get it anew, if they can.
    /// Nothing after `limit` stays, even if it agrees.
    fn diverge(&mut self, rest: &str, limit: u64) -> Result<(), Fault> {
        if !self.accepts_reset {
            return Err(Fault::new(FaultKind::AttemptDiverged));
        }
        let (floor, whole) =
            (self.calls.last_met_before(self.diff.first_different()), self.calls.last_whole());
        let cut = self.diff.cut(floor, limit).map_err(diverged)?;
        // A call that somebody may have acted upon cannot be taken back, nor made again.
        if cut.after_seq < whole && !self.is_unseen {
            return Err(Fault::new(FaultKind::AttemptDiverged));
        }
        let data = StreamReset { attempt: self.attempt, after_seq: cut.after_seq };
        self.reset_to =
            Some(self.reset_to.map_or(cut.after_seq, |before| before.min(cut.after_seq)));
        let payload = event::envelope(event::STREAM_RESET, &data).map_err(Fault::from_error)?;
        self.write(Payload::Event(payload));
        let calls = self.calls.met_after(cut.after_seq);
        self.calls.reset(cut.after_seq);
        self.tools.reset(cut.after_seq);
        cut.events.into_iter().chain(calls).for_each(|event| self.show(event));
        let again = cut.text + rest;
        if !again.is_empty() {
            self.say(again);
        }
        Ok(())
    }

    /// The agent is done; if it said less than an earlier attempt, that is a difference, too.
    pub(super) fn end_attempt(&mut self) -> Result<(), Fault> {
        for call in self.calls.rest() {
            self.call(call)?;
        }
        match self.calls.first_missing() {
            Some(limit) => self.diverge("", limit),
            None if self.diff.is_behind() => self.diverge("", u64::MAX),
            None => Ok(()),
        }
    }

    /// What CLOSE says: a word, or a report when there is more to tell.
    pub(super) fn close(&self, reason: &str, agent: &str, calls: Option<u32>) -> Close {
        let reason =
            self.reason.as_deref().filter(|_| reason == Close::COMPLETED).unwrap_or(reason);
        let usage = self.usage();
        if self.model.is_none() && usage.is_none() && calls.is_none() && self.attempt == 1 {
            return Close::Reason(reason.to_owned());
        }
        let report = CloseReport {
            reason: reason.to_owned(),
            agent: Some(agent.to_owned()),
            member: self.member.clone(),
            model: self.model.clone(),
            attempts: Some(self.attempt),
            calls,
            usage,
            usage_by_member: self.spending.total_by(),
        };
        RawObject::from_serialize(&report)
            .map_or_else(|_| Close::Reason(reason.to_owned()), Close::Report)
    }

    /// Stamps, encodes, queues.
    pub(super) fn write(&mut self, payload: Payload) {
        self.seq += 1;
        self.latest = self.latest.max(self.engine.clock.now());
        if is_said(&payload) {
            self.spoke_at = self.spoke_at.or(Some(self.latest));
        }
        let packet =
            StreamPacket { stream_id: self.stream_id, seq: self.seq, t: self.latest, payload };
        let before = self.buffer.len();
        sse::encode_packet(&packet, &mut self.buffer);
        self.bytes += (self.buffer.len() - before) as u64;
        self.engine.packets.add(packet.op());
        self.ends.push(self.buffer.len());
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

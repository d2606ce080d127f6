//! Writes a run as chunks. A chunk cannot be taken back, and a chat cannot be resumed: a client
//! that comes back gets all chunks again.

use bytes::Bytes;
use capstan_agent::sealed::Sealer;
use capstan_journal::{Frames, JournalError, Run, RunState};
use capstan_protocol::{
    Close, ErrorSeverity, Exposure, Fault, FaultKind, Payload, StreamError, sse,
};
use serde_json::{Map, Value};

use super::super::errors::{ApiError, ErrorBody};
use super::super::native::Piece;
use super::super::output::{ClientEvent, Offered, Output, Source, block};
use super::carried::Carried;
use super::completion::{
    CallPiece, Chunk, ChunkChoice, Delta, FunctionPiece, TokenUsage, finish_reason, id_of, seconds,
};
use crate::face::FaceContext;
use crate::face::reader::{self, ViewerKind};
use crate::face::sent_answers::SentAnswer;
use crate::face::taken_back::TakenBack;
use crate::face::{BodyStep, Emit, FaceWriter};

/// Members that OpenAI repeats in each chunk. Others are sent once.
const REPEATED: [&str; 2] = ["service_tier", "system_fingerprint"];

/// The writer of one response.
pub(super) struct ChatWriter {
    run: Run,
    id: String,
    options: ViewOptions,
    /// The streamed calls, by their index.
    calls: Vec<StreamedCall>,
    text_chars: usize,
    native: NativeState,
}

/// What a response needs beside its run.
pub(super) struct ViewOptions {
    pub(super) wants_usage: bool,
    /// Packets that are left out.
    pub(super) taken_back: TakenBack,
    /// The tools whose calls are streamed.
    pub(super) offered: Offered,
    pub(super) exposure: Exposure,
    pub(super) sealer: Sealer,
    /// Records that the answer was sent to its end.
    pub(super) sent_answer: SentAnswer,
}

/// A streamed call.
struct StreamedCall {
    id: String,
    is_custom: bool,
}

/// Output of a provider of this protocol, besides text and calls.
#[derive(Default)]
struct NativeState {
    /// The piece for the next chunk. It comes before the CAP content of the same chunk.
    pending: Option<Piece>,
    /// The members that each chunk has.
    repeated: Map<String, Value>,
    usage: Map<String, Value>,
    finish: Option<String>,
    /// The ids of calls of tools that take a free text.
    custom: Vec<String>,
    /// Whether calls have the form `function_call`.
    is_legacy: bool,
    /// The citations that the provider's annotations contain already.
    known_citations: usize,
}

const DONE: &[u8] = b"data: [DONE]\n\n";

impl ChatWriter {
    pub(super) fn new(run: &Run, options: ViewOptions) -> Self {
        Self {
            id: id_of(run),
            run: run.clone(),
            options,
            calls: Vec::new(),
            text_chars: 0,
            native: NativeState::default(),
        }
    }

    /// Writes a chunk, with the pending piece.
    fn chunk(&mut self, mut delta: Delta<'_>, finish_reason: Option<&str>, out: &mut Vec<u8>) {
        let Piece { chunk, mut choice, delta: members, .. } =
            self.native.pending.take().unwrap_or_default();
        delta.more.extend(members);
        let logprobs = choice.remove("logprobs");
        let choice = ChunkChoice { index: 0, delta, logprobs, finish_reason, more: choice };
        self.write(vec![choice], chunk, None, out);
    }

    fn write(
        &self,
        choices: Vec<ChunkChoice<'_>>,
        members: Map<String, Value>,
        usage: Option<TokenUsage>,
        out: &mut Vec<u8>,
    ) {
        let mut more = self.native.repeated.clone();
        more.extend(members);
        let chunk = Chunk {
            id: &self.id,
            object: "chat.completion.chunk",
            created: seconds(self.run.created_at),
            model: &self.run.agent,
            choices,
            usage: self.options.wants_usage.then_some(usage),
            more,
        };
        event(&chunk, out);
    }

    fn say(&mut self, text: &str, out: &mut Vec<u8>) {
        if !text.is_empty() {
            self.text_chars += text.chars().count();
            self.chunk(Delta { content: Some(text), ..Delta::default() }, None, out);
        }
    }

    fn think(&mut self, thought: &str, out: &mut Vec<u8>) {
        let delta = Delta { reasoning_content: Some(thought), ..Delta::default() };
        self.chunk(delta, None, out);
    }

    fn call(&mut self, piece: CallPiece<'_>, out: &mut Vec<u8>) {
        self.chunk(Delta { tool_calls: vec![piece], ..Delta::default() }, None, out);
    }

    fn legacy_call(&mut self, piece: FunctionPiece<'_>, out: &mut Vec<u8>) {
        self.chunk(Delta { function_call: Some(piece), ..Delta::default() }, None, out);
    }

    fn begin_call(&mut self, id: String, name: &str, out: &mut Vec<u8>) {
        if !self.options.offered.has(name) {
            return;
        }
        let is_custom = self.native.custom.contains(&id);
        if self.native.is_legacy {
            self.legacy_call(FunctionPiece { name: Some(name), arguments: "" }, out);
        } else {
            self.call(CallPiece::first(self.calls.len(), &id, name, "", is_custom), out);
        }
        self.calls.push(StreamedCall { id, is_custom });
    }

    fn continue_call(&mut self, id: &str, more: &str, out: &mut Vec<u8>) {
        let index = self.calls.iter().rposition(|call| call.id == id);
        let Some(index) = index.filter(|_| !more.is_empty()) else { return };
        if self.native.is_legacy {
            return self.legacy_call(FunctionPiece { name: None, arguments: more }, out);
        }
        let is_custom = self.calls.get(index).is_some_and(|call| call.is_custom);
        self.call(CallPiece::more(index, more, is_custom), out);
    }

    /// Writes sources, unless the provider's annotations contain them.
    fn cite(&mut self, sources: &[Source], out: &mut Vec<u8>) {
        let known = sources.len().min(self.native.known_citations);
        self.native.known_citations -= known;
        let at = self.text_chars;
        let new = sources.iter().skip(known);
        let annotations: Vec<_> = new.map(|source| source.chat_annotation(at)).collect();
        if !annotations.is_empty() {
            self.chunk(Delta { annotations, ..Delta::default() }, None, out);
        }
    }

    /// Takes a piece that only the provider understands. It waits for the next chunk.
    fn add_piece(&mut self, mut piece: Piece, out: &mut Vec<u8>) {
        let native = &mut self.native;
        native.custom.extend(piece.take_custom_calls());
        native.is_legacy |= piece.take_legacy_call();
        native.finish = piece.take_finish().or(native.finish.take());
        native.known_citations += piece.citations();
        native.usage.append(&mut piece.usage);
        for name in REPEATED {
            let value = piece.chunk.remove(name);
            native.repeated.extend(value.map(|value| (name.to_owned(), value)));
        }
        if !piece.chunk.is_empty() || piece.has_choice() {
            self.flush(out);
            self.native.pending = Some(piece);
        }
    }

    /// Writes the pending piece as a chunk of its own.
    fn flush(&mut self, out: &mut Vec<u8>) {
        match self.native.pending.take() {
            Some(piece) if piece.has_choice() => {
                self.native.pending = Some(piece);
                self.chunk(Delta::default(), None, out);
            }
            Some(piece) => self.write(Vec::new(), piece.chunk, None, out),
            None => {}
        }
    }

    /// Takes frames up to the end of the answer, if it is among them.
    fn write_packets(&mut self, frames: &Frames, out: &mut Vec<u8>) -> Option<End> {
        for packet in frames.iter().filter_map(sse::decode_packet) {
            if self.options.taken_back.has(packet.seq) {
                continue;
            }
            match packet.payload {
                Payload::Delta(text) => self.say(&text, out),
                Payload::Event(raw) => match ClientEvent::of(&raw) {
                    ClientEvent::Block(content) => {
                        self.say(&block(&content, self.text_chars > 0), out)
                    }
                    ClientEvent::Thought(text) => self.think(&text, out),
                    ClientEvent::Call { id, name } => self.begin_call(id, &name, out),
                    ClientEvent::Arguments { id, more } => self.continue_call(&id, &more, out),
                    ClientEvent::Citations(sources) => self.cite(&sources, out),
                    // A chunk cannot be taken back.
                    ClientEvent::Reset(_) => {
                        return Some(End::Failed(Fault::new(FaultKind::AttemptDiverged)));
                    }
                    // Calls of tools that were not offered are written at the end: only then it is
                    // known which of them the agent has answered.
                    ClientEvent::Interrupt(_)
                    | ClientEvent::End { .. }
                    | ClientEvent::Result { .. } => {}
                    ClientEvent::Other => {
                        Piece::of(&raw).into_iter().for_each(|piece| self.add_piece(piece, out));
                    }
                },
                Payload::Error(error) if error.severity == ErrorSeverity::Fatal => {
                    return Some(End::Failed(of_stream(*error)));
                }
                Payload::Error(_) => {}
                Payload::Close(close) => return Some(End::Closed(close)),
            }
        }
        None
    }

    async fn end(
        &mut self,
        cx: &FaceContext,
        end: End,
        mut out: Vec<u8>,
    ) -> Result<BodyStep, JournalError> {
        match end {
            End::Failed(fault) => self.fail(&fault, &mut out),
            End::Closed(close) => match reader::collect_so_far::<Output>(cx, &self.run).await {
                Ok(whole) => {
                    self.finish(&close, &whole.transcript, whole.run.usage.as_ref(), &mut out)
                }
                // The calls are larger than one answer may be.
                Err(fault) => self.fail(&fault, &mut out),
            },
        }
        self.options.sent_answer.record();
        out.extend_from_slice(DONE);
        Ok(BodyStep::Last(out.into()))
    }

    fn finish(
        &mut self,
        close: &Close,
        output: &Output,
        usage: Option<&Map<String, Value>>,
        out: &mut Vec<u8>,
    ) {
        // The piece came with the end.
        let last = self.native.pending.take();
        self.write_late(output, out);
        self.native.pending = last;
        let word = finish_reason(Some(close), output.calls().next().is_some());
        let own = self.native.finish.take();
        self.chunk(Delta::default(), Some(own.as_deref().unwrap_or(word)), out);
        if self.options.wants_usage {
            let usage = TokenUsage::new(usage, std::mem::take(&mut self.native.usage));
            self.write(Vec::new(), Map::new(), Some(usage), out);
        }
    }

    /// Writes the calls of tools that were not offered, and the members that the client has to send
    /// back.
    fn write_late(&mut self, output: &Output, out: &mut Vec<u8>) {
        let carried = Carried::of(output, self.options.sealer.clone());
        // OpenAI's SDK for Python fails on a piece without `function`, so it has an empty one.
        let late = |(n, call): (usize, &StreamedCall)| {
            let members = carried.of_call(&call.id);
            let piece = CallPiece::more(n, "", call.is_custom);
            (!members.is_empty()).then(|| piece.with(members))
        };
        let mut tool_calls: Vec<_> = self.calls.iter().enumerate().filter_map(late).collect();
        for (n, call) in (self.calls.len()..).zip(output.late(&self.options.offered)) {
            let is_custom = self.native.custom.contains(&call.id);
            let piece = CallPiece::first(n, &call.id, &call.name, &call.arguments, is_custom);
            tool_calls.push(piece.with(carried.of_call(&call.id)));
        }
        let more = carried.of_message();
        if !(tool_calls.is_empty() && more.is_empty()) {
            self.chunk(Delta { tool_calls, more, ..Delta::default() }, None, out);
        }
    }

    /// Writes an error, without a finish_reason before it: a client would take the answer for
    /// complete.
    fn fail(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        self.flush(out);
        event(&ErrorBody { error: ApiError::of(fault, self.options.exposure) }, out);
    }
}

/// How an answer ends.
enum End {
    Closed(Close),
    Failed(Fault),
}

/// The fault of an error packet. The journal contains only what clients may see.
fn of_stream(error: StreamError) -> Fault {
    Fault::from(error)
}

/// Writes a frame without id and name, because the SDKs fail on frames with one and no data.
fn event(chunk: &impl serde::Serialize, out: &mut Vec<u8>) {
    sse::encode_json(None, None, &serde_json::to_string(chunk).unwrap_or_default(), out);
}

impl FaceWriter for ChatWriter {
    fn base(&self) -> u64 {
        0
    }

    fn opening(&mut self, _: &FaceContext) -> Bytes {
        let mut out = Vec::new();
        self.chunk(
            Delta { role: Some("assistant"), content: Some(""), ..Delta::default() },
            None,
            &mut out,
        );
        out.into()
    }

    fn frames<'a>(&'a mut self, cx: &'a FaceContext, frames: Frames) -> Emit<'a> {
        let mut out = Vec::new();
        match self.write_packets(&frames, &mut out) {
            None => Emit::Now(BodyStep::Write(out.into())),
            Some(end) => Emit::Later(Box::pin(self.end(cx, end, out))),
        }
    }

    fn caught_up(&mut self, _: &FaceContext, state: RunState, _: ViewerKind) -> BodyStep {
        match state {
            RunState::Running | RunState::Waiting => BodyStep::Write(Bytes::new()),
            // The end was written with its frames.
            RunState::Closed => BodyStep::Cut,
        }
    }

    /// Cuts the body: clients would read a clean end as success.
    fn closing(&mut self) -> BodyStep {
        BodyStep::Cut
    }
}

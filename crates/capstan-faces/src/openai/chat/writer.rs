//! A run as chunks. There is no way to take back a chunk, nor to read on: whoever comes again gets
//! all of them.

use bytes::Bytes;
use capstan_journal::{Frames, JournalError, Run, RunState};
use capstan_protocol::{
    Close, ErrorSeverity, Exposure, Fault, FaultKind, Payload, StreamError, sse,
};
use serde_json::{Map, Value};

use super::super::errors::{ApiError, ErrorBody};
use super::super::native::delta_of;
use super::super::output::{Offered, Output, Said, Usage, block};
use super::completion::{CallPiece, Chunk, ChunkChoice, Delta, finish_reason, id_of, seconds};
use crate::face::FaceContext;
use crate::face::reader::{self, ViewerKind};
use crate::face::taken_back::TakenBack;
use crate::face::{BodyStep, Emit, FaceWriter};

/// One response.
pub(super) struct ChatWriter {
    run: Run,
    id: String,
    exposure: Exposure,
    wants_usage: bool,
    /// What is left out.
    taken_back: TakenBack,
    /// The tools whose calls are told as they are written.
    offered: Offered,
    /// The ids of such calls, each at its index.
    calls: Vec<String>,
    /// Something was said.
    has_text: bool,
}

const DONE: &[u8] = b"data: [DONE]\n\n";

impl ChatWriter {
    pub(super) fn new(
        run: &Run,
        wants_usage: bool,
        taken_back: TakenBack,
        offered: Offered,
        exposure: Exposure,
    ) -> Self {
        Self {
            id: id_of(run),
            run: run.clone(),
            exposure,
            wants_usage,
            taken_back,
            offered,
            calls: Vec::new(),
            has_text: false,
        }
    }

    fn chunk(&self, delta: Delta<'_>, finish_reason: Option<&'static str>, out: &mut Vec<u8>) {
        let choice = ChunkChoice { index: 0, delta, logprobs: None, finish_reason };
        self.write(vec![choice], None, out);
    }

    fn write(&self, choices: Vec<ChunkChoice<'_>>, usage: Option<Usage>, out: &mut Vec<u8>) {
        let chunk = Chunk {
            id: &self.id,
            object: "chat.completion.chunk",
            created: seconds(self.run.created_at),
            model: &self.run.agent,
            choices,
            usage: self.wants_usage.then(|| usage.map(Into::into)),
        };
        event(&chunk, out);
    }

    fn say(&mut self, text: &str, out: &mut Vec<u8>) {
        if !text.is_empty() {
            self.has_text = true;
            self.chunk(Delta { content: Some(text), ..Delta::default() }, None, out);
        }
    }

    fn think(&self, thought: &str, out: &mut Vec<u8>) {
        let delta = Delta { reasoning_content: Some(thought), ..Delta::default() };
        self.chunk(delta, None, out);
    }

    fn call(&self, piece: CallPiece<'_>, out: &mut Vec<u8>) {
        self.chunk(Delta { tool_calls: vec![piece], ..Delta::default() }, None, out);
    }

    fn begin_call(&mut self, id: String, name: &str, out: &mut Vec<u8>) {
        if self.offered.has(name) {
            self.call(CallPiece::first(self.calls.len(), &id, name, ""), out);
            self.calls.push(id);
        }
    }

    fn go_on_with_call(&self, id: &str, more: &str, out: &mut Vec<u8>) {
        let index = self.calls.iter().rposition(|call| call == id);
        if let Some(index) = index.filter(|_| !more.is_empty()) {
            self.call(CallPiece::more(index, more), out);
        }
    }

    /// What only the provider understands of a piece.
    fn native(&self, mut delta: Map<String, Value>, out: &mut Vec<u8>) {
        let calls = delta.remove("tool_calls");
        let calls = calls.as_ref().and_then(Value::as_array).into_iter().flatten();
        let tool_calls = calls.filter_map(Value::as_object).filter_map(|call| {
            let id = call.get("id").and_then(Value::as_str)?;
            let index = self.calls.iter().rposition(|known| known == id)?;
            let more = call.iter().filter(|(name, _)| *name != "id");
            let more = more.map(|(name, value)| (name.clone(), value.clone())).collect();
            Some(CallPiece::native(index, more))
        });
        let tool_calls: Vec<_> = tool_calls.collect();
        if !(tool_calls.is_empty() && delta.is_empty()) {
            self.chunk(Delta { tool_calls, more: delta, ..Delta::default() }, None, out);
        }
    }

    /// Takes frames up to the end of the answer, if it is among them.
    fn tell(&mut self, frames: &Frames, out: &mut Vec<u8>) -> Option<End> {
        for packet in frames.iter().filter_map(sse::decode_packet) {
            if self.taken_back.has(packet.seq) {
                continue;
            }
            match packet.payload {
                Payload::Delta(text) => self.say(&text, out),
                Payload::Event(raw) => match Said::of(&raw) {
                    Said::Block(content) => self.say(&block(&content, self.has_text), out),
                    Said::Thought(text) => self.think(&text, out),
                    Said::Call { id, name } => self.begin_call(id, &name, out),
                    Said::Arguments { id, more } => self.go_on_with_call(&id, &more, out),
                    // What was said cannot be taken back.
                    Said::Reset(_) => {
                        return Some(End::Failed(Fault::new(FaultKind::AttemptDiverged)));
                    }
                    // Calls that the caller did not offer are told at the end: then it is known
                    // which of them are the caller's to answer.
                    Said::Interrupt(_)
                    | Said::Citations(_)
                    | Said::End { .. }
                    | Said::Result { .. } => {}
                    Said::Other => {
                        delta_of(&raw).into_iter().for_each(|delta| self.native(delta, out));
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
        &self,
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
                // The calls are more than one answer may hold.
                Err(fault) => self.fail(&fault, &mut out),
            },
        }
        out.extend_from_slice(DONE);
        Ok(BodyStep::Last(out.into()))
    }

    fn finish(
        &self,
        close: &Close,
        output: &Output,
        usage: Option<&Map<String, Value>>,
        out: &mut Vec<u8>,
    ) {
        let late = (self.calls.len()..).zip(output.late(&self.offered));
        let tool_calls: Vec<_> = late
            .map(|(n, call)| CallPiece::first(n, &call.id, &call.name, &call.arguments))
            .collect();
        let finish = finish_reason(Some(close), output.calls().next().is_some());
        if !tool_calls.is_empty() {
            self.chunk(Delta { tool_calls, ..Delta::default() }, None, out);
        }
        self.chunk(Delta::default(), Some(finish), out);
        if self.wants_usage {
            self.write(Vec::new(), Some(Usage::of(usage)), out);
        }
    }

    /// No finish_reason before it: a client that saw one would take the answer for whole.
    fn fail(&self, fault: &Fault, out: &mut Vec<u8>) {
        event(&ErrorBody { error: ApiError::of(fault, self.exposure) }, out);
    }
}

/// How an answer ends.
enum End {
    Closed(Close),
    Failed(Fault),
}

/// As it stands in the journal: what was not to leave is not in it.
fn of_stream(error: StreamError) -> Fault {
    Fault::from(error)
}

/// No id and no name: the SDKs break at a frame that has one and no data.
fn event(said: &impl serde::Serialize, out: &mut Vec<u8>) {
    sse::encode_json(None, None, &serde_json::to_string(said).unwrap_or_default(), out);
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
        match self.tell(&frames, &mut out) {
            None => Emit::Now(BodyStep::Write(out.into())),
            Some(end) => Emit::Later(Box::pin(self.end(cx, end, out))),
        }
    }

    fn caught_up(&mut self, _: &FaceContext, state: RunState, _: ViewerKind) -> BodyStep {
        match state {
            RunState::Running | RunState::Waiting => BodyStep::Write(Bytes::new()),
            // Its end would have been told.
            RunState::Closed => BodyStep::Cut,
        }
    }

    /// A clean end without a last word would be read as success.
    fn closing(&mut self) -> BodyStep {
        BodyStep::Cut
    }
}

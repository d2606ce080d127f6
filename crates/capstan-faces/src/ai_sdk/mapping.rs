//! The mapping: a fold over packets. The k-th chunk that a packet becomes has the id
//! `<stream_id>:<seq>.<k>`.

use capstan_protocol::{
    Close, ErrorSeverity, Fault, FaultKind, Payload, StreamError, StreamPacket,
};

use super::chunk::{Chunk, raw};
use super::event;
use super::fold::Fold;

impl Fold {
    /// The chunks of a packet.
    pub(super) fn take(&mut self, packet: &StreamPacket) -> Vec<Chunk> {
        let mut out = Vec::new();
        match &packet.payload {
            Payload::Close(close) => {
                self.close(close, &mut out);
                self.is_over = true;
            }
            _ if self.has_failed => {}
            Payload::Delta(text) => self.delta(packet.seq, text, &mut out),
            Payload::Event(event) => event::say(self, packet.seq, event, &mut out),
            Payload::Error(error) => self.error(packet.seq, error, &mut out),
        }
        out
    }

    fn delta(&mut self, seq: u64, text: &str, out: &mut Vec<Chunk>) {
        if text.is_empty() {
            return;
        }
        self.begin(out);
        let began = *self.text.get_or_insert_with(|| {
            out.push(Chunk::edge("text-start", seq.to_string()));
            seq
        });
        out.push(Chunk::piece("text-delta", began.to_string(), text));
    }

    fn error(&mut self, seq: u64, error: &StreamError, out: &mut Vec<Chunk>) {
        match error.severity {
            ErrorSeverity::Warning => {
                out.push(Chunk::data("data-capstan-warning", seq.to_string(), raw(error)));
            }
            // The gateway continues the run itself.
            ErrorSeverity::Transient => {
                out.push(Chunk::transient("data-capstan-attempt", raw(error)))
            }
            ErrorSeverity::Fatal => self.fail(error, out),
        }
    }

    fn close(&mut self, close: &Close, out: &mut Vec<Chunk>) {
        let reason = close.reason();
        if reason == "error" && !self.has_failed {
            // Its ERROR was sent before.
            let error =
                Fault::new(FaultKind::AgentExecutionError).to_stream_error(Default::default());
            self.fail(&error, out);
        }
        if self.has_failed {
            out.push(Chunk { finish_reason: Some("error"), ..Chunk::of("finish") });
        } else {
            self.end_text(out);
            if let Close::Report(report) = close {
                out.push(Chunk::transient("data-capstan-close", report.clone().into()));
            }
            match reason.as_str() {
                // Not every reader accepts `abort` as the end.
                Close::CANCELLED => out.extend([
                    Chunk { reason: Some(Close::CANCELLED.into()), ..Chunk::of("abort") },
                    Chunk { finish_reason: Some("other"), ..Chunk::of("finish") },
                ]),
                reason => self.finish(reason, out),
            }
        }
        out.push(Chunk::done());
    }

    fn finish(&mut self, reason: &str, out: &mut Vec<Chunk>) {
        self.begin(out);
        let finish_reason = Some(match reason {
            "length" => "length",
            "content_filter" => "content-filter",
            "tool_calls" | Close::INTERRUPT => "tool-calls",
            _ if !self.pending.is_empty() => "tool-calls",
            Close::COMPLETED => "stop",
            _ => "other",
        });
        out.push(Chunk::of("finish-step"));
        out.push(Chunk { finish_reason, ..Chunk::of("finish") });
    }
}

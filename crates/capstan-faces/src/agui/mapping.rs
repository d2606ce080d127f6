//! The mapping: a pure fold over packets. The k-th event that a packet becomes has the id
//! `<stream_id>:<seq>.<k>`.

use capstan_protocol::agui::EventBody;
use capstan_protocol::{
    Close, ErrorSeverity, Event, Fault, FaultKind, Payload, RawObject, StreamPacket, StreamReset,
};
use serde_json::{Value, json};

use super::fold::{Call, Fold};
use super::outgoing::OutgoingEvent;
use super::transcript::Cut;
use super::{ending, event};

impl Fold {
    /// The events of a packet. A TRANSIENT error counts as superseded. [`Self::reset`] handles a
    /// reset.
    pub(super) fn take(&mut self, packet: &StreamPacket) -> Vec<OutgoingEvent> {
        let mut out = Vec::new();
        if self.state.is_over {
            return out;
        }
        let (seq, t) = (packet.seq, packet.t.as_millis());
        match &packet.payload {
            Payload::Delta(text) => self.delta(seq, t, text, &mut out),
            Payload::Event(raw) => self.event(seq, t, raw, &mut out),
            Payload::Error(error) => match error.severity {
                ErrorSeverity::Warning => out.push(warning("capstan.warning", error, t)),
                ErrorSeverity::Transient => out.push(warning("capstan.attempt_failed", error, t)),
                ErrorSeverity::Fatal => {
                    out = ending::failure(self, seq, t, &Fault::from(*error.clone()));
                    self.state.is_over = true;
                }
            },
            Payload::Close(close) => out = self.close(seq, t, close),
        }
        out
    }

    fn delta(&mut self, seq: u64, t: i64, text: &str, out: &mut Vec<OutgoingEvent>) {
        // AG-UI does not allow an empty delta.
        if text.is_empty() {
            return;
        }
        let began = *self.state.text.get_or_insert_with(|| {
            out.push(self.facts.text_start(seq, t));
            seq
        });
        let message_id = self.facts.message_id(began);
        out.push(OutgoingEvent::event(
            EventBody::TextMessageContent { message_id, delta: text.to_owned() },
            t,
        ));
    }

    fn event(&mut self, seq: u64, t: i64, raw: &RawObject, out: &mut Vec<OutgoingEvent>) {
        let read = Event::of(raw);
        if read.id.as_ref().and_then(Value::as_str).is_some_and(|id| self.state.again.remove(id)) {
            return;
        }
        event::say(self, seq, t, &read, raw, out);
    }

    fn close(&mut self, seq: u64, t: i64, close: &Close) -> Vec<OutgoingEvent> {
        let out = if close.reason() == "error" {
            // Its ERROR would have ended the fold already.
            ending::failure(self, seq, t, &Fault::new(FaultKind::AgentExecutionError))
        } else {
            ending::finish(self, t, close)
        };
        self.state.is_over = true;
        out
    }

    /// A later attempt differs: sends all messages again, and goes on from there.
    pub(super) fn reset(
        &mut self,
        packet: &StreamPacket,
        reset: &StreamReset,
        cut: &Cut,
    ) -> Vec<OutgoingEvent> {
        let mut out = Vec::new();
        if self.state.is_over {
            return out;
        }
        let t = packet.t.as_millis();
        if self.state.text.is_some_and(|began| began > reset.after_seq) {
            self.end_text(t, &mut out);
        }
        self.state.again.extend(cut.again.iter().cloned());
        out.push(OutgoingEvent::Messages(cut.messages.clone(), t));
        let value = json!({ "attempt": reset.attempt, "after_seq": reset.after_seq,
        "dropped": cut.dropped });
        out.push(OutgoingEvent::custom("capstan.reset", value, t));
        // The messages no longer contain them, so that no client takes them for complete.
        let calls = std::mem::take(&mut self.state.calls);
        let (gone, open) = calls.into_iter().partition(|call| call.began > reset.after_seq);
        self.state.calls = open;
        for Call { id: tool_call_id, .. } in gone {
            self.state.pending.retain(|pending| *pending != tool_call_id);
            out.push(OutgoingEvent::event(EventBody::ToolCallEnd { tool_call_id }, t));
        }
        out
    }
}

fn warning(name: &str, error: &capstan_protocol::StreamError, t: i64) -> OutgoingEvent {
    OutgoingEvent::custom(name, serde_json::to_value(error).unwrap_or_default(), t)
}

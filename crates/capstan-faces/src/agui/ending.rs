//! The end of a response: RUN_FINISHED, or RUN_ERROR for a run that failed or waits for its client.

use capstan_protocol::agui::{AguiEvent, EventBody, Outcome, TextRole, TokenUsage};
use capstan_protocol::{Close, Exposure, Fault, Payload, StreamPacket};
use serde_json::{Map, Value};

use super::fold::Fold;
use super::outgoing::OutgoingEvent;

/// Closes everything that is open, then finishes the run.
pub(super) fn finish(fold: &mut Fold, t: i64, close: &Close) -> Vec<OutgoingEvent> {
    let mut out = Vec::new();
    fold.end_text(t, &mut out);
    let calls = std::mem::take(&mut fold.state.calls);
    if !is_complete(&close.reason()) {
        // A call that broke off cannot be answered.
        fold.state.pending.retain(|id| calls.iter().all(|call| call.id != *id));
    }
    let steps = std::mem::take(&mut fold.state.steps);
    out.extend(
        calls
            .into_iter()
            .map(|c| OutgoingEvent::event(EventBody::ToolCallEnd { tool_call_id: c.id }, t)),
    );
    out.extend(
        steps
            .into_iter()
            .map(|name| OutgoingEvent::event(EventBody::StepFinished { step_name: name }, t)),
    );
    out.push(finished(fold, t, close));
    out
}

/// Whether an answer with this reason is complete.
fn is_complete(reason: &str) -> bool {
    !matches!(reason, "length" | "content_filter" | Close::CANCELLED)
}

fn finished(fold: &Fold, t: i64, close: &Close) -> OutgoingEvent {
    let mut report = if let Close::Report(report) = close { report.to_map() } else { Map::new() };
    report.retain(|_, value| !value.is_null());
    let reason = close.reason();
    let body = EventBody::RunFinished {
        thread_id: fold.facts.thread.clone(),
        run_id: fold.facts.run.clone(),
        result: None,
        outcome: outcome(fold, &reason),
        usage: usage(&report),
    };
    report.insert("reason".into(), reason.into());
    let metadata = Map::from_iter([("capstan".to_owned(), Value::Object(report))]);
    AguiEvent { timestamp: Some(t), metadata: Some(metadata), ..AguiEvent::from(body) }.into()
}

/// Clients before 1.0 reject `cancelled` and do not know waiting calls. They know questions.
fn outcome(fold: &Fold, reason: &str) -> Option<Outcome> {
    let (interrupts, pending) = (&fold.state.interrupts, &fold.state.pending);
    match reason {
        Close::INTERRUPT if !interrupts.is_empty() => {
            Some(Outcome::Interrupt { interrupts: interrupts.clone() })
        }
        Close::CANCELLED => fold.facts.is_v1.then_some(Outcome::Cancelled),
        _ if pending.is_empty() || !fold.facts.is_v1 => None,
        _ => Some(Outcome::Success { pending_tool_call_ids: Some(pending.clone()) }),
    }
}

/// The agent's usage in AG-UI's members, as far as AG-UI has them.
fn usage(report: &Map<String, Value>) -> Option<Vec<TokenUsage>> {
    let counted = report.get("usage")?;
    let count = |name: &str| counted.get(name).and_then(Value::as_u64);
    let usage = TokenUsage {
        model: report.get("model").and_then(Value::as_str).map(str::to_owned),
        input_tokens: count("input_tokens"),
        output_tokens: count("output_tokens"),
        total_tokens: count("total_tokens"),
        ..TokenUsage::default()
    };
    (usage.input_tokens.is_some() || usage.output_tokens.is_some()).then(|| vec![usage])
}

/// RUN_ERROR, with a text message before it if the setting for simple front ends is on.
pub(super) fn failure(fold: &Fold, seq: u64, t: i64, fault: &Fault) -> Vec<OutgoingEvent> {
    let mut out =
        if fold.facts.error_text { error_text(fold, seq, t, fault.message()) } else { Vec::new() };
    // The packet's text is already limited to what clients may see.
    out.push(fault.to_run_error(Exposure::Production).to_event(fold.facts.form(), Some(t)).into());
    out
}

fn error_text(fold: &Fold, seq: u64, t: i64, message: &str) -> Vec<OutgoingEvent> {
    let id = || format!("{}.error", fold.facts.message_id(seq));
    let start =
        EventBody::TextMessageStart { message_id: id(), role: TextRole::Assistant, name: None };
    let content = EventBody::TextMessageContent { message_id: id(), delta: message.to_owned() };
    let text = [start, content, EventBody::TextMessageEnd { message_id: id() }];
    let open = fold.state.text.map(|began| fold.facts.text_end(began, t));
    // A piece of text is never empty.
    let text =
        text.into_iter().filter(|_| !message.is_empty()).map(|body| OutgoingEvent::event(body, t));
    open.into_iter().chain(text).collect()
}

/// The end of a response if the run waits for its client. The fold does not change, because the run
/// may go on.
pub(super) fn interruption(fold: &Fold, packet: &StreamPacket) -> Vec<OutgoingEvent> {
    let Payload::Error(error) = &packet.payload else { return Vec::new() };
    failure(fold, packet.seq, packet.t.as_millis(), &Fault::from(*error.clone()))
}

/// The events that reopen a run after such an end. For the client, the rules of AG-UI begin anew.
pub(super) fn reopening(fold: &Fold, packet: &StreamPacket) -> Vec<OutgoingEvent> {
    let t = packet.t.as_millis();
    [vec![fold.facts.started(t)], fold.open_steps(t), fold.open_messages(t)].concat()
}

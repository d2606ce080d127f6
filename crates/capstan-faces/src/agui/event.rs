//! Maps presentation events to AG-UI: reasoning, steps, text, CUSTOM events with stable names, or
//! AG-UI's own events.

use capstan_protocol::agui::{AguiEvent, EventBody, MessageContent};
use capstan_protocol::{Event, EventView, NATIVE, ProgressStatus, ProgressUpdate, RawObject};
use serde_json::Value;

use super::fold::{Call, Fold};
use super::outgoing::OutgoingEvent;

/// Appends the events of one presentation event.
pub(super) fn say(
    fold: &mut Fold,
    seq: u64,
    t: i64,
    event: &Event,
    raw: &RawObject,
    out: &mut Vec<OutgoingEvent>,
) {
    let custom = |name: &str| OutgoingEvent::custom(name, Value::Object(raw.to_map()), t);
    match event.view() {
        EventView::Thought(thought) => reasoning(fold, seq, t, &thought.thought, out),
        EventView::Markdown(block) => markdown(fold, seq, t, &block.content, out),
        EventView::Progress(update) => progress(fold, t, &update, custom("capstan.progress"), out),
        EventView::Citations(_) => out.push(custom("capstan.citations")),
        EventView::Media(_) => out.push(custom("capstan.media")),
        EventView::UserError(_) => out.push(custom("capstan.user_error")),
        // No client of this protocol understands what only one provider does.
        EventView::Other if event.kind.as_deref() == Some(NATIVE) => {}
        EventView::Other => match native(event).filter(|body| is_legal(fold, body)) {
            Some(body) => pass(fold, seq, t, body, out),
            None => out.push(custom("capstan.event")),
        },
        // The last event of the run contains all of them.
        EventView::Interrupt(interrupt) => fold.state.interrupts.push(*interrupt),
        // The fold handles resets itself, because they need the transcript.
        EventView::Reset(_) => {}
    }
}

/// A thought is complete, so its span opens and closes at once.
fn reasoning(fold: &mut Fold, seq: u64, t: i64, thought: &str, out: &mut Vec<OutgoingEvent>) {
    if thought.is_empty() {
        return;
    }
    fold.end_text(t, out);
    let id = || fold.facts.message_id(seq);
    let bodies = [
        EventBody::ReasoningStart { message_id: id() },
        EventBody::ReasoningMessageStart { message_id: id(), role: "reasoning".into() },
        EventBody::ReasoningMessageContent { message_id: id(), delta: thought.to_owned() },
        EventBody::ReasoningMessageEnd { message_id: id() },
        EventBody::ReasoningEnd { message_id: id() },
    ];
    out.extend(bodies.map(|body| OutgoingEvent::event(body, t)));
}

/// AG-UI's front ends render text as markdown, so a block is a message of its own.
fn markdown(fold: &mut Fold, seq: u64, t: i64, content: &str, out: &mut Vec<OutgoingEvent>) {
    if content.is_empty() {
        return;
    }
    fold.end_text(t, out);
    let (message_id, delta) = (fold.facts.message_id(seq), content.to_owned());
    out.push(fold.facts.text_start(seq, t));
    out.push(OutgoingEvent::event(EventBody::TextMessageContent { message_id, delta }, t));
    out.push(fold.facts.text_end(seq, t));
}

/// A step has a name only. The CUSTOM event has its progress.
fn progress(
    fold: &mut Fold,
    t: i64,
    update: &ProgressUpdate,
    custom: OutgoingEvent,
    out: &mut Vec<OutgoingEvent>,
) {
    let steps = &mut fold.state.steps;
    let open = steps.iter().position(|name| *name == update.label);
    let step_name = update.label.clone();
    match (update.status, open) {
        (ProgressStatus::Running, None) => {
            steps.push(step_name.clone());
            out.push(OutgoingEvent::event(EventBody::StepStarted { step_name }, t));
            out.push(custom);
        }
        (ProgressStatus::Complete | ProgressStatus::Failed, Some(at)) => {
            steps.remove(at);
            out.push(custom);
            out.push(OutgoingEvent::event(EventBody::StepFinished { step_name }, t));
        }
        (ProgressStatus::Running, Some(_))
        | (ProgressStatus::Complete | ProgressStatus::Failed, None) => {
            out.push(custom);
        }
    }
}

/// An event of AG-UI's own types, its members in `data`: tool calls, state, activities.
fn native(event: &Event) -> Option<EventBody> {
    let kind = event.kind.as_deref()?;
    let Value::Object(mut members) = event.data.clone() else { return None };
    // Optional members are absent on this wire, never null.
    members.retain(|_, value| !value.is_null());
    members.insert("type".into(), kind.into());
    serde_json::from_value::<AguiEvent>(Value::Object(members)).ok().map(|event| event.body)
}

/// Whether the rules of AG-UI allow the event here, and its clients can read it.
fn is_legal(fold: &Fold, body: &EventBody) -> bool {
    let is_open = |id: &String| fold.state.calls.iter().any(|call| call.id == *id);
    #[allow(clippy::wildcard_enum_match_arm)]
    // Types that are not listed are not forwarded, also new ones.
    match body {
        EventBody::ToolCallStart { tool_call_id, .. } => !is_open(tool_call_id),
        EventBody::ToolCallArgs { tool_call_id, .. } | EventBody::ToolCallEnd { tool_call_id } => {
            is_open(tool_call_id)
        }
        EventBody::ToolCallResult { .. } | EventBody::ActivitySnapshot { .. } => true,
        EventBody::StateSnapshot { snapshot } => snapshot.is_object(),
        EventBody::StateDelta { delta } => is_patch(delta),
        EventBody::ActivityDelta { message_id, patch, .. } => {
            fold.state.activities.contains(message_id) && is_patch(patch)
        }
        _ => false,
    }
}

/// A JSON Patch by its form.
fn is_patch(operations: &[Value]) -> bool {
    let text = |operation: &Value, name: &str| operation.get(name).is_some_and(Value::is_string);
    operations.iter().all(|operation| {
        let has = match operation.get("op").and_then(Value::as_str) {
            Some("add" | "replace" | "test") => operation.get("value").is_some(),
            Some("move" | "copy") => text(operation, "from"),
            Some("remove") => true,
            _ => false,
        };
        has && text(operation, "path")
    })
}

fn pass(fold: &mut Fold, seq: u64, t: i64, mut body: EventBody, out: &mut Vec<OutgoingEvent>) {
    #[allow(clippy::wildcard_enum_match_arm)] // The others open and close nothing.
    match &mut body {
        EventBody::ToolCallStart { tool_call_id, tool_call_name, parent_message_id } => {
            fold.end_text(t, out);
            fold.state.pending.push(tool_call_id.clone());
            fold.state.calls.push(Call {
                id: tool_call_id.clone(),
                name: tool_call_name.clone(),
                parent: parent_message_id.clone(),
                began: seq,
            });
        }
        EventBody::ToolCallEnd { tool_call_id } => {
            fold.state.calls.retain(|call| call.id != *tool_call_id);
        }
        EventBody::ToolCallResult { content, tool_call_id, .. } => {
            fold.end_text(t, out);
            fold.state.pending.retain(|call| call != tool_call_id);
            // Clients before 1.0 read nothing but text here.
            if !fold.facts.is_v1 {
                *content = MessageContent::Text(content.text());
            }
        }
        EventBody::ActivitySnapshot { message_id, .. } => {
            fold.state.activities.insert(message_id.clone());
        }
        _ => {}
    }
    out.push(OutgoingEvent::event(body, t));
}

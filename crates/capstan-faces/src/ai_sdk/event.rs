//! Maps presentation events to chunks: reasoning, text, sources, files, tools, and `data-…` with
//! stable names.

use capstan_protocol::agui::{AguiEvent, EventBody, Interrupt, MessageContent};
use capstan_protocol::{
    CitationBlock, Event, EventView, Fault, FaultKind, MediaCarousel, NATIVE, RawJson, RawObject,
};
use serde_json::Value;

use super::chunk::{Chunk, raw};
use super::fold::{Call, Fold};
use super::message::INTERRUPT;

/// Appends the chunks of one presentation event.
pub(super) fn say(fold: &mut Fold, seq: u64, event: &RawObject, out: &mut Vec<Chunk>) {
    let read = Event::of(event);
    match read.view() {
        EventView::Thought(thought) => whole(fold, seq, REASONING, &thought.thought, out),
        EventView::Markdown(block) => whole(fold, seq, TEXT, &block.content, out),
        // The message has one part for each label, with the newest value.
        EventView::Progress(update) => {
            let label = update.label.clone();
            out.push(Chunk::data("data-progress", label, raw(&update)));
        }
        EventView::Citations(block) => sources(seq, &block, out),
        EventView::Media(media) => files(seq, &media, out),
        EventView::UserError(error) => {
            out.push(Chunk::data("data-user-error", seq.to_string(), raw(&error)));
        }
        EventView::Interrupt(interrupt) => ask(fold, &interrupt, out),
        // Not all versions of the protocol can remove text. Runs of this face accept no resets, but
        // a viewer may watch runs of other faces.
        EventView::Reset(_) => {
            let error = Fault::new(FaultKind::AttemptDiverged).to_stream_error(Default::default());
            fold.fail(&error, out);
        }
        // No client of this protocol understands what only one provider does.
        EventView::Other if read.kind.as_deref() == Some(NATIVE) => {}
        EventView::Other => match tool_event(&read) {
            Some(body) => tool(fold, body, out),
            None => out.push(Chunk::data("data-event", seq.to_string(), event.clone().into())),
        },
    }
}

type Kinds = [&'static str; 3];
const TEXT: Kinds = ["text-start", "text-delta", "text-end"];
const REASONING: Kinds = ["reasoning-start", "reasoning-delta", "reasoning-end"];

/// A complete text or thought.
fn whole(fold: &mut Fold, seq: u64, [start, delta, end]: Kinds, text: &str, out: &mut Vec<Chunk>) {
    if text.is_empty() {
        return;
    }
    fold.begin(out);
    fold.end_text(out);
    let id = seq.to_string();
    out.push(Chunk::edge(start, id.clone()));
    out.push(Chunk::piece(delta, id.clone(), text));
    out.push(Chunk::edge(end, id));
}

fn sources(seq: u64, block: &CitationBlock, out: &mut Vec<Chunk>) {
    out.extend(block.citations.iter().map(|source| Chunk {
        source_id: Some(source.source_id.clone()),
        url: Some(source.uri.to_string()),
        title: Some(source.title.clone()),
        ..Chunk::of("source-url")
    }));
    out.push(Chunk::data("data-citations", seq.to_string(), raw(block)));
}

fn files(seq: u64, media: &MediaCarousel, out: &mut Vec<Chunk>) {
    out.extend(media.items.iter().map(|item| Chunk {
        url: Some(item.url.to_string()),
        media_type: Some(item.mime_type.clone()),
        ..Chunk::of("file")
    }));
    out.push(Chunk::data("data-media", seq.to_string(), raw(media)));
}

/// A question about a call becomes an approval. Any other question becomes a call of its own, whose
/// output is the answer.
fn ask(fold: &mut Fold, interrupt: &Interrupt, out: &mut Vec<Chunk>) {
    fold.begin(out);
    fold.end_text(out);
    if let Some(call) = interrupt.tool_call_id.as_ref().filter(|call| fold.known.contains(*call)) {
        fold.pending.insert(call.clone());
        out.push(Chunk {
            approval_id: Some(interrupt.id.clone()),
            reason: interrupt.message.clone(),
            ..Chunk::call("tool-approval-request", call)
        });
        return;
    }
    fold.known.insert(interrupt.id.clone());
    fold.pending.insert(interrupt.id.clone());
    let of_call = |kind| Chunk {
        tool_name: Some(INTERRUPT.to_owned()),
        dynamic: fold.facts.is_dynamic.then_some(true),
        ..Chunk::call(kind, &interrupt.id)
    };
    out.push(of_call("tool-input-start"));
    out.push(Chunk { input: Some(raw(interrupt)), ..of_call("tool-input-available") });
}

/// An event of a tool call. Agents use AG-UI's names.
fn tool_event(event: &Event) -> Option<EventBody> {
    let kind = event.kind.as_deref().filter(|kind| kind.starts_with("TOOL_CALL_"))?;
    let Value::Object(mut members) = event.data.clone() else { return None };
    members.retain(|_, value| !value.is_null());
    members.insert("type".into(), kind.into());
    serde_json::from_value::<AguiEvent>(Value::Object(members)).ok().map(|event| event.body)
}

fn tool(fold: &mut Fold, body: EventBody, out: &mut Vec<Chunk>) {
    #[allow(clippy::wildcard_enum_match_arm)] // The other events are none of a call.
    match body {
        EventBody::ToolCallStart { tool_call_id: id, tool_call_name: name, .. } => {
            start(fold, id, name, out)
        }
        EventBody::ToolCallArgs { tool_call_id: id, delta } => {
            let Some(call) = fold.open.iter_mut().find(|call| call.id == id) else { return };
            call.arguments.push_str(&delta);
            if !call.is_known && !delta.is_empty() {
                out.push(Chunk {
                    input_text_delta: Some(delta),
                    ..Chunk::call("tool-input-delta", id)
                });
            }
        }
        EventBody::ToolCallEnd { tool_call_id: id } => end(fold, &id, out),
        EventBody::ToolCallResult { tool_call_id: id, content, .. } => {
            result(fold, &id, &content, out)
        }
        _ => {}
    }
}

fn start(fold: &mut Fold, id: String, name: String, out: &mut Vec<Chunk>) {
    if fold.open.iter().any(|call| call.id == id) {
        return;
    }
    // A run that continues after a call may repeat it.
    let is_known = !fold.known.insert(id.clone());
    if !is_known {
        fold.begin(out);
        fold.end_text(out);
        fold.pending.insert(id.clone());
        out.push(of_call("tool-input-start", fold, &id, &name));
    }
    fold.open.push(Call { id, name, arguments: String::new(), is_known });
}

fn of_call(kind: &'static str, fold: &Fold, id: &str, name: &str) -> Chunk {
    let dynamic = fold.facts.is_dynamic.then_some(true);
    Chunk { tool_name: Some(name.to_owned()), dynamic, ..Chunk::call(kind, id) }
}

fn end(fold: &mut Fold, id: &str, out: &mut Vec<Chunk>) {
    let Some(at) = fold.open.iter().position(|call| call.id == id) else { return };
    let call = fold.open.remove(at);
    if !call.is_known {
        let input = Some(json_of(&call.arguments));
        out.push(Chunk { input, ..of_call("tool-input-available", fold, id, &call.name) });
    }
}

/// Arguments as JSON. No arguments are an empty object, and invalid JSON becomes a text.
fn json_of(text: &str) -> RawJson {
    let text = if text.trim().is_empty() { "{}" } else { text };
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()).into())
}

/// A result of a call that the message does not have would end the chat.
fn result(fold: &mut Fold, id: &str, content: &MessageContent, out: &mut Vec<Chunk>) {
    if !fold.known.contains(id) {
        return;
    }
    end(fold, id, out);
    fold.end_text(out);
    fold.pending.remove(id);
    fold.is_step_done = true;
    let text = content.text();
    let output = serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text).into());
    out.push(Chunk { output: Some(output), ..Chunk::call("tool-output-available", id) });
}

//! Replays the message that a run continues, for a reader that does not have it.

use super::chunk::Chunk;
use super::message::{UiMessage, UiPart};

/// The chunks of the message at the begin of the run. Types that older clients do not know are left
/// out. Later chunks show the user's decisions.
pub(super) fn chunks(message: &UiMessage) -> Vec<Chunk> {
    let mut out = Vec::new();
    let mut is_in_step = false;
    for (at, part) in message.parts.iter().enumerate() {
        if part.is_step() {
            if is_in_step {
                out.push(Chunk::of("finish-step"));
            }
            is_in_step = true;
            out.push(Chunk::of("start-step"));
        } else {
            replay_part(at, part, &mut out);
        }
    }
    if is_in_step {
        out.push(Chunk::of("finish-step"));
    }
    out
}

fn replay_part(at: usize, part: &UiPart, out: &mut Vec<Chunk>) {
    let whole = |kinds: [&'static str; 3], out: &mut Vec<Chunk>| {
        let (id, text) = (format!("was-{at}"), part.text.clone().unwrap_or_default());
        out.push(Chunk::edge(kinds[0], id.clone()));
        out.push(Chunk::piece(kinds[1], id.clone(), text));
        out.push(Chunk::edge(kinds[2], id));
    };
    match part.kind.as_str() {
        "text" => whole(["text-start", "text-delta", "text-end"], out),
        "reasoning" => whole(["reasoning-start", "reasoning-delta", "reasoning-end"], out),
        "file" => out.push(Chunk {
            url: part.url.clone(),
            media_type: part.media_type.clone(),
            ..Chunk::of("file")
        }),
        "source-url" => out.push(Chunk {
            source_id: part.source_id.clone(),
            url: part.url.clone(),
            title: part.title.clone(),
            ..Chunk::of("source-url")
        }),
        kind => match (own(kind), part.tool()) {
            (Some(kind), _) => {
                out.push(Chunk { id: part.id.clone(), data: part.data.clone(), ..Chunk::of(kind) });
            }
            (None, Some(tool)) => call(part, tool, out),
            (None, None) => {}
        },
    }
}

/// The type of a part, if it is one of our own.
fn own(kind: &str) -> Option<&'static str> {
    super::chunk::KINDS.iter().find(|own| own.starts_with("data-") && **own == kind).copied()
}

fn call(part: &UiPart, tool: &str, out: &mut Vec<Chunk>) {
    let Some(id) = part.tool_call_id.as_deref() else { return };
    let dynamic = part.is_dynamic().then_some(true);
    out.push(Chunk {
        tool_name: Some(tool.to_owned()),
        input: Some(part.input.clone().unwrap_or_else(|| serde_json::json!({}).into())),
        dynamic,
        ..Chunk::call("tool-input-available", id)
    });
    match part.state.as_deref() {
        Some("output-available") => out.push(Chunk {
            output: Some(part.output.clone().unwrap_or_else(|| serde_json::Value::Null.into())),
            ..Chunk::call("tool-output-available", id)
        }),
        Some("output-error") => out.push(Chunk {
            error_text: Some(part.error_text.clone().unwrap_or_default()),
            ..Chunk::call("tool-output-error", id)
        }),
        _ => {}
    }
}

//! The messages of a turn, and the refusal of parts that an upstream cannot take.

use capstan_agent::Turn;
use capstan_protocol::{ChatMessage, Fault, FaultKind, Part, RawJson};

/// Returns the messages of the conversation, each with its place.
pub(crate) fn messages(turn: &Turn) -> impl Iterator<Item = (usize, &ChatMessage)> {
    turn.conversation().enumerate()
}

/// Returns the request's context as a text for a system message.
pub(crate) fn context(turn: &Turn) -> Option<String> {
    let facts = turn.context.iter().map(|fact| format!("\n- {}: {}", fact.description, fact.value));
    (!turn.context.is_empty())
        .then(|| format!("Context of this conversation:{}", facts.collect::<String>()))
}

/// Returns a tool's result as text. A JSON string loses its quotes.
pub(crate) fn response_text(response: &RawJson) -> String {
    response.decode().unwrap_or_else(|_| response.get().to_owned())
}

/// The name of a file that has none. OpenAI's protocols need one.
pub(crate) const UNNAMED: &str = "attachment";

/// The place of a part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartPath {
    pub(crate) message: usize,
    pub(crate) part: usize,
}

/// Refuses a parameter that the upstream does not have, by its name.
pub(crate) fn refused_parameter(name: &str, why: &str) -> Fault {
    let message = format!("{name}: {why}.");
    Fault::new(FaultKind::InvalidRequest).with_message(message).with_detail("path", name)
}

/// Refuses a part that the upstream cannot take, by its place.
pub(crate) fn refused(place: PartPath, part: &Part, why: &str) -> Fault {
    let path = format!("messages[{}].parts[{}]", place.message, place.part);
    let message = format!("{path}: {} {why}.", kind(part));
    Fault::new(FaultKind::InvalidRequest).with_message(message).with_detail("path", path)
}

fn kind(part: &Part) -> &'static str {
    match part {
        Part::Text { .. } => "a text",
        Part::Blob { .. } => "a blob",
        Part::File { .. } => "a file",
        Part::Uri { .. } => "a uri",
        Part::ToolCall { .. } => "a tool_call",
        Part::ToolCallResponse { .. } => "a tool_call_response",
        Part::Reasoning { .. } => "a reasoning",
        Part::Native(_) => "a native part",
    }
}

/// Returns the media type of a blob. Providers need it.
pub(crate) fn mime<'a>(
    place: PartPath,
    part: &Part,
    mime: &'a Option<String>,
) -> Result<&'a str, Fault> {
    mime.as_deref().ok_or_else(|| refused(place, part, "needs a mime_type for this agent"))
}

/// Returns the id of a tool call, made from its place if it has none.
pub(crate) fn call_id(id: &Option<String>, nth: usize) -> String {
    id.clone().unwrap_or_else(|| format!("call_{nth}"))
}

//! Frames: the objects of stream-json output, checked for the members that each type must have.

use serde_json::{Map, Value};

use super::error::AssistantError;
use crate::decode::{DecodeError, DecodeErrorKind};

/// A content block of a message. Types that are not listed are dropped, as every reader of these
/// frames does.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// Text.
    Text(String),
    /// A thought.
    Thinking(String),
    /// The agent, or the provider for it, calls a tool.
    ToolUse {
        /// The call's id.
        id: String,
        /// The tool.
        name: String,
        /// The arguments.
        input: Value,
    },
    /// A tool answers.
    ToolResult {
        /// The call that it answers.
        tool_use_id: String,
        /// The result.
        content: Value,
        /// Whether the call failed.
        is_error: bool,
    },
}

/// The agent speaks.
#[derive(Debug, Clone, PartialEq)]
pub struct AssistantMessage {
    /// The message that this frame belongs to; one message may come in several frames.
    pub id: Option<String>,
    /// The model; `<synthetic>` if the CLI itself wrote the frame.
    pub model: String,
    /// The content.
    pub blocks: Vec<Block>,
    /// Why this is not an answer (ADR 0004); it stands at the top level of the frame.
    pub error: Option<AssistantError>,
    /// The error inside `message`, as older CLIs write it. An explicit null at the top level
    /// overrules it.
    pub legacy_error: Option<AssistantError>,
    /// The tool call of the subagent that wrote this.
    pub parent_tool_use_id: Option<String>,
}

impl AssistantMessage {
    /// The text blocks, joined.
    pub fn text(&self) -> String {
        let text =
            |block: &Block| if let Block::Text(text) = block { Some(text.clone()) } else { None };
        self.blocks.iter().filter_map(text).collect()
    }

    /// The error, wherever it stands.
    pub fn any_error(&self) -> Option<&AssistantError> {
        self.error.as_ref().or(self.legacy_error.as_ref())
    }
}

/// The person, or a tool, speaks.
#[derive(Debug, Clone, PartialEq)]
pub struct UserMessage {
    /// The content.
    pub blocks: Vec<Block>,
    /// The tool call of the subagent that receives this.
    pub parent_tool_use_id: Option<String>,
}

/// News from the CLI.
#[derive(Debug, Clone, PartialEq)]
pub struct SystemMessage {
    /// The kind of message.
    pub subtype: String,
    /// The complete frame.
    pub data: Map<String, Value>,
}

impl SystemMessage {
    /// The name that readers use for this kind.
    fn class(&self) -> &'static str {
        match self.subtype.as_str() {
            "task_started" => "TaskStartedMessage",
            "task_progress" => "TaskProgressMessage",
            "task_notification" => "TaskNotificationMessage",
            "task_updated" => "TaskUpdatedMessage",
            "mirror_error" => "MirrorErrorMessage",
            "hook_started" | "hook_response" => "HookEventMessage",
            _ => "SystemMessage",
        }
    }

    /// The members that a kind of news must have.
    fn required(subtype: &str) -> &'static [&'static str] {
        match subtype {
            "task_started" => &["task_id", "description", "uuid", "session_id"],
            "task_progress" => &["task_id", "description", "usage", "uuid", "session_id"],
            "task_notification" => {
                &["task_id", "status", "output_file", "summary", "uuid", "session_id"]
            }
            _ => &[],
        }
    }
}

/// The end of a turn. `is_error` decides, never the subtype: an API failure has the subtype
/// `success`.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultMessage {
    /// `success`, `error_max_turns`, …
    pub subtype: String,
    /// Whether the turn failed.
    pub is_error: bool,
    /// The status of the API call that failed.
    pub api_error_status: Option<u16>,
    /// The answer, or the failure as text.
    pub result: Option<String>,
    /// Why it stopped.
    pub terminal_reason: Option<String>,
    /// Why the model's last message ended.
    pub stop_reason: Option<String>,
    /// Further failures as text.
    pub errors: Vec<String>,
    /// Tokens.
    pub usage: Option<Map<String, Value>>,
    /// The cost.
    pub total_cost_usd: Option<f64>,
}

/// A raw event of the provider's stream, for readers of text as it arrives.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamEvent {
    /// The provider's event.
    pub event: Value,
    /// An error that the CLI put on the event.
    pub error: Option<AssistantError>,
    /// The tool call of the subagent that wrote this.
    pub parent_tool_use_id: Option<String>,
}

/// The rest of a rate limit.
#[derive(Debug, Clone, PartialEq)]
pub struct RateLimitEvent {
    /// `allowed`, `allowed_warning`, `rejected`, …
    pub status: String,
    /// When it resets, in seconds since the Unix epoch.
    pub resets_at: Option<i64>,
}

/// A frame, by type.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// The agent speaks.
    Assistant(AssistantMessage),
    /// The person or a tool speaks.
    User(UserMessage),
    /// News from the CLI.
    System(SystemMessage),
    /// A turn ended.
    Result(ResultMessage),
    /// A raw event of the provider's stream.
    StreamEvent(StreamEvent),
    /// A rate limit's state.
    RateLimit(RateLimitEvent),
    /// The conversation starts again.
    ConversationReset,
    /// A type that is not known: passed over.
    Unknown(String),
}

impl Frame {
    /// Reads a frame; a member that its type must have and lacks is an error.
    pub fn from_object(object: &Map<String, Value>) -> Result<Self, DecodeError> {
        let kind =
            object.get("type").filter(|kind| !kind.is_null()).ok_or_else(|| missing("type"))?;
        match kind.as_str().ok_or_else(|| DecodeError::value("type", "expected a string"))? {
            "" => Err(missing("type")),
            "assistant" => assistant(object).map(Self::Assistant),
            "user" => user(object).map(Self::User),
            "system" => system(object).map(Self::System),
            "result" => result(object).map(Self::Result),
            "stream_event" => stream_event(object).map(Self::StreamEvent),
            "rate_limit_event" => rate_limit(object).map(Self::RateLimit),
            "conversation_reset" => require(object, &["new_conversation_id", "uuid", "session_id"])
                .map(|()| Self::ConversationReset),
            unknown => Ok(Self::Unknown(unknown.to_owned())),
        }
    }

    /// The name that readers use for this kind of frame; none for unknown types.
    pub fn class(&self) -> Option<&'static str> {
        match self {
            Self::Assistant(_) => Some("AssistantMessage"),
            Self::User(_) => Some("UserMessage"),
            Self::System(message) => Some(message.class()),
            Self::Result(_) => Some("ResultMessage"),
            Self::StreamEvent(_) => Some("StreamEvent"),
            Self::RateLimit(_) => Some("RateLimitEvent"),
            Self::ConversationReset => Some("ConversationResetMessage"),
            Self::Unknown(_) => None,
        }
    }
}

fn missing(path: &str) -> DecodeError {
    DecodeError::new(DecodeErrorKind::Missing, path, "required member is absent")
}

fn require(object: &Map<String, Value>, names: &[&str]) -> Result<(), DecodeError> {
    names.iter().find(|name| !object.contains_key(**name)).map_or(Ok(()), |name| Err(missing(name)))
}

fn text(object: &Map<String, Value>, name: &str) -> Option<String> {
    object.get(name)?.as_str().map(str::to_owned)
}

fn object_at<'a>(
    object: &'a Map<String, Value>,
    name: &str,
) -> Result<&'a Map<String, Value>, DecodeError> {
    let value = object.get(name).ok_or_else(|| missing(name))?;
    value.as_object().ok_or_else(|| DecodeError::value(name, "expected an object"))
}

/// Reads an error word. A value that is no string becomes its JSON text, so that no error is lost.
fn error_at(object: &Map<String, Value>) -> Option<AssistantError> {
    match object.get("error")? {
        Value::Null => None,
        Value::String(word) => Some(AssistantError::from(word.as_str())),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Some(AssistantError::Other(other.to_string()))
        }
    }
}

fn assistant(object: &Map<String, Value>) -> Result<AssistantMessage, DecodeError> {
    let message = object_at(object, "message")?;
    let content = message.get("content").ok_or_else(|| missing("message.content"))?;
    let items = content
        .as_array()
        .ok_or_else(|| DecodeError::value("message.content", "expected an array"))?;
    let blocks = blocks(items, ASSISTANT_BLOCKS)?;
    let model = message.get("model").ok_or_else(|| missing("message.model"))?;
    let is_overruled = object.contains_key("error");
    let legacy_error = error_at(message).filter(|error| !is_overruled && error.adr().is_some());
    Ok(AssistantMessage {
        id: text(message, "id"),
        model: model.as_str().map_or_else(|| model.to_string(), str::to_owned),
        blocks,
        error: error_at(object),
        legacy_error,
        parent_tool_use_id: text(object, "parent_tool_use_id"),
    })
}

/// The types of blocks that readers know in each message. Readers drop others, even incomplete
/// ones.
const ASSISTANT_BLOCKS: &[&str] =
    &["text", "thinking", "tool_use", "server_tool_use", "tool_result", "advisor_tool_result"];
const USER_BLOCKS: &[&str] = &["text", "tool_use", "tool_result"];

fn blocks(items: &[Value], known: &[&str]) -> Result<Vec<Block>, DecodeError> {
    let mut blocks = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let path = format!("message.content[{index}]");
        let item =
            item.as_object().ok_or_else(|| DecodeError::value(&path, "expected an object"))?;
        let kind = item.get("type").ok_or_else(|| missing("type").inside(&path))?;
        if let Some(kind) = kind.as_str().filter(|kind| known.contains(kind)) {
            blocks.extend(block(kind, item).map_err(|e| e.inside(&path))?);
        }
    }
    Ok(blocks)
}

fn block(kind: &str, item: &Map<String, Value>) -> Result<Option<Block>, DecodeError> {
    let string = |name: &str| text(item, name).unwrap_or_default();
    let block = match kind {
        "text" => {
            require(item, &["text"])?;
            Block::Text(string("text"))
        }
        "thinking" => {
            require(item, &["thinking", "signature"])?;
            Block::Thinking(string("thinking"))
        }
        "tool_use" | "server_tool_use" => {
            require(item, &["id", "name", "input"])?;
            let input = item.get("input").cloned().unwrap_or_default();
            Block::ToolUse { id: string("id"), name: string("name"), input }
        }
        "tool_result" | "advisor_tool_result" => {
            require(
                item,
                if kind == "tool_result" { &["tool_use_id"] } else { &["tool_use_id", "content"] },
            )?;
            let content = item.get("content").cloned().unwrap_or_default();
            let is_error = item.get("is_error") == Some(&Value::Bool(true));
            Block::ToolResult { tool_use_id: string("tool_use_id"), content, is_error }
        }
        _ => return Ok(None),
    };
    Ok(Some(block))
}

fn user(object: &Map<String, Value>) -> Result<UserMessage, DecodeError> {
    let message = object_at(object, "message")?;
    let blocks = match message.get("content").ok_or_else(|| missing("message.content"))? {
        Value::Array(items) => blocks(items, USER_BLOCKS)?,
        Value::String(text) => vec![Block::Text(text.clone())],
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };
    Ok(UserMessage { blocks, parent_tool_use_id: text(object, "parent_tool_use_id") })
}

fn system(object: &Map<String, Value>) -> Result<SystemMessage, DecodeError> {
    let subtype = object.get("subtype").ok_or_else(|| missing("subtype"))?;
    let subtype = subtype.as_str().unwrap_or_default().to_owned();
    require(object, SystemMessage::required(&subtype))?;
    Ok(SystemMessage { subtype, data: object.clone() })
}

fn result(object: &Map<String, Value>) -> Result<ResultMessage, DecodeError> {
    require(
        object,
        &["subtype", "duration_ms", "duration_api_ms", "is_error", "num_turns", "session_id"],
    )?;
    deferred(object.get("deferred_tool_use"))?;
    let status = object.get("api_error_status").and_then(Value::as_u64);
    let errors =
        object.get("errors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    Ok(ResultMessage {
        subtype: text(object, "subtype").unwrap_or_default(),
        is_error: object.get("is_error") == Some(&Value::Bool(true)),
        api_error_status: status.and_then(|status| u16::try_from(status).ok()),
        result: text(object, "result"),
        terminal_reason: text(object, "terminal_reason"),
        stop_reason: text(object, "stop_reason"),
        errors: errors.iter().filter_map(|e| e.as_str().map(str::to_owned)).collect(),
        usage: object.get("usage").and_then(Value::as_object).cloned(),
        total_cost_usd: object.get("total_cost_usd").and_then(Value::as_f64),
    })
}

/// Checks a call that waits for permission: the program that resumes it must know its id. An empty
/// value counts as none.
fn deferred(call: Option<&Value>) -> Result<(), DecodeError> {
    let is_empty = match call {
        None | Some(Value::Null | Value::Bool(false)) => true,
        Some(Value::Bool(true)) => false,
        Some(Value::Number(number)) => number.as_f64() == Some(0.0),
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(members)) => members.is_empty(),
    };
    let Some(call) = call.filter(|_| !is_empty) else { return Ok(()) };
    let path = "deferred_tool_use";
    let call = call.as_object().ok_or_else(|| DecodeError::value(path, "expected an object"))?;
    require(call, &["id", "name", "input"]).map_err(|e| e.inside(path))
}

fn stream_event(object: &Map<String, Value>) -> Result<StreamEvent, DecodeError> {
    require(object, &["uuid", "session_id", "event"])?;
    let event = object.get("event").cloned().unwrap_or_default();
    // On message_stop the error may stand on the frame, on the event or on the event's message.
    let inside =
        event.as_object().filter(|event| event.get("type") == Some(&Value::from("message_stop")));
    let on_event = inside.and_then(error_at);
    let on_message = inside.and_then(|event| error_at(event.get("message")?.as_object()?));
    let error = error_at(object).or(on_event).or(on_message);
    Ok(StreamEvent { event, error, parent_tool_use_id: text(object, "parent_tool_use_id") })
}

fn rate_limit(object: &Map<String, Value>) -> Result<RateLimitEvent, DecodeError> {
    let info = object_at(object, "rate_limit_info")?;
    require(info, &["status"]).map_err(|e| e.inside("rate_limit_info"))?;
    let status = text(info, "status").unwrap_or_default();
    require(object, &["uuid", "session_id"])?;
    Ok(RateLimitEvent { status, resets_at: info.get("resetsAt").and_then(Value::as_i64) })
}

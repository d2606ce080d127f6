//! `/v1/ai-sdk/chat`, the requests of `DefaultChatTransport`: a POST that starts a run or attaches
//! to it, and a GET and DELETE for the chat's newest run.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, Request as HttpRequest, State};
use axum::response::{IntoResponse as _, Response};
use capstan_journal::{NameKind, Run, RunState};
use capstan_protocol::fault::Entry;
use capstan_protocol::{Fault, FaultKind};
use http::StatusCode;
use schemars::{JsonSchema as _, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::chunk::Chunk;
use super::start_index::{Params, StartIndex};
use super::{AiSdk, location};
use crate::face::FaceContext;
use crate::face::last_event_id::resume_point;
use crate::face::post;
use crate::face::reader::ViewerKind;
use crate::face::{self, RefusalTarget, ViewRequest};
use crate::identity::caller::Caller;
use crate::openapi::{
    self, Answer, Body, Content, Header, PathParameter, Refusals, Routes, Row, Tag, model,
    of_stream, of_user,
};
use crate::refusal::Refusal;
use capstan_engine::resume::ResumePoint;
use capstan_engine::{lookup, stopping};

/// How long after its end a run is sent again. A page that was away must not take half an answer
/// for a complete one. Pages that have it already recognise the ids.
const RECENT: Duration = Duration::from_secs(5 * 60);

const TAG: Tag = Tag {
    name: "AI SDK",
    says: "The same runs as UI message streams, for `useChat` and its transports.",
};

const REFUSALS: Refusals = Refusals { status: status_of, content: Content::Text("text/plain") };

/// The status in the catalogue. The body is the catalogue's text.
fn status_of(entry: &Entry) -> u16 {
    entry.status
}

const KEY: Header = Header {
    name: "Idempotency-Key",
    says: "The key: the run starts at most once for it. Without this header, the chat and the body \
     are the key. The same message sent again then attaches, and another answer \
     (`regenerate-message`) is always a new run.",
    schema: || json!({ "type": "string" }),
};

const VERSION: Header = Header {
    name: "X-Vercel-AI-UI-Message-Stream",
    says: "The version of the stream's format.",
    schema: || json!({ "const": "v1" }),
};

const PLACE: Header = Header {
    name: "Location",
    says: "The address of the same message in Durable Streams, with a ticket where a key is \
        needed.",
    schema: || json!({ "type": "string" }),
};

const PREFER: Header = Header {
    name: "Prefer",
    says: "`respond-async`: returns only the address of the message, for a client that reads it \
        there.",
    schema: || json!({ "type": "string" }),
};

const ELSEWHERE: Answer = Answer {
    status: 202,
    headers: &[&openapi::STREAM_ID, &PLACE],
    ..Answer::ok(
        "The run has started. `Location` has the address of its message, as requested by \
        `Prefer: respond-async`.",
        &[],
    )
};

const CHAT: PathParameter = PathParameter {
    says: "The chat's id, which the page chooses.",
    schema: || json!({ "type": "string", "minLength": 1 }),
    example: "chat-17",
};

const STREAM: Answer = Answer {
    headers: &[&openapi::STREAM_ID, &VERSION, &PLACE],
    ..Answer::ok(
        "The chunks of one UI message, from `start` to `[DONE]`. They have ids by which our client \
         resumes.",
        &[Content::Events(model::<Chunk>)],
    )
};

const POST: Row = Row {
    tag: &TAG,
    summary: "Start a run in a chat, or attach to it",
    says: "The request of `DefaultChatTransport`. The chat is the session. The agent gets the \
     messages of the request only. With `message` in place of `messages`, the gateway adds the \
     stored messages. `tools`, `context`, `state` and the model's parameters work as in `POST \
     /v1/assist`.",
    places: &[&openapi::AGENT],
    headers: &[&openapi::CURSOR, &KEY, &PREFER],
    body: Some(&CHAT_BODY),
    answers: &[
        Answer {
            links: &[
                of_stream("get", crate::identity::tickets::STREAM),
                of_stream("delete", crate::identity::tickets::STREAM),
            ],
            ..STREAM
        },
        ELSEWHERE,
    ],
    faults: &[
        FaultKind::PayloadTooLarge,
        FaultKind::UnsupportedMediaType,
        FaultKind::Timeout,
        FaultKind::RequestConflict,
        FaultKind::InterruptNotOpen,
        FaultKind::AgentNotFound,
        FaultKind::StreamExpired,
        FaultKind::StreamLost,
        FaultKind::RateLimitExceeded,
        FaultKind::SessionLimitExceeded,
        FaultKind::MessageLimitExceeded,
        FaultKind::StorageLimitExceeded,
        FaultKind::ServiceUnavailable,
        FaultKind::JournalUnavailable,
    ],
    refusals: Some(&REFUSALS),
    ..Row::NONE
};

const RESUME: Row = Row {
    tag: &TAG,
    summary: "Resume the newest run of a chat",
    says: "The whole message from `start`, then live chunks. Or the chunks after `Last-Event-ID`, \
     or from `startIndex` on. The path may have the run's id in place of the chat's. A run that \
     ended less than five minutes ago is also sent. The request only reads.",
    places: &[&CHAT],
    query: Some(Params::json_schema),
    headers: &[&openapi::CURSOR, &PREFER],
    answers: &[
        STREAM,
        ELSEWHERE,
        Answer {
            status: 204,
            ..Answer::ok("No run of this chat is open or has ended recently.", &[])
        },
    ],
    faults: &[FaultKind::StreamLost, FaultKind::ServiceUnavailable, FaultKind::JournalUnavailable],
    refusals: Some(&REFUSALS),
    ..Row::NONE
};
const RESUME_OF_AGENT: Row = Row { places: &[&openapi::AGENT, &CHAT], ..RESUME };

const STOP: Row = Row {
    tag: &TAG,
    summary: "Stop the newest run of a chat",
    says: "The page's own `stop()` only closes the connection. This ends the run, for every tab. \
     Its output stays.",
    places: &[&CHAT],
    answers: &[Answer { status: 204, ..Answer::ok("The run has ended.", &[]) }],
    faults: &[
        FaultKind::StreamNotFound,
        FaultKind::ServiceUnavailable,
        FaultKind::JournalUnavailable,
    ],
    refusals: Some(&REFUSALS),
    ..Row::NONE
};
const STOP_OF_AGENT: Row = Row { places: &[&openapi::AGENT, &CHAT], ..STOP };

const CHAT_BODY: Body = Body {
    says: "`id` is the chat, `messages` are UI messages. The last message is the turn: of role \
     user, or of role assistant with outputs of tools.",
    model: chat_body,
    examples: &[("chat", example)],
};

fn chat_body(_: &mut SchemaGenerator) -> Schema {
    let message = json!({ "type": "object", "required": ["role", "parts"], "properties": {
        "id": { "type": "string" },
        "role": { "enum": ["system", "user", "assistant"] },
        "parts": { "type": "array", "items": { "type": "object", "required": ["type"],
            "properties": { "type": { "type": "string" }, "text": { "type": "string" } } } } } });
    let messages = of_user(json_schema!({ "type": "array", "items": message }));
    json_schema!({ "type": "object", "required": ["messages"], "properties": {
        "id": { "type": "string", "minLength": 1, "maxLength": 1024 },
        "messages": messages,
        "trigger": { "enum": ["submit-message", "regenerate-message"] },
        "messageId": { "type": "string" },
        "dynamicTools": { "type": "boolean", "description": "Tool calls are sent as \
         `dynamic-tool`, for pages without types for them." } } })
}

fn example() -> Value {
    json!({
        "id": "chat-17",
        "messages": [{ "id": "m1", "role": "user", "parts": [{ "type": "text",
        "text": "Why is the sky blue?" }] }],
        "trigger": "submit-message",
    })
}

pub(super) fn routes(face: &Arc<AiSdk>) -> Routes<FaceContext> {
    let resume = |face: Arc<AiSdk>| {
        async move |State(cx): State<FaceContext>,
                    Extension(caller): Extension<Caller>,
                    Path(path): Places,
                    request: HttpRequest| {
            resume(&face, &cx, &caller, &Chat::of(path), request).await
        }
    };
    let stop = |face: Arc<AiSdk>| {
        async move |State(cx): State<FaceContext>,
                    Extension(caller): Extension<Caller>,
                    Path(path): Places,
                    request: HttpRequest| {
            stop(&face, &cx, &caller, &Chat::of(path), request).await
        }
    };
    Routes::default()
        .start("/v1/ai-sdk/chat", face.clone(), &POST)
        .get("/v1/ai-sdk/chat/{id}/stream", resume(face.clone()), &RESUME)
        .delete("/v1/ai-sdk/chat/{id}/stream", stop(face.clone()), &STOP)
        .start("/v1/agents/{name}/ai-sdk/chat", face.clone(), &POST)
        .get("/v1/agents/{name}/ai-sdk/chat/{id}/stream", resume(face.clone()), &RESUME_OF_AGENT)
        .delete("/v1/agents/{name}/ai-sdk/chat/{id}/stream", stop(face.clone()), &STOP_OF_AGENT)
}

/// The parameters of a path, by name.
type Places = Path<Vec<(String, String)>>;

/// The chat that a path names, and its agent.
struct Chat {
    agent: Option<String>,
    id: String,
}

impl Chat {
    fn of(path: Vec<(String, String)>) -> Self {
        let mut chat = Self { agent: None, id: String::new() };
        for (name, value) in path {
            match name.as_str() {
                "name" => chat.agent = Some(value),
                _ => chat.id = value,
            }
        }
        chat
    }

    /// The newest run of the chat, or the run with this id, if it belongs to this agent.
    async fn newest(&self, cx: &FaceContext, tenant: &str) -> Result<Option<Run>, Fault> {
        let run = match lookup::newest(&cx.engine, tenant, NameKind::Chat, &self.id).await? {
            None => self.run(cx, tenant).await?,
            run => run,
        };
        let agent = self.agent.as_deref().map(|name| cx.engine.own_name(name));
        Ok(run.filter(|run| agent.is_none_or(|agent| agent == run.agent)))
    }

    /// Finds a run by its own id, if no chat has that name.
    async fn run(&self, cx: &FaceContext, tenant: &str) -> Result<Option<Run>, Fault> {
        match lookup::by_stream(&cx.engine, tenant, &self.id).await {
            Err(fault) if fault.kind() == FaultKind::StreamNotFound => Ok(None),
            found => found.map(Some),
        }
    }
}

/// Whether a run is sent again: open runs, and those that ended recently. A request with the run's
/// id gets it in any case.
fn is_there(cx: &FaceContext, run: &Run, chat: &Chat) -> bool {
    let is_past = |closed_at| cx.engine.wall().steps().is_past(closed_at, RECENT, cx.engine.now());
    let is_old = run.state == RunState::Closed && run.closed_at.is_some_and(is_past);
    !is_old || chat.id == run.stream_id.to_string()
}

async fn resume(
    face: &AiSdk,
    cx: &FaceContext,
    caller: &Caller,
    chat: &Chat,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (mut parts, _) = request.into_parts();
    let resumed = async {
        let run = chat.newest(cx, &caller.tenant).await?.filter(|run| is_there(cx, run, chat));
        let Some(run) = run else { return Ok(StatusCode::NO_CONTENT.into_response()) };
        if location::is_preferred(&parts) {
            return location::response(cx, &run, &parts).await;
        }
        let point = resume_point(&parts.headers)?;
        // The cursor belongs to an earlier run. The chat has continued, so the newest run is sent
        // from its start.
        let is_its =
            |point: &ResumePoint| point.cursor.is_none_or(|id| id.stream_id() == run.stream_id);
        let point = Some(point).filter(is_its).unwrap_or_default();
        if let Some(start) = StartIndex::of(cx, &run, &parts).await? {
            parts.extensions.insert(start);
        }
        let opening =
            ViewRequest { run: &run, point, view: ViewerKind::Get, parts: &parts, posted: None };
        post::watch(cx, face, opening).await
    };
    let resumed = resumed.await;
    resumed.map_err(|fault| face::refusal(cx, face, fault, RefusalTarget::Viewer(&parts)))
}

async fn stop(
    face: &AiSdk,
    cx: &FaceContext,
    caller: &Caller,
    chat: &Chat,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, _) = request.into_parts();
    let stopped = async {
        let run = chat.newest(cx, &caller.tenant).await?;
        let run = run.ok_or_else(|| Fault::new(FaultKind::StreamNotFound))?;
        stopping::stop(&cx.engine, run, caller).await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    stopped.await.map_err(|fault| face::refusal(cx, face, fault, RefusalTarget::Viewer(&parts)))
}

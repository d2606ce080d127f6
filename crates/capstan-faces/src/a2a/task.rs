//! Tasks: a run, together with the runs that answer its questions. The task's id is the first run's
//! stream.

use capstan_journal::{Questions, Run, RunState};
use capstan_protocol::{
    Close, Event, EventView, Fault, FaultKind, RawObject, StreamError, Transcript,
};
use serde_json::{Value, json};

use super::NAME;
use super::message::StoredMessage;
use super::version::{Ids, Status, TaskState, Version};
use crate::face::FaceContext;
use crate::face::reader::{self, Collected};
use capstan_engine::cpu_offload;
use capstan_engine::faults::journal_fault;
use capstan_engine::lookup;

/// The most runs of a task.
const MOST_RUNS: usize = 64;

/// The runs of a task, first to last.
pub(super) async fn runs_of(
    cx: &FaceContext,
    tenant: &str,
    agent: Option<&str>,
    task: &str,
) -> Result<Vec<Run>, Fault> {
    let unknown = || Fault::new(FaultKind::StreamNotFound);
    let first = lookup::by_stream(&cx.engine, tenant, task).await?;
    if agent.is_some_and(|agent| agent != first.agent) {
        return Err(unknown());
    }
    let mut runs = vec![first];
    while runs.len() < MOST_RUNS {
        let Some(last) = runs.last() else { break };
        let Some(next) = after(cx, last).await? else { break };
        runs.push(next);
    }
    Ok(runs)
}

/// The run that answers this one's questions.
async fn after(cx: &FaceContext, run: &Run) -> Result<Option<Run>, Fault> {
    let Some(next) = run.asked.as_ref().and_then(|asked| asked.answered_by) else {
        return Ok(None);
    };
    cx.engine.store().run(next).await.map_err(journal_fault)
}

/// The last run of the task that begins with this one. It decides the task's status.
pub(super) async fn last_of(cx: &FaceContext, first: Run) -> Result<Run, Fault> {
    let mut last = first;
    for _ in 1..MOST_RUNS {
        let Some(next) = after(cx, &last).await? else { break };
        last = next;
    }
    Ok(last)
}

/// The questions of a run that have no answer yet.
pub(super) fn open_questions(run: &Run) -> Option<&Questions> {
    let asked = run.asked.as_ref().filter(|_| run.reason.as_deref() == Some(Close::INTERRUPT));
    asked.filter(|asked| asked.answered_by.is_none())
}

/// The ids of the task of a run. `body` is the request's body, if the caller has it.
pub(super) async fn ids_of(cx: &FaceContext, run: &Run, body: Option<&str>) -> Result<Ids, Fault> {
    let own = || Ids { task: run.stream_id.to_string(), context: run.session.clone() };
    if run.face != NAME {
        return Ok(own());
    }
    let stored: Option<StoredMessage> = match body {
        Some(body) => serde_json::from_str(body).ok(),
        None => {
            let body = cx
                .engine
                .store()
                .body(run.stream_id)
                .await
                .map_err(journal_fault)?
                .unwrap_or_default();
            let _begun = cx.engine.cpu_offload().begin(&run.tenant, body.len()).await;
            cpu_offload::run(body.len(), || serde_json::from_slice(&body).ok())
        }
    };
    let task = stored.and_then(|stored| stored.task);
    Ok(task.map_or_else(own, |task| Ids { task, context: run.session.clone() }))
}

/// Builds a task from all of its runs.
pub(super) async fn of_runs(
    cx: &FaceContext,
    version: Version,
    runs: &[Run],
) -> Result<Value, Fault> {
    let (mut artifacts, mut wholes) = (Vec::new(), Vec::new());
    for run in runs {
        // The memory of all runs is reserved until the task is encoded.
        let whole: Collected = reader::collect_so_far(cx, run).await?;
        artifacts.extend(whole.encode(|whole| artifact_of(version, &whole.run, &whole.transcript)));
        wholes.push(whole);
    }
    let (Some(first), Some(last)) = (runs.first(), wholes.last()) else {
        return Err(Fault::new(FaultKind::StreamNotFound));
    };
    let ids = Ids { task: first.stream_id.to_string(), context: first.session.clone() };
    Ok(version.task(&ids, &status_of(last), artifacts))
}

/// Builds a task from one run.
pub(super) fn of_whole(version: Version, ids: &Ids, whole: &Collected) -> Value {
    let artifacts = artifact_of(version, &whole.run, &whole.transcript).into_iter().collect();
    version.task(ids, &status_of(whole), artifacts)
}

/// The status of a task as an event of a stream.
pub(super) fn status_event(version: Version, ids: &Ids, whole: &Collected) -> Value {
    version.status_event(ids, &status_of(whole), None)
}

/// A task without content, for lists.
pub(super) fn of_record(version: Version, ids: &Ids, run: &Run) -> Value {
    let status = Status {
        state: state_of(run.state, run),
        at: run.closed_at.unwrap_or(run.updated_at),
        says: None,
        message_id: String::new(),
    };
    version.task(ids, &status, Vec::new())
}

fn state_of(state: RunState, run: &Run) -> TaskState {
    match state {
        RunState::Running | RunState::Waiting => TaskState::Working,
        RunState::Closed => match run.reason.as_deref() {
            Some(Close::CANCELLED) => TaskState::Canceled,
            Some(Close::INTERRUPT) => TaskState::InputRequired,
            _ if run.fault.is_some() => TaskState::Failed,
            _ => TaskState::Completed,
        },
    }
}

fn status_of(whole: &Collected) -> Status {
    let (run, state) = (&whole.run, state_of(whole.state, &whole.run));
    #[allow(clippy::wildcard_enum_match_arm)] // Only these have something to say.
    let says = match state {
        TaskState::Failed => whole.transcript.error().map(failure),
        TaskState::InputRequired => Some(questions(&interrupts(&whole.transcript))),
        _ => None,
    };
    let at = run.closed_at.unwrap_or(run.updated_at);
    Status { state, at, says, message_id: format!("{}:{}", run.stream_id, run.last_seq) }
}

/// A failure as a sentence and as data.
pub(super) fn failure(error: &StreamError) -> (String, Option<Value>) {
    (error.message.clone(), serde_json::to_value(error).ok())
}

/// Questions as sentences and as data.
pub(super) fn questions(asked: &[Value]) -> (String, Option<Value>) {
    let sentences = asked.iter().map(|asked| {
        let message = asked.get("message").and_then(Value::as_str);
        message
            .or(asked.get("reason").and_then(Value::as_str))
            .unwrap_or("The task needs input to continue.")
    });
    (sentences.collect::<Vec<_>>().join("\n"), Some(json!({ "interrupts": asked })))
}

fn interrupts(transcript: &Transcript) -> Vec<Value> {
    let views = transcript.events().map(|raw| Event::of(raw).view());
    let asked = views.filter_map(|view| {
        if let EventView::Interrupt(asked) = view { serde_json::to_value(asked).ok() } else { None }
    });
    asked.collect()
}

/// Data of an A2A agent behind the gateway, which are forwarded unchanged.
pub(super) fn foreign_data(raw: &RawObject) -> Option<Value> {
    const TYPE: &str = "A2A_DATA";
    if !raw.get().contains(TYPE) {
        return None;
    }
    let event = raw.to_map();
    event.get("type").filter(|kind| **kind == TYPE)?;
    event.get("data")?.get("data").cloned()
}

/// The artifact of a run, if it has output: its text, its sources as data, its media as files.
pub(super) fn artifact_of(version: Version, run: &Run, transcript: &Transcript) -> Option<Value> {
    let mut text = transcript.text().to_owned();
    let mut data = Vec::new();
    for raw in transcript.events() {
        let event = Event::of(raw);
        match event.view() {
            EventView::Markdown(block) => text.push_str(&block.content),
            EventView::Citations(_) => data.push(version.data(Value::Object(raw.to_map()))),
            EventView::Media(media) => {
                data.extend(media.items.iter().map(|item| version.file(item)))
            }
            EventView::Other => data.extend(foreign_data(raw).map(|data| version.data(data))),
            EventView::Progress(_)
            | EventView::Thought(_)
            | EventView::UserError(_)
            | EventView::Reset(_)
            | EventView::Interrupt(_) => {}
        }
    }
    let parts: Vec<Value> =
        (!text.is_empty()).then(|| version.text(&text)).into_iter().chain(data).collect();
    (!parts.is_empty()).then(|| Version::artifact(&run.stream_id.to_string(), parts))
}

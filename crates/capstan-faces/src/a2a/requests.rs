//! The operations of both bindings: send, get, list, cancel, subscribe.

use axum::response::Response;
use bytes::Bytes;
use capstan_journal::{ArmedBy, Claim, Found, NameKind, Named, Questions, Run, RunState};
use capstan_protocol::agui::{ResumeEntry, ResumeStatus};
use capstan_protocol::{Fault, FaultKind, RawJson, RawObject};
use http::request::Parts;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::call::{Call, Wrong};
use super::message::{Configuration, Message, Send, StoredMessage};
use super::push;
use super::push_config::Config;
use super::version::{Ids, Version};
use super::{A2a, NAME, task};
use crate::face::FaceContext;
use crate::face::last_event_id::resume_point;
use crate::face::post::{self, Posted};
use crate::face::reader::ViewerKind;
use crate::face::{self, RefusalTarget, ViewRequest};
use crate::identity::caller::Caller;
use crate::refusal::Refusal;
use capstan_engine::ask::{RequestBody, invalid};
use capstan_engine::faults::journal_fault;
use capstan_engine::limits::MemoryReservation;
use capstan_engine::{runs, stopping};

/// A request: the caller, the agent, and the call.
pub(super) struct Asked<'a> {
    pub(super) face: &'a A2a,
    pub(super) cx: &'a FaceContext,
    pub(super) caller: &'a Caller,
    /// The agent that the path names.
    pub(super) agent: Option<&'a str>,
    pub(super) call: Call,
}

/// A page of a list holds at most this many tasks.
const PAGE: usize = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListParams {
    #[serde(alias = "context_id")]
    context_id: Option<String>,
    #[serde(alias = "page_size")]
    page_size: Option<usize>,
    #[serde(alias = "page_token")]
    page_token: Option<String>,
}

impl Asked<'_> {
    pub(super) fn wrong(&self, fault: &Fault) -> Response {
        self.call.refuse(&Wrong::of(fault, self.cx.engine.settings().exposure))
    }

    /// Sends a message: starts a run, or attaches to the one that it started.
    pub(super) async fn send(
        mut self,
        mut parts: Parts,
        params: &[u8],
        load: MemoryReservation,
        is_stream: bool,
    ) -> Result<Response, Refusal> {
        let stored = match self.keep(params).await {
            Ok((stored, configuration, push)) => {
                let is_blocking = configuration.is_blocking(self.call.version);
                (self.call.wants_collected, self.call.is_blocking) = (!is_stream, is_blocking);
                self.call.push = push;
                stored
            }
            Err(fault) => {
                parts.extensions.insert(self.call.clone());
                return Err(face::refusal(
                    self.cx,
                    self.face,
                    fault,
                    RefusalTarget::Viewer(&parts),
                ));
            }
        };
        parts.extensions.insert(self.call.clone());
        post::answer(
            self.cx,
            self.caller,
            self.face,
            self.agent,
            &parts,
            Posted { body: stored, load, hash: None },
        )
        .await
    }

    /// Builds the body that is stored with the run. A message that continues a task answers its
    /// questions.
    async fn keep(
        &self,
        params: &[u8],
    ) -> Result<(RequestBody, Configuration, Option<Config>), Fault> {
        let send: Send = capstan_protocol::decode::from_slice(params).map_err(|e| invalid(&e))?;
        let message = Message::of(&send.message)?;
        let push = send.configuration.push()?;
        let mut stored = StoredMessage {
            message: send.message,
            metadata: send.metadata,
            task: None,
            context: None,
            answers: Vec::new(),
        };
        if !message.task_id.is_empty() {
            self.answer(&message, &mut stored).await?;
        }
        let body = serde_json::to_vec(&stored).unwrap_or_default();
        Ok((Bytes::from(body).into(), send.configuration, push))
    }

    async fn answer(&self, message: &Message, stored: &mut StoredMessage) -> Result<(), Fault> {
        let store = self.cx.engine.store();
        let tenant = &self.caller.tenant;
        // A repeated message finds its first result.
        let found = store.find(tenant, &message.message_id).await.map_err(journal_fault)?;
        if let Some(Found::Run(run)) =
            found.filter(|found| matches!(found, Found::Run(run) if run.face == NAME))
        {
            let body = store.body(run.stream_id).await.map_err(journal_fault)?.unwrap_or_default();
            if let Ok(before) = serde_json::from_slice::<StoredMessage>(&body) {
                (stored.task, stored.context, stored.answers) =
                    (before.task, before.context, before.answers);
                return Ok(());
            }
        }
        let runs = task::runs_of(self.cx, tenant, self.agent, &message.task_id).await?;
        let over = || {
            Fault::new(FaultKind::InterruptNotOpen).with_message(
                "The task has no open question: it is working, or it has ended. Send a message \
                 without taskId.",
            )
        };
        let last = runs.last().ok_or_else(over)?;
        let asked = task::open_questions(last).ok_or_else(over)?;
        stored.answers = answers(asked, ResumeStatus::Resolved, Some(&message.answer()));
        (stored.task, stored.context) = (Some(message.task_id.clone()), Some(last.session.clone()));
        Ok(())
    }

    pub(super) async fn get(&self, id: &str) -> Result<Value, Fault> {
        let runs = task::runs_of(self.cx, &self.caller.tenant, self.agent, id).await?;
        task::of_runs(self.cx, self.call.version, &runs).await
    }

    /// Creates a push notification config.
    pub(super) async fn push_set(
        &self,
        task: &str,
        config: Config,
    ) -> Result<Result<Value, Wrong>, Fault> {
        if !push::is_possible(self.cx) {
            return Ok(Err(Wrong::no_push()));
        }
        let runs = task::runs_of(self.cx, &self.caller.tenant, self.agent, task).await?;
        let config = push::set(self.cx, self.call.version, &runs, config).await?;
        Ok(Ok(config.to_value(self.call.version, task)))
    }

    pub(super) async fn push_get(&self, task: &str, id: &str) -> Result<Value, Fault> {
        task::runs_of(self.cx, &self.caller.tenant, self.agent, task).await?;
        let config = push::get(self.cx, &self.caller.tenant, task, id).await?;
        Ok(config.to_value(self.call.version, task))
    }

    pub(super) async fn push_list(&self, task: &str) -> Result<Value, Fault> {
        task::runs_of(self.cx, &self.caller.tenant, self.agent, task).await?;
        let configs = push::list(self.cx, &self.caller.tenant, task).await?;
        let values: Vec<Value> =
            configs.iter().map(|config| config.to_value(self.call.version, task)).collect();
        Ok(match self.call.version {
            Version::V1 | Version::Rest03 => json!({ "configs": values, "nextPageToken": "" }),
            Version::V03 => values.into(),
        })
    }

    pub(super) async fn push_delete(&self, task: &str, id: &str) -> Result<Value, Fault> {
        task::runs_of(self.cx, &self.caller.tenant, self.agent, task).await?;
        push::delete(self.cx, &self.caller.tenant, task, id).await?;
        Ok(match self.call.version {
            Version::V1 | Version::Rest03 => json!({}),
            Version::V03 => Value::Null,
        })
    }

    /// Tasks that were begun in A2A, newest first.
    pub(super) async fn list(&self, params: &ListParams) -> Result<Value, Fault> {
        let limit = params.page_size.unwrap_or(50).clamp(1, PAGE);
        let before = params.page_token.as_deref().filter(|token| !token.is_empty());
        let wrong = |_| {
            Fault::new(FaultKind::InvalidRequest).with_message(
                "pageToken: is not a token of \
                this server",
            )
        };
        let before: Option<Uuid> = before.map(|token| token.parse().map_err(wrong)).transpose()?;
        let (store, tenant) = (self.cx.engine.store(), &self.caller.tenant);
        let _one = self.cx.engine.cpu_offload().answer(tenant).await;
        let runs = match params.context_id.as_deref().filter(|context| !context.is_empty()) {
            Some(context) => {
                store
                    .named(Named { tenant, kind: NameKind::Session, name: context, before, limit })
                    .await
            }
            None => store.list(tenant, before, limit).await,
        };
        let runs = runs.map_err(journal_fault)?;
        let next = runs.last().filter(|_| runs.len() == limit).map(|run| run.stream_id.to_string());
        let mut tasks = Vec::new();
        let is_ours = |agent: &str| self.agent.is_none_or(|own| own == agent);
        for run in runs.iter().filter(|run| run.face == NAME && is_ours(&run.agent)) {
            let ids = task::ids_of(self.cx, run, None).await?;
            // Other runs of a task are part of that task.
            if ids.task == run.stream_id.to_string() {
                let last = task::last_of(self.cx, run.clone()).await?;
                tasks.push(task::of_record(self.call.version, &ids, &last));
            }
        }
        Ok(json!({ "totalSize": tasks.len(), "pageSize": limit, "tasks": tasks,
            "nextPageToken": next.unwrap_or_default() }))
    }

    pub(super) async fn cancel(&self, id: &str) -> Result<Result<Value, Wrong>, Fault> {
        let mut runs = task::runs_of(self.cx, &self.caller.tenant, self.agent, id).await?;
        let Some(run) = runs.pop() else { return Err(Fault::new(FaultKind::StreamNotFound)) };
        let stopped = match run.state {
            RunState::Running | RunState::Waiting => {
                Some(stopping::stop(&self.cx.engine, run, self.caller).await?)
            }
            RunState::Closed => {
                let task = runs.first().unwrap_or(&run).stream_id.to_string();
                let given_up = self.give_up(task, &run).await?;
                runs.push(run);
                given_up
            }
        };
        let Some(stopped) = stopped else { return Ok(Err(Wrong::not_cancelable())) };
        runs.push(stopped);
        task::of_runs(self.cx, self.call.version, &runs).await.map(Ok)
    }

    /// Cancels a task that needs input. This is stored as a run that ends before any work, and that
    /// continues the task. So if a cancel and an answer come at once, one counts.
    async fn give_up(&self, task: String, run: &Run) -> Result<Option<Run>, Fault> {
        let Some(asked) = task::open_questions(run) else { return Ok(None) };
        let key = format!("capstan:cancel:{}", run.stream_id);
        let message =
            json!({ "messageId": key.as_str(), "role": "ROLE_USER", "parts": [{ "text": "" }] });
        let stored = StoredMessage {
            message: RawObject::from_serialize(&message).map_err(|e| invalid(&e))?,
            metadata: None,
            task: Some(task.clone()),
            context: Some(run.session.clone()),
            answers: answers(asked, ResumeStatus::Cancelled, None),
        };
        let claim = Claim {
            agent: run.agent.clone(),
            session: run.session.clone(),
            face: NAME.to_owned(),
            body: serde_json::to_vec(&stored).unwrap_or_default().into(),
            answers: Some(run.stream_id),
            armed_by: ArmedBy::Gateway,
            ..Claim::new(&run.tenant, key, Uuid::now_v7(), self.cx.engine.now())
        };
        let ids = Ids { task, context: run.session.clone() };
        let (cx, call) = (self.cx.clone(), self.call.clone());
        runs::give_up(&self.cx.engine, claim, |run| async move {
            push::promise(&cx, &call, &run, &ids).await
        })
        .await
    }

    /// Streams the task with all of its output, then updates; or the events after `Last-Event-ID`.
    pub(super) async fn subscribe(
        &self,
        parts: &mut Parts,
        id: &str,
    ) -> Result<Result<Response, Wrong>, Fault> {
        let point = resume_point(&parts.headers)?;
        let runs = task::runs_of(self.cx, &self.caller.tenant, self.agent, id).await?;
        let Some(run) = runs.last() else { return Err(Fault::new(FaultKind::StreamNotFound)) };
        // A task that needs input has not ended. A subscriber gets its present state, and a client
        // that answers it reads on.
        let is_over = run.state == RunState::Closed && task::open_questions(run).is_none();
        if is_over && !point.is_resume() {
            return Ok(Err(Wrong::unsupported(
                "The task has ended. Get it to read all of its output.",
            )));
        }
        parts.extensions.insert(self.call.clone());
        let opening = ViewRequest { run, point, view: ViewerKind::Get, parts, posted: None };
        post::watch(self.cx, self.face, opening).await.map(Ok)
    }
}

/// The same answer to all questions.
fn answers(asked: &Questions, status: ResumeStatus, payload: Option<&RawJson>) -> Vec<ResumeEntry> {
    let entry = |id: &String| ResumeEntry {
        interrupt_id: id.clone(),
        status,
        payload: payload.cloned(),
        metadata: None,
    };
    asked.questions.iter().map(|(id, _)| entry(id)).collect()
}

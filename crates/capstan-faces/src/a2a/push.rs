//! Push notifications: posts the status of a task to the address that its client has named.
//!
//! A notification is a delivery like a webhook: a run of the internal agent, which waits for the
//! end of a run of the task and then posts, with retries. The body of the delivery contains the
//! config, so deliveries also store the configs.

use capstan_agent::Turn;
use capstan_journal::{NameKind, Named, Run, RunState};
use capstan_protocol::{DecodeError, Fault, FaultKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::call::Call;
use super::push_config::Config;
use super::version::{Ids, Version};
use super::{NAME, task};
use crate::face::FaceContext;
use crate::face::delivery::{self, DueDelivery, WebhookMessage};
use crate::face::reader;
use crate::identity::tenants;
use crate::webhook::Webhook;
use capstan_engine::ask::invalid;
use capstan_engine::faults::journal_fault;
use capstan_engine::ports::ByGateway;
use capstan_engine::purge;

/// The most configs of a task.
const MOST: usize = 8;
/// The most deliveries of a task that are read: a few for each of its runs.
const PAGE: usize = 512;

/// The content of a delivery: the body of its run, as the text of a message.
#[derive(Serialize, Deserialize)]
struct Delivery {
    run: Uuid,
    task: String,
    is_1: bool,
    config: Config,
    /// The config was created after that run had ended, so nothing is delivered.
    is_late: bool,
}

/// Whether the gateway can post notifications.
pub(crate) fn is_possible(cx: &FaceContext) -> bool {
    cx.can_deliver
}

/// The configs of a task, newest first.
pub(super) async fn list(cx: &FaceContext, tenant: &str, task: &str) -> Result<Vec<Config>, Fault> {
    let mut found: Vec<Config> = Vec::new();
    for run in deliveries(cx, tenant, task).await? {
        let Some(delivery) = of_run(cx, &run).await? else { continue };
        if !found.iter().any(|known| known.id == delivery.config.id) {
            found.push(delivery.config);
        }
    }
    Ok(found)
}

pub(super) async fn get(
    cx: &FaceContext,
    tenant: &str,
    task: &str,
    id: &str,
) -> Result<Config, Fault> {
    let found =
        list(cx, tenant, task).await?.into_iter().find(|config| id.is_empty() || config.id == id);
    let unknown = "The task has no such push notification config.";
    found.ok_or_else(|| Fault::new(FaultKind::StreamNotFound).with_message(unknown))
}

/// Deletes a config and its open deliveries. Succeeds also if the config does not exist.
pub(super) async fn delete(
    cx: &FaceContext,
    tenant: &str,
    task: &str,
    id: &str,
) -> Result<(), Fault> {
    for run in deliveries(cx, tenant, task).await? {
        if of_run(cx, &run).await?.is_some_and(|delivery| delivery.config.id == id) {
            purge::stream(&cx.engine, run, &ByGateway).await?;
        }
    }
    Ok(())
}

/// Creates a config for a task, or replaces the one with the same id.
pub(super) async fn set(
    cx: &FaceContext,
    version: Version,
    runs: &[Run],
    config: Config,
) -> Result<Config, Fault> {
    let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
        return Err(Fault::new(FaultKind::StreamNotFound));
    };
    let (config, task) = (config.checked()?, first.stream_id.to_string());
    let known = list(cx, &first.tenant, &task).await?;
    if known.contains(&config) {
        return Ok(config);
    }
    if known.iter().filter(|known| known.id != config.id).count() >= MOST {
        let most = format!("a task has at most {MOST} push notification configs");
        return Err(invalid(&DecodeError::value("id", most)));
    }
    delete(cx, &first.tenant, &task, &config.id).await?;
    let is_late = last.state == RunState::Closed;
    let delivery =
        Delivery { run: last.stream_id, task, is_1: version == Version::V1, config, is_late };
    claim(cx, last, &delivery, &Uuid::now_v7().to_string()).await?;
    Ok(delivery.config)
}

/// A run of a task begins: claims a delivery of it for each config of the task. A repeated message
/// makes no second delivery.
pub(super) async fn promise(
    cx: &FaceContext,
    call: &Call,
    run: &Run,
    ids: &Ids,
) -> Result<(), Fault> {
    let goes_on = ids.task != run.stream_id.to_string();
    let asked: Vec<Config> = match &call.push {
        _ if !is_possible(cx) => Vec::new(),
        _ if goes_on => list(cx, &run.tenant, &ids.task).await?,
        Some(config) => vec![config.clone()],
        None => Vec::new(),
    };
    for config in asked {
        let (task, is_1) = (ids.task.clone(), call.version == Version::V1);
        let key = format!("{}:{}", run.stream_id, config.id);
        let delivery = Delivery { run: run.stream_id, task, is_1, config, is_late: false };
        match claim(cx, run, &delivery, &key).await {
            // The task has begun, and clients can still get it by request.
            Err(fault) if fault.kind() == FaultKind::SessionLimitExceeded => {
                tracing::error!(stream = %run.stream_id, code = fault.code(),
                "a run gets no push notification: too many deliveries are open");
            }
            claimed => claimed?,
        }
    }
    Ok(())
}

async fn deliveries(cx: &FaceContext, tenant: &str, task: &str) -> Result<Vec<Run>, Fault> {
    let (store, tenant) = (cx.engine.store(), tenants::deliveries_of(tenant));
    store
        .named(Named { limit: PAGE, ..Named::all(&tenant, NameKind::Chat, &place(task)) })
        .await
        .map_err(journal_fault)
}

async fn of_run(cx: &FaceContext, run: &Run) -> Result<Option<Delivery>, Fault> {
    let body = cx.engine.store().body(run.stream_id).await.map_err(journal_fault)?;
    let body: Value = body.and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
    Ok(body.pointer("/message/parts/0/text").and_then(Value::as_str).and_then(Delivery::of))
}

/// The name under which the deliveries of a task are stored.
fn place(task: &str) -> String {
    format!("capstan:push:{task}")
}

async fn claim(cx: &FaceContext, of: &Run, delivery: &Delivery, key: &str) -> Result<(), Fault> {
    let text = serde_json::to_string(delivery).unwrap_or_default();
    let key = format!("capstan:push:{key}");
    let message = json!({ "message": { "messageId": key.as_str(), "role": "ROLE_USER",
    "parts": [{ "text": text }] } });
    let body = message.into();
    let (ask, chat) = (super::message::from_a2a(&body)?, Some(place(&delivery.task)));
    delivery::begin(cx, &of.tenant, delivery::Delivery { face: NAME, key, body, ask, chat }).await
}

impl Delivery {
    fn of(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// The run of a delivery, if the internal agent's turn is a push notification.
pub(super) fn due(turn: &Turn) -> Option<DueDelivery> {
    let delivery = Delivery::of(&turn.text())?;
    Some(DueDelivery { run: delivery.run, is_late: delivery.is_late })
}

/// Builds the notification after the run has ended.
pub(super) async fn delivery_message(
    cx: &FaceContext,
    run: &Run,
    turn: &Turn,
) -> Result<WebhookMessage, Fault> {
    let lost = || Fault::new(FaultKind::StreamNotFound);
    let delivery = Delivery::of(&turn.text()).ok_or_else(lost)?;
    let version = if delivery.is_1 { Version::V1 } else { Version::V03 };
    let whole = reader::collect_so_far(cx, run).await?;
    let ids = Ids { task: delivery.task, context: run.session.clone() };
    // 1.0 sends a status update, 0.3 the task.
    let body = match version {
        Version::V1 => task::status_event(version, &ids, &whole),
        Version::V03 | Version::Rest03 => task::of_whole(version, &ids, &whole),
    };
    let url = delivery.config.url.clone();
    // A client may name any public receiver. Others need the operator's consent, unless the gateway
    // serves this machine only.
    let is_local = cx.is_for_this_machine();
    let allow_private = is_local || cx.tenants.allows_push_to(&run.tenant, &url);
    let to = Webhook::unsigned(url, allow_private);
    let mut headers = vec![("content-type", "application/json".to_owned())];
    headers.extend(delivery.config.authorization().map(|value| ("authorization", value)));
    if !delivery.config.token.is_empty() {
        headers.push(("x-a2a-notification-token", delivery.config.token));
    }
    Ok(WebhookMessage { to, headers, body: body.to_string() })
}

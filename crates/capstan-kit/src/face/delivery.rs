//! Deliveries of webhooks and push notifications, for clients that do not wait for an answer. Each
//! delivery is a run of the internal agent, stored beside the tenant's own runs.

use capstan_engine::ask::{Ask, RequestBody};
use capstan_engine::faults::journal_fault;
use capstan_engine::runs;
use capstan_journal::{ArmedBy, Claim, ErrorKind, Quota};
use capstan_protocol::{Fault, FaultKind};
use uuid::Uuid;

use crate::face::FaceContext;
use crate::identity::tenants;
use crate::webhook::Webhook;

/// The name of the internal agent that makes deliveries. No request can name it.
pub const DELIVERY_AGENT: &str = "capstan:webhook";
/// With the agent's retry delays these attempts last more than an hour.
pub const ATTEMPTS: u32 = 20;

/// A delivery that a face has begun.
pub struct DueDelivery {
    /// The run whose end is delivered.
    pub run: Uuid,
    /// The delivery was begun after that run had ended, so there is nothing to deliver.
    pub is_late: bool,
}

/// A message to a receiver.
pub struct WebhookMessage {
    pub to: Webhook,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

/// A delivery, before it is claimed as a run.
pub struct Delivery<'a> {
    pub face: &'a str,
    /// The key under which the delivery is made at most once.
    pub key: String,
    pub body: RequestBody,
    pub ask: Ask,
    pub chat: Option<String>,
}

/// Begins a delivery, unless too many deliveries of the tenant are open. Deliveries have a quota of
/// their own, so that an unreachable receiver does not block the tenant's runs.
pub async fn begin(cx: &FaceContext, tenant: &str, delivery: Delivery<'_>) -> Result<(), Fault> {
    let Delivery { face, key, body, ask, chat } = delivery;
    let (tenant, stream, store) =
        (tenants::deliveries_of(tenant), Uuid::now_v7(), cx.engine.store());
    if let Some(cluster) = store.cluster()
        && cx.tenants.is_unstored(&tenant)
    {
        cluster.tenant_hosts().host_of(&tenant, true).await.map_err(journal_fault)?;
    }
    let claim = Claim {
        agent: DELIVERY_AGENT.to_owned(),
        session: stream.to_string(),
        face: face.to_owned(),
        body_hash: body.hash(Some(DELIVERY_AGENT), face),
        body: body.bytes().clone(),
        max_attempts: ATTEMPTS,
        is_unseen: true,
        armed_by: ArmedBy::Gateway,
        chat,
        ..Claim::new(&tenant, key, stream, cx.engine.now())
    };
    let most = Some(cx.engine.settings().limits.deliveries_per_tenant as u64);
    let quota = Quota { running: most, waiting: most, ..Quota::UNLIMITED };
    runs::start_internal(&cx.engine, claim, &quota, ask).await.map_err(|error| {
        if !matches!(error.kind(), ErrorKind::Refused(_)) {
            return journal_fault(error);
        }
        cx.observer.delivery_refused();
        Fault::new(FaultKind::SessionLimitExceeded)
            .with_message("Too many deliveries are open already. Their receiver may be down.")
    })
}

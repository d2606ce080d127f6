//! Deliveries: what somebody is to be told who does not wait for an answer. Each is a run of the
//! internal agent, kept beside its tenant's own runs.

use bytes::Bytes;
use capstan_engine::ask::{Ask, body_hash};
use capstan_engine::faults::journal_fault;
use capstan_engine::runs;
use capstan_journal::{ArmedBy, Claim, ErrorKind, Quota};
use capstan_protocol::{Fault, FaultKind};
use uuid::Uuid;

use crate::face::FaceContext;
use crate::identity::tenants;
use crate::webhook::Webhook;

/// The name of the internal agent; no request can ask for it.
pub const COURIER: &str = "capstan:webhook";
/// With the agent's waits these last for more than an hour.
pub const ATTEMPTS: u32 = 20;

/// A delivery that a face has begun.
pub struct DueDelivery {
    /// The run that it is about.
    pub run: Uuid,
    /// It was begun when that run was over: there is nothing to tell of it.
    pub is_late: bool,
}

/// What is to be posted.
pub struct Parcel {
    pub to: Webhook,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

/// What a delivery is, as a run.
pub struct Delivery<'a> {
    pub face: &'a str,
    /// However often it is begun, it is one.
    pub key: String,
    pub body: Bytes,
    pub ask: Ask,
    pub chat: Option<String>,
}

/// Begins a delivery of a tenant's, unless as many are open as may be. Deliveries are kept beside
/// the tenant's runs, so that a receiver that is away takes none of their places.
pub async fn begin(cx: &FaceContext, tenant: &str, delivery: Delivery<'_>) -> Result<(), Fault> {
    let Delivery { face, key, body, ask, chat } = delivery;
    let (tenant, stream, store) =
        (tenants::deliveries_of(tenant), Uuid::now_v7(), cx.engine.journal.store());
    if let Some(cluster) = store.cluster()
        && cx.tenants.is_unstored(&tenant)
    {
        cluster.tenant_hosts().host_of(&tenant, true).await.map_err(journal_fault)?;
    }
    let claim = Claim {
        agent: COURIER.to_owned(),
        session: stream.to_string(),
        face: face.to_owned(),
        body_hash: body_hash(&body, Some(COURIER), face),
        body,
        max_attempts: ATTEMPTS,
        is_unseen: true,
        armed_by: ArmedBy::Gateway,
        chat,
        ..Claim::new(&tenant, key, stream, cx.engine.wall.now())
    };
    let most = Some(cx.engine.settings.limits.deliveries_per_tenant as u64);
    let quota = Quota { running: most, waiting: most, ..Quota::UNLIMITED };
    runs::start_internal(&cx.engine, claim, &quota, ask).await.map_err(|error| {
        if !matches!(error.kind(), ErrorKind::Refused(_)) {
            return journal_fault(error);
        }
        cx.observer.delivery_refused();
        Fault::new(FaultKind::SessionLimitExceeded)
            .with_message("As many deliveries are under way as may be: their receiver may be away.")
    })
}

//! Posts webhooks: they report the end of an answer to clients that do not wait for it. Webhooks
//! are signed as the Standard Webhooks specification says.
//!
//! A delivery is a run of an internal agent. It is claimed when the answer begins, waits for the
//! end of the answer, and then posts. So a delivery has what every run has: retries with back-off,
//! recovery after a restart, and one replica that owns it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use capstan_agent::{Agent, Failure, Outcome, Stopped, Turn, Writer, async_trait};
use capstan_journal::{Run, RunState, Step};
use capstan_protocol::{Close, Fault, FaultKind};
use tokio::sync::{Semaphore, SemaphorePermit};
use uuid::Uuid;

use crate::face::delivery::{ATTEMPTS, DELIVERY_AGENT, Delivery, WebhookMessage, begin};
use crate::face::{DueDelivery, Face, FaceContext, Faces, WeakContext};
use crate::webhook::WebhookSender;
use capstan_engine::Registered;
use capstan_engine::ask::Ask;
use capstan_engine::faults::journal_fault;
use capstan_engine::ports::BeforeWork;

/// The delay before the second attempt, in seconds. It doubles with each attempt.
const FIRST_WAIT: u64 = 5;
/// The longest delay between two attempts, in seconds.
const LONGEST_WAIT: u64 = 300;
/// How many connections to receivers may be open.
const AT_ONCE: usize = 64;
/// How often a waiting delivery reports that it is alive.
const ALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// The agent that makes all deliveries.
pub(crate) struct DeliveryAgent {
    faces: Faces,
    /// Without a sender nothing is delivered.
    sender: Option<Arc<dyn WebhookSender>>,
    /// Set after the engine is built, because the engine holds this agent.
    cx: OnceLock<WeakContext>,
    /// The slots of open connections to receivers.
    posts: Semaphore,
}

impl DeliveryAgent {
    pub(crate) fn new(faces: Faces, sender: Option<Arc<dyn WebhookSender>>) -> Self {
        Self { faces, sender, cx: OnceLock::new(), posts: Semaphore::new(AT_ONCE) }
    }

    pub(crate) fn registered(self: &Arc<Self>) -> Registered {
        Registered {
            name: DELIVERY_AGENT.into(),
            aliases: Vec::new(),
            id: Uuid::nil(),
            agent: Arc::<Self>::clone(self),
        }
    }

    /// Sets the gateway for which this agent delivers.
    pub(crate) fn set_context(&self, cx: &FaceContext) {
        let _ = self.cx.set(cx.downgrade());
    }

    /// Waits for a slot among the open connections.
    async fn take_slot(&self, out: &mut Writer) -> Result<SemaphorePermit<'_>, Stopped> {
        loop {
            match tokio::time::timeout(ALIVE_INTERVAL, self.posts.acquire()).await {
                Ok(slot) => return slot.map_err(|_| Stopped),
                Err(_) => out.alive()?,
            }
        }
    }

    fn cx(&self) -> Result<FaceContext, Stopped> {
        self.cx.get().and_then(WeakContext::upgrade).ok_or(Stopped)
    }

    fn has_receiver(&self, run: &Run) -> bool {
        let webhook = |cx: FaceContext| cx.tenants.webhook_of(&run.tenant);
        self.sender.is_some() && self.cx().is_ok_and(|cx| webhook(cx).is_some())
    }
}

#[async_trait]
impl Agent for DeliveryAgent {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let cx = self.cx()?;
        let Some(sender) = &self.sender else { return Ok(()) };
        let Some(message) = message(&cx, &self.faces, &turn, out).await? else { return Ok(()) };
        let _slot = self.take_slot(out).await?;
        match sender.post(&message.to, &message.headers, message.body.into()).await {
            Ok(200..300) => Ok(out.delta("delivered").await?),
            // 410 Gone: the receiver wants no further attempt.
            Ok(410) => {
                Err(refused("410").with_severity(capstan_protocol::ErrorSeverity::Fatal).into())
            }
            Ok(status) => Err(later(refused(&status.to_string()), turn.attempt)),
            Err(why) => Err(later(
                Fault::new(FaultKind::UpstreamUnreachable).with_message(why),
                turn.attempt,
            )),
        }
    }

    fn max_attempts(&self) -> u32 {
        ATTEMPTS
    }
}

/// Waits for the end of the answer and builds the message. Returns nothing if there is no receiver
/// any more.
async fn message(
    cx: &FaceContext,
    faces: &Faces,
    turn: &Turn,
    out: &mut Writer,
) -> Result<Option<WebhookMessage>, Failure> {
    let at = || cx.engine.now().as_micros().div_euclid(1_000_000);
    let due = faces.iter().find_map(|face| Some((face, face.delivery_of(turn)?)));
    if let Some((face, DueDelivery { run: stream, is_late })) = due {
        if is_late {
            return Ok(None);
        }
        let run = ended(cx, stream, out).await?;
        let mut message = face.delivery_message(cx, &run, turn).await?;
        message.headers.extend(message.to.headers(
            &format!("evt_{}", turn.run.simple()),
            at(),
            &message.body,
        ));
        return Ok(Some(message));
    }
    let stream: Uuid = turn.text().parse().map_err(|_| Fault::new(FaultKind::StreamNotFound))?;
    let run = ended(cx, stream, out).await?;
    let Some(to) = cx.tenants.webhook_of(&run.tenant) else { return Ok(None) };
    let event = EndEvent::new(&run, turn.run, at());
    let mut headers = vec![("content-type", "application/json".to_owned())];
    headers.extend(to.headers(&event.id, event.at, &event.body));
    Ok(Some(WebhookMessage { to, headers, body: event.body }))
}

fn refused(status: &str) -> Fault {
    Fault::new(FaultKind::UpstreamError)
        .with_message(format!("The webhook's receiver answered {status}."))
}

/// Makes the fault a failure whose retry delay doubles with each attempt.
fn later(fault: Fault, attempt: u32) -> Failure {
    let doublings = attempt.saturating_sub(1).min(16);
    let wait = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
    fault.with_retry_after(wait as f64).into()
}

/// Waits for the end of a run.
async fn ended(cx: &FaceContext, stream: Uuid, out: &mut Writer) -> Result<Run, Failure> {
    loop {
        let found = cx.engine.store().run(stream).await.map_err(journal_fault)?;
        let run = found.ok_or_else(|| Fault::new(FaultKind::StreamExpired))?;
        if run.state == RunState::Closed {
            return Ok(run);
        }
        let mut reader = cx.engine.reader_of(&run, run.last_seq);
        loop {
            match tokio::time::timeout(ALIVE_INTERVAL, reader.next()).await {
                Ok(Ok(Step::State(RunState::Closed))) => break,
                Ok(Ok(Step::Frames(_) | Step::State(RunState::Running | RunState::Waiting))) => {}
                Ok(Err(error)) => return Err(journal_fault(error).into()),
                Err(_) => out.alive()?,
            }
        }
    }
}

/// The event that a webhook carries. It has ids only.
struct EndEvent {
    id: String,
    at: i64,
    body: String,
}

impl EndEvent {
    fn new(run: &Run, delivery: Uuid, at: i64) -> Self {
        let (id, response) =
            (format!("evt_{}", delivery.simple()), format!("resp_{}", run.stream_id.simple()));
        let ended = run.closed_at.unwrap_or(run.updated_at).as_micros().div_euclid(1_000_000);
        let body = serde_json::json!({ "id": id, "object": "event", "created_at": ended,
        "type": kind_of(run),
            "data": { "id": response } });
        Self { id, at, body: body.to_string() }
    }
}

fn kind_of(run: &Run) -> &'static str {
    match (run.fault.is_some(), run.reason.as_deref()) {
        (true, _) => "response.failed",
        (false, Some(Close::CANCELLED)) => "response.cancelled",
        (false, Some("length" | "content_filter")) => "response.incomplete",
        (false, _) => "response.completed",
    }
}

#[async_trait]
impl BeforeWork for DeliveryAgent {
    fn concerns(&self, run: &Run) -> bool {
        run.agent != DELIVERY_AGENT && self.has_receiver(run)
    }

    /// Claims the delivery of this run's end, if its tenant has a webhook.
    async fn prepare(&self, run: &Run, ask: &Ask) {
        let Ok(cx) = self.cx() else { return };
        let Some(face) = self.faces.named(&run.face).filter(|face| face.sends_webhook(ask)) else {
            return;
        };
        if let Err(fault) = claim(&cx, &**face, run).await {
            let cause = cx.engine.loggable(&fault);
            tracing::error!(stream = %run.stream_id, code = fault.code(), cause,
            "the webhook of a run could not be stored, so it will not be sent");
        }
    }
}

async fn claim(cx: &FaceContext, face: &dyn Face, run: &Run) -> Result<(), Fault> {
    let body = serde_json::json!({ "input": run.stream_id.to_string() }).into();
    let (key, ask) = (format!("webhook-{}", run.stream_id), face.decode(&body)?);
    begin(cx, &run.tenant, Delivery { face: &run.face, key, body, ask, chat: None }).await
}

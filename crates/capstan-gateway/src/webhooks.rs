//! Webhooks: whoever does not wait for an answer is told of its end, signed after the Standard
//! Webhooks specification.
//!
//! A delivery is a run of its own, by an agent that is nobody's model: it is claimed when the
//! answer is begun, waits for its end and then posts. So trying again with back-off, outliving a
//! restart, and that one replica delivers are what every run has.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use capstan_agent::{Agent, Failure, Outcome, Stopped, Turn, Writer, async_trait};
use capstan_journal::{Run, RunState, Step};
use capstan_protocol::{Close, Fault, FaultKind};
use tokio::sync::{Semaphore, SemaphorePermit};
use uuid::Uuid;

use crate::face::delivery::{ATTEMPTS, COURIER, Delivery, Parcel, begin};
use crate::face::{DueDelivery, Face, FaceContext, Faces, WeakContext};
use crate::webhook::WebhookSender;
use capstan_engine::Registered;
use capstan_engine::ask::Ask;
use capstan_engine::faults::journal_fault;
use capstan_engine::ports::BeforeWork;

const FIRST_WAIT: u64 = 5;
/// No run waits longer.
const LONGEST_WAIT: u64 = 300;
/// However many responses end at once.
const AT_ONCE: usize = 64;
/// A sign of life while the answer is not there yet.
const ALIVE_EVERY: Duration = Duration::from_secs(30);

/// What delivers: the agent behind every delivery.
pub(crate) struct Courier {
    faces: Faces,
    /// Without one nothing is delivered.
    sender: Option<Arc<dyn WebhookSender>>,
    /// Set when the engine is there, which holds the courier.
    cx: OnceLock<WeakContext>,
    /// So many connections to receivers may be open.
    posts: Semaphore,
}

impl Courier {
    pub(crate) fn new(faces: Faces, sender: Option<Arc<dyn WebhookSender>>) -> Self {
        Self { faces, sender, cx: OnceLock::new(), posts: Semaphore::new(AT_ONCE) }
    }

    pub(crate) fn registered(self: &Arc<Self>) -> Registered {
        Registered {
            name: COURIER.into(),
            aliases: Vec::new(),
            id: Uuid::nil(),
            agent: Arc::new(Bag(Arc::clone(self))),
        }
    }

    /// The gateway that it delivers for.
    pub(crate) fn employ(&self, cx: &FaceContext) {
        let _ = self.cx.set(cx.downgrade());
    }

    /// A place among those that post.
    async fn place(&self, out: &mut Writer) -> Result<SemaphorePermit<'_>, Stopped> {
        loop {
            match tokio::time::timeout(ALIVE_EVERY, self.posts.acquire()).await {
                Ok(place) => return place.map_err(|_| Stopped),
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

/// The courier as an agent.
struct Bag(Arc<Courier>);

#[async_trait]
impl Agent for Bag {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let cx = self.0.cx()?;
        let Some(sender) = &self.0.sender else { return Ok(()) };
        let Some(parcel) = parcel(&cx, &self.0.faces, &turn, out).await? else { return Ok(()) };
        let _place = self.0.place(out).await?;
        match sender.post(&parcel.to, &parcel.headers, parcel.body.into()).await {
            Ok(200..300) => Ok(out.delta("delivered").await?),
            // Its receiver is gone for good, and says so.
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

/// What is to be posted, once there is something to tell; nothing if nobody wants to know any more.
async fn parcel(
    cx: &FaceContext,
    faces: &Faces,
    turn: &Turn,
    out: &mut Writer,
) -> Result<Option<Parcel>, Failure> {
    let at = || cx.engine.wall.now().as_micros().div_euclid(1_000_000);
    let due = faces.iter().find_map(|face| Some((face, face.delivery_of(turn)?)));
    if let Some((face, DueDelivery { run: stream, is_late })) = due {
        if is_late {
            return Ok(None);
        }
        let run = ended(cx, stream, out).await?;
        let mut parcel = face.parcel(cx, &run, turn).await?;
        parcel.headers.extend(parcel.to.headers(
            &format!("evt_{}", turn.run.simple()),
            at(),
            &parcel.body,
        ));
        return Ok(Some(parcel));
    }
    let stream: Uuid = turn.text().parse().map_err(|_| Fault::new(FaultKind::StreamNotFound))?;
    let run = ended(cx, stream, out).await?;
    let Some(to) = cx.tenants.webhook_of(&run.tenant) else { return Ok(None) };
    let message = Message::of(&run, turn.run, at());
    let mut headers = vec![("content-type", "application/json".to_owned())];
    headers.extend(to.headers(&message.id, message.at, &message.body));
    Ok(Some(Parcel { to, headers, body: message.body }))
}

fn refused(status: &str) -> Fault {
    Fault::new(FaultKind::UpstreamError)
        .with_message(format!("The webhook's receiver answered {status}."))
}

/// Not at once: the wait doubles.
fn later(fault: Fault, attempt: u32) -> Failure {
    let doublings = attempt.saturating_sub(1).min(16);
    let wait = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
    fault.with_retry_after(wait as f64).into()
}

/// The run, once it has ended.
async fn ended(cx: &FaceContext, stream: Uuid, out: &mut Writer) -> Result<Run, Failure> {
    loop {
        let found = cx.engine.journal.store().run(stream).await.map_err(journal_fault)?;
        let run = found.ok_or_else(|| Fault::new(FaultKind::StreamExpired))?;
        if run.state == RunState::Closed {
            return Ok(run);
        }
        let mut reader = cx.engine.journal.reader_of(&run, run.last_seq);
        loop {
            match tokio::time::timeout(ALIVE_EVERY, reader.next()).await {
                Ok(Ok(Step::State(RunState::Closed))) => break,
                Ok(Ok(Step::Frames(_) | Step::State(RunState::Running | RunState::Waiting))) => {}
                Ok(Err(error)) => return Err(journal_fault(error).into()),
                Err(_) => out.alive()?,
            }
        }
    }
}

/// What is told: ids only.
struct Message {
    id: String,
    at: i64,
    body: String,
}

impl Message {
    fn of(run: &Run, delivery: Uuid, at: i64) -> Self {
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
impl BeforeWork for Courier {
    fn concerns(&self, run: &Run) -> bool {
        run.agent != COURIER && self.has_receiver(run)
    }

    /// Sees to it that the end of this run is told, if its tenant wants to know.
    async fn prepare(&self, run: &Run, ask: &Ask) {
        let Ok(cx) = self.cx() else { return };
        let Some(face) = self.faces.named(&run.face).filter(|face| face.tells_end(ask)) else {
            return;
        };
        if let Err(fault) = claim(&cx, &**face, run).await {
            let cause = cx.engine.loggable(&fault);
            tracing::error!(stream = %run.stream_id, code = fault.code(), cause,
            "the webhook of a run was not noted, and will not be told");
        }
    }
}

async fn claim(cx: &FaceContext, face: &dyn Face, run: &Run) -> Result<(), Fault> {
    let body = Bytes::from(serde_json::json!({ "input": run.stream_id.to_string() }).to_string());
    let (key, ask) = (format!("webhook-{}", run.stream_id), face.decode(&body)?);
    begin(cx, &run.tenant, Delivery { face: &run.face, key, body, ask, chat: None }).await
}

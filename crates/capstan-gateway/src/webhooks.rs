//! Webhooks: whoever does not wait for an answer is told of its end, signed after the Standard
//! Webhooks specification.
//!
//! A delivery is a run of its own, by an agent that is nobody's model: it is claimed when the
//! answer is begun, waits for its end and then posts. So trying again with back-off, outliving a
//! restart, and that one replica delivers are what every run has.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use capstan_agent::{Agent, Failure, Outcome, Stopped, Turn, Writer, async_trait};
use capstan_journal::{Run, RunState, Step};
use capstan_protocol::{Close, Fault, FaultKind};
use tokio::sync::{Semaphore, SemaphorePermit};
use uuid::Uuid;

use crate::app::{App, Shared};
use crate::face::DueDelivery;
use crate::face::delivery::{ATTEMPTS, COURIER, Delivery, Parcel, begin};
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
    app: OnceLock<Weak<Shared>>,
    /// So many connections to receivers may be open.
    posts: Semaphore,
}

impl Default for Courier {
    fn default() -> Self {
        Self { app: OnceLock::new(), posts: Semaphore::new(AT_ONCE) }
    }
}

impl Courier {
    pub(crate) fn registered(self: &Arc<Self>) -> Registered {
        Registered { name: COURIER.into(), id: Uuid::nil(), agent: Arc::new(Bag(Arc::clone(self))) }
    }

    /// The gateway that it delivers for.
    pub(crate) fn employ(&self, app: &App) {
        let _ = self.app.set(app.downgrade());
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

    fn app(&self) -> Result<App, Stopped> {
        self.app.get().and_then(Weak::upgrade).map(App::from).ok_or(Stopped)
    }
}

/// The courier as an agent.
struct Bag(Arc<Courier>);

#[async_trait]
impl Agent for Bag {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let app = self.0.app()?;
        let Some(sender) = app.webhooks.clone() else { return Ok(()) };
        let Some(parcel) = parcel(&app, &turn, out).await? else { return Ok(()) };
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
async fn parcel(app: &App, turn: &Turn, out: &mut Writer) -> Result<Option<Parcel>, Failure> {
    let at = || app.wall.now().as_micros().div_euclid(1_000_000);
    let due = app.faces.iter().find_map(|face| Some((face, face.delivery_of(turn)?)));
    if let Some((face, DueDelivery { run: stream, is_late })) = due {
        if is_late {
            return Ok(None);
        }
        let run = ended(app, stream, out).await?;
        let mut parcel = face.parcel(app, &run, turn).await?;
        parcel.headers.extend(parcel.to.headers(
            &format!("evt_{}", turn.run.simple()),
            at(),
            &parcel.body,
        ));
        return Ok(Some(parcel));
    }
    let stream: Uuid = turn.text().parse().map_err(|_| Fault::new(FaultKind::StreamNotFound))?;
    let run = ended(app, stream, out).await?;
    let Some(to) = app.settings.tenants.webhook_of(&run.tenant) else { return Ok(None) };
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
async fn ended(app: &App, stream: Uuid, out: &mut Writer) -> Result<Run, Failure> {
    loop {
        let found = app.journal.store().run(stream).await.map_err(journal_fault)?;
        let run = found.ok_or_else(|| Fault::new(FaultKind::StreamExpired))?;
        if run.state == RunState::Closed {
            return Ok(run);
        }
        let mut reader = app.journal.reader_of(&run, run.last_seq);
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

fn has_receiver(app: &App, run: &Run) -> bool {
    app.webhooks.is_some() && app.settings.tenants.webhook_of(&run.tenant).is_some()
}

#[async_trait]
impl BeforeWork for Courier {
    fn concerns(&self, run: &Run) -> bool {
        run.agent != COURIER && self.app().is_ok_and(|app| has_receiver(&app, run))
    }

    /// Sees to it that the end of this run is told, if its tenant wants to know.
    async fn prepare(&self, run: &Run, ask: &Ask) {
        let Ok(app) = self.app() else { return };
        if !app.face(&run.face).is_some_and(|face| face.tells_end(ask)) {
            return;
        }
        if let Err(fault) = claim(&app, run).await {
            let cause = app.loggable(&fault);
            tracing::error!(stream = %run.stream_id, code = fault.code(), cause,
            "the webhook of a run was not noted, and will not be told");
        }
    }
}

async fn claim(app: &App, run: &Run) -> Result<(), Fault> {
    let body = Bytes::from(serde_json::json!({ "input": run.stream_id.to_string() }).to_string());
    let Some(face) = app.face(&run.face) else { return Ok(()) };
    let (key, ask) = (format!("webhook-{}", run.stream_id), face.decode(&body)?);
    begin(app, &run.tenant, Delivery { face: &run.face, key, body, ask, chat: None }).await
}

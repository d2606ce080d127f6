//! The requests of a schedule and what each may be answered.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use capstan_journal::RunState;
use fastrand::Rng;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::ServiceExt as _;
use uuid::Uuid;

use crate::model::body::Reading;
use crate::model::run::Phase;
use crate::model::stream::Told;
use crate::model::truth::Truth;
use crate::model::world::Shared;

/// Every answer begins within this, in virtual time.
const ANSWER: Duration = Duration::from_secs(60);
/// A client is frozen with its gateway, and its clock jumps when they wake: who waits for good is
/// found when all settles.
const SHARED_ANSWER: Duration = Duration::from_secs(100_000);
/// A whole run, all attempts and their waits.
const WHOLE_RUN: Duration = Duration::from_secs(3600);

/// Where a viewer says it is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    Start,
    /// `Last-Event-ID: <stream>:<seq>`
    Cursor(u64),
    /// `Last-Event-ID: <stream>`
    Bare,
    /// `?after=<seq>`
    After(u64),
}

/// One viewer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visit {
    pub(crate) run: usize,
    /// The body that is posted; none for a GET.
    pub(crate) post: Option<usize>,
    pub(crate) place: Place,
    /// It comes this much later.
    pub(crate) delay: Duration,
    /// It leaves after this many frames.
    pub(crate) frames: Option<usize>,
}

impl Place {
    fn seq(self) -> u64 {
        match self {
            Self::Start | Self::Bare => 0,
            Self::Cursor(seq) | Self::After(seq) => seq,
        }
    }

    fn last_event_id(self, stream: Uuid) -> Option<String> {
        match self {
            Self::Start | Self::After(_) => None,
            Self::Cursor(seq) => Some(format!("{stream}:{seq}")),
            Self::Bare => Some(stream.to_string()),
        }
    }
}

/// Somebody who sends requests to one life's gateway.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) router: Router,
    pub(crate) world: Shared,
    pub(crate) truth: Truth,
    /// There are other gateways.
    pub(crate) is_shared: bool,
}

/// A request that has no answer yet.
struct Pending(Shared);

impl Drop for Pending {
    fn drop(&mut self) {
        let mut world = self.0.lock();
        world.pending = world.pending.saturating_sub(1);
    }
}

impl Client {
    async fn send(&self, request: Request<Body>) -> Result<Response, String> {
        self.world.lock().pending += 1;
        let _pending = Pending(self.world.clone());
        let what = format!("{} {}", request.method(), request.uri());
        let patience = if self.is_shared { SHARED_ANSWER } else { ANSWER };
        let answer = tokio::time::timeout(patience, self.router.clone().oneshot(request)).await;
        answer.map_err(|_| format!("{what} was not answered"))?.map_err(|never| match never {})
    }

    pub(crate) async fn visit(self, visit: Visit, rng: Rng) {
        if let Err(why) = self.try_visit(visit, rng).await {
            self.world.lock().fail(format!("{visit:?}: {why}"));
        }
    }

    async fn try_visit(&self, visit: Visit, rng: Rng) -> Result<(), String> {
        tokio::time::sleep(visit.delay).await;
        let before = self.world.lock().runs[visit.run].phase;
        let response = match visit.post {
            Some(variant) => self.post(visit, variant).await?,
            None => self.get(visit).await?,
        };
        let shown =
            response.headers().get("x-stream-id").and_then(|id| id.to_str().ok()?.parse().ok());
        let status = response.status().as_u16();
        let stream = match self.judge(visit, before, status, shown).await {
            Ok(Some(stream)) => stream,
            Ok(None) => return Ok(()),
            Err(why) => {
                let said =
                    response.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes();
                return Err(format!("{why}: {}", String::from_utf8_lossy(&said)));
            }
        };
        let reading = Reading {
            world: self.world.clone(),
            truth: self.truth.clone(),
            run: visit.run,
            stream,
            is_post: visit.post.is_some(),
            cursor: visit.place.seq(),
            last: None,
            is_open: false,
            rng,
            is_shared: self.is_shared,
        };
        reading.read(response.into_body(), visit.frames).await;
        Ok(())
    }

    async fn post(&self, visit: Visit, variant: usize) -> Result<Response, String> {
        let request = self.request(visit.run, variant, visit.place, None);
        let response = self.send(request).await?;
        self.world.lock().runs[visit.run].answered += 1;
        Ok(response)
    }

    /// The POST of a run. It is asked for from here on.
    fn request(
        &self,
        run: usize,
        variant: usize,
        place: Place,
        cursor: Option<String>,
    ) -> Request<Body> {
        let mut world = self.world.lock();
        let run = &mut world.runs[run];
        run.posts += 1;
        run.posts_in_life += 1;
        let after =
            if let Place::After(seq) = place { format!("?after={seq}") } else { String::new() };
        let mut request =
            Request::post(format!("/v1/assist{after}")).header("content-type", "application/json");
        if run.accepts_reset {
            request = request.header("x-cap-accept", "stream_reset");
        }
        if let Some(id) = cursor.or_else(|| place.last_event_id(run.stream.unwrap_or_default())) {
            request = request.header("last-event-id", id);
        }
        request.body(Body::from(run.bodies[variant].clone())).unwrap()
    }

    async fn get(&self, visit: Visit) -> Result<Response, String> {
        let stream = self.world.lock().runs[visit.run].stream.unwrap_or_default();
        let after = if let Place::After(seq) = visit.place {
            format!("?after={seq}")
        } else {
            String::new()
        };
        let mut request = Request::get(format!("/v1/streams/{stream}{after}"));
        if let Some(id) = visit.place.last_event_id(stream) {
            request = request.header("last-event-id", id);
        }
        self.send(request.body(Body::empty()).unwrap()).await
    }

    /// The stream that the answer shows, if the answer is right.
    async fn judge(
        &self,
        visit: Visit,
        before: Phase,
        status: u16,
        stream: Option<Uuid>,
    ) -> Result<Option<Uuid>, String> {
        let is_at_end = match stream {
            None => self.is_at_end(visit).await,
            Some(_) => false,
        };
        let mut world = self.world.lock();
        let is_draining = world.is_draining;
        let run = &mut world.runs[visit.run];
        let is_retired = before == Phase::Retired || run.phase == Phase::Retired;
        match (status, visit.post, stream) {
            (200, Some(variant), Some(stream)) if !is_retired => {
                run.won(variant)?;
                run.attached(stream)?;
                return Ok(Some(stream));
            }
            (200, None, Some(stream)) if !is_retired => return Ok(Some(stream)),
            (409, Some(variant), _) => {
                run.won(1 - variant)?;
                world.count("409");
            }
            (410, Some(_), _) | (404 | 410, None, _) if is_retired => world.count("expired"),
            (204, None, _) if is_at_end => world.count("204"),
            (503, Some(_), _) if is_draining => {}
            (503, ..) if self.is_shared => world.count("503"),
            (status, ..) => return Err(format!("the answer was {status}")),
        }
        Ok(None)
    }

    async fn is_at_end(&self, visit: Visit) -> bool {
        let Some(stream) = self.world.lock().runs[visit.run].stream else { return false };
        let run = self.truth.run(stream).await.ok().flatten();
        run.is_some_and(|run| run.state == RunState::Closed && run.last_seq == visit.place.seq())
    }

    /// Stops a run: the answer comes when it is closed.
    pub(crate) async fn stop(self, run: usize) {
        if let Err(why) = self.try_stop(run).await {
            self.world.lock().fail(format!("DELETE of run {run}: {why}"));
        }
    }

    async fn try_stop(&self, run: usize) -> Result<(), String> {
        let (stream, before) = {
            let mut world = self.world.lock();
            let run = &mut world.runs[run];
            run.stops += 1;
            (run.stream.unwrap_or_default(), run.phase)
        };
        let response = self.send(delete(stream)).await?;
        let status = response.status();
        if matches!(status.as_u16(), 404 | 410) && before == Phase::Retired {
            return Ok(());
        }
        let body = json(response).await?;
        if self.is_shared && status == StatusCode::SERVICE_UNAVAILABLE {
            return self.is_asked(run, stream).await;
        }
        if status != StatusCode::OK || body["state"] != "closed" {
            return Err(format!("the answer was {status}: {body}"));
        }
        let truth = self.truth.run(stream).await?;
        let is_closed = truth.is_none_or(|run| run.state == RunState::Closed);
        is_closed.then_some(()).ok_or_else(|| "it says closed, but the journal does not".into())
    }

    /// Whoever works on it has not ended it yet. What was asked stays asked.
    async fn is_asked(&self, run: usize, stream: Uuid) -> Result<(), String> {
        let is_asked = self.truth.is_stop_asked(stream).await?;
        let mut world = self.world.lock();
        world.runs[run].is_stop_owed |= is_asked;
        world.count("stopped later");
        Ok(())
    }

    /// Asks for one object instead of a stream.
    pub(crate) async fn collect(self, run: usize, variant: usize) {
        if let Err(why) = self.try_collect(run, variant).await {
            self.world.lock().fail(format!("JSON of run {run}: {why}"));
        }
    }

    async fn try_collect(&self, run: usize, variant: usize) -> Result<(), String> {
        let mut request = self.request(run, variant, Place::Start, None);
        request.headers_mut().insert("accept", http::HeaderValue::from_static("application/json"));
        let answer = tokio::time::timeout(WHOLE_RUN, self.router.clone().oneshot(request)).await;
        let Ok(response) = answer.map_err(|_| "no answer")?;
        self.world.lock().runs[run].answered += 1;
        let status = response.status();
        let body = json(response).await?;
        if status != StatusCode::OK {
            let may_vanish = {
                let world = self.world.lock();
                world.is_expiring || world.is_draining || world.runs[run].phase == Phase::Retired
            };
            let is_typed = body["code"].is_string() && body["code"] != "journal_unavailable";
            return if is_typed || may_vanish { Ok(()) } else { Err(format!("{status}: {body}")) };
        }
        let stream: Uuid =
            body["output"]["stream_id"].as_str().and_then(|id| id.parse().ok()).ok_or("no id")?;
        let outcome = self.world.lock().runs[run].attached(stream);
        outcome?;
        if body["output"]["close"].is_null() {
            return Err("a run that is not closed was answered as a success".into());
        }
        self.check_collected(stream, &body["output"]["text"]).await
    }

    async fn check_collected(&self, stream: Uuid, text: &Value) -> Result<(), String> {
        let frames = self.truth.read(stream, 0, usize::MAX).await?;
        let mut told = Told::default();
        for frame in &frames {
            told.take(&packet(&frame.bytes)?);
        }
        self.world.lock().count("collected");
        let is_same = frames.is_empty() || told.text == *text;
        is_same.then_some(()).ok_or_else(|| format!("{text} instead of {:?}", told.text))
    }

    /// A request that must be refused, with this status and code.
    pub(crate) async fn refused(self, request: Request<Body>, status: u16, code: &str) {
        let what = format!("{} {} {:?}", request.method(), request.uri(), request.headers());
        let outcome = self.try_refused(request, status, code).await;
        let mut world = self.world.lock();
        world.count("refused");
        world.check(outcome.map_err(|why| format!("{what}: {why}")));
    }

    async fn try_refused(
        &self,
        request: Request<Body>,
        status: u16,
        code: &str,
    ) -> Result<(), String> {
        let response = self.send(request).await?;
        let was = response.status().as_u16();
        if was == 200 {
            return Err(format!("was accepted instead of {status} {code}"));
        }
        let body = json(response).await?;
        let is_right = was == status && body["code"] == code;
        is_right
            .then_some(())
            .ok_or_else(|| format!("{was} {} instead of {status} {code}", body["code"]))
    }

    /// A POST of a run with this `Last-Event-ID`.
    pub(crate) fn post_with(&self, run: usize, variant: usize, cursor: &str) -> Request<Body> {
        self.request(run, variant, Place::Start, Some(cursor.to_owned()))
    }
}

pub(crate) fn delete(stream: Uuid) -> Request<Body> {
    let request = Request::builder().method(Method::DELETE).uri(format!("/v1/streams/{stream}"));
    request.body(Body::empty()).unwrap()
}

pub(crate) fn get_with(stream: Uuid, cursor: &str) -> Request<Body> {
    let request = Request::get(format!("/v1/streams/{stream}")).header("last-event-id", cursor);
    request.body(Body::empty()).unwrap()
}

async fn json(response: Response) -> Result<Value, String> {
    let bytes = response.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes();
    serde_json::from_slice(&bytes).map_err(|e| e.to_string())
}

/// The packet of a stored frame.
pub(crate) fn packet(frame: &[u8]) -> Result<capstan_protocol::StreamPacket, String> {
    let text = std::str::from_utf8(frame).map_err(|e| e.to_string())?;
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).ok_or("no data")?;
    capstan_protocol::StreamPacket::decode(data).map_err(|e| e.to_string())
}

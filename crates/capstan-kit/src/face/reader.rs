//! The response path: streams packets to a viewer. Each viewer, live or resuming, has a reader at a
//! cursor over the journal.

mod collected;
mod poll;

use std::io;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use capstan_journal::{ErrorKind, Frames, JournalError, Reader, Run, RunState, Step};
use capstan_protocol::Fault;
use futures_util::stream;
use http::{HeaderValue, header};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::face::FaceContext;
use crate::face::repeats::ReaderGuardSlot;
pub use crate::face::writer::ViewerKind;
use crate::face::{BodyStep, Emit, Face, FaceWriter, ViewRequest};
use capstan_engine::events::Happened;
use capstan_engine::limits::Slot;
use capstan_engine::live::{Parting, Viewing};
use capstan_engine::readers::ReaderGuard;
use capstan_engine::relay;
pub use collected::{Collected, Fold, collect_so_far, collect_to_end};
pub use poll::poll;

/// Marks a response whose body stays open, as an extension.
#[derive(Debug, Clone, Copy)]
pub struct LongLived;

/// An open response.
struct Open {
    cx: FaceContext,
    reader: Reader,
    writer: Box<dyn FaceWriter>,
    view: ViewerKind,
    opening: Option<Bytes>,
    /// The face has written the end of the body.
    is_over: bool,
    /// The rest of the stream is damaged, and the viewer has received the error.
    is_lost: bool,
    /// The replay, until the viewer has caught up.
    behind: Option<Box<Behind>>,
    /// Registered once per viewer, not once per packet: a thousand viewers share its locks.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    /// The timer is not reset with every packet. When it fires, `silent_since` shows whether it was
    /// too early.
    heartbeat: Pin<Box<Sleep>>,
    interval: Duration,
    silent_since: Instant,
    /// The timer of the face's `max_duration`.
    rest: Option<Pin<Box<Sleep>>>,
    viewing: Viewing,
    _slot: Slot,
    _reading: ReaderGuard,
}

/// A read of the store costs as much as this many packets.
const VISIT: usize = 10;

/// The packets that a viewer has missed.
struct Behind {
    /// How many packets existed before the viewer came.
    packets: u64,
    tenant: String,
}

impl Behind {
    fn new(run: &Run, from: u64) -> Option<Box<Self>> {
        let packets = run.last_seq.checked_sub(from).filter(|packets| *packets > 0)?;
        Some(Box::new(Self { packets, tenant: run.tenant.clone() }))
    }

    /// Counts replayed frames. Returns true after the last one.
    fn catch_up(&mut self, cx: &FaceContext, frames: &Frames) -> bool {
        let replayed = self.packets.min(frames.len() as u64);
        cx.engine.viewers().replayed(replayed);
        self.packets -= replayed;
        cx.engine.passed(&self.tenant, VISIT, frames.size());
        self.packets == 0
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.cx.engine.viewers().closed();
    }
}

/// Creates a viewer's response, whose body its face writes.
pub async fn respond(
    cx: &FaceContext,
    face: &dyn Face,
    viewer: ViewRequest<'_>,
    slot: Slot,
) -> Result<Response, Fault> {
    let mut writer = face.open(cx, viewer).await?;
    cx.engine.viewers().opened();
    let (run, from, opening) = (viewer.run, writer.base(), writer.opening(cx));
    let reader = cx.engine.reader_of(run, from);
    let interval = writer.heartbeat_interval(cx.engine.settings().timeouts.heartbeat);
    let rest = writer.max_duration().map(|longest| Box::pin(tokio::time::sleep(longest)));
    let slot_of_repeat = viewer.parts.extensions.get::<ReaderGuardSlot>();
    let is_repeat = slot_of_repeat.is_some_and(ReaderGuardSlot::is_repeat);
    let behind = is_repeat.then_some(viewer.point.behind);
    let viewing = Viewing::new(&cx.engine, run, from, behind);
    let departure = viewing.departure();
    // Boxed, because it is moved with every chunk.
    let open = Box::new(Open {
        cx: cx.clone(),
        reader,
        writer,
        view: viewer.view,
        opening: Some(opening).filter(|opening| !opening.is_empty()),
        is_over: false,
        is_lost: false,
        behind: Behind::new(run, from),
        ended: Box::pin(cx.engine.until_ended_owned()),
        heartbeat: Box::pin(tokio::time::sleep(interval)),
        interval,
        silent_since: Instant::now(),
        rest,
        viewing,
        _slot: slot,
        _reading: ReaderGuard::new(&cx.engine, run),
    });
    let mut response = sse_response(Body::from_stream(stream::unfold(open, next_chunk)));
    response.extensions_mut().insert(departure);
    response.extensions_mut().insert(LongLived);
    name_stream(run, &mut response);
    face.headers(cx, &viewer, response.headers_mut()).await?;
    Ok(response)
}

/// Adds the header that names the stream.
pub fn name_stream(run: &Run, response: &mut Response) {
    if let Ok(id) = HeaderValue::from_str(&run.stream_id.to_string()) {
        response.headers_mut().insert("x-stream-id", id);
    }
}

/// A response of server-sent events. Caches must not store it, and proxies must not buffer it.
pub fn sse_response(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Returns the next bytes of a body. `None` ends it cleanly at a frame boundary, and an error cuts
/// it.
async fn next_chunk(mut open: Box<Open>) -> Option<(io::Result<Bytes>, Box<Open>)> {
    if let Some(opening) = open.opening.take() {
        return Some((Ok(opening), open));
    }
    if open.is_over {
        return None;
    }
    match open.wait().await {
        BodyStep::Write(bytes) => {
            open.silent_since = Instant::now();
            Some((Ok(bytes), open))
        }
        BodyStep::Last(bytes) => {
            open.is_over = true;
            open.viewing.ends(Parting::Done);
            Some((Ok(bytes), open))
        }
        BodyStep::End => {
            open.viewing.ends(Parting::Done);
            None
        }
        BodyStep::Cut => {
            open.viewing.ends(Parting::Cut);
            Some((Err(io::Error::other("the stream cannot be read on")), open))
        }
    }
}

impl Open {
    async fn wait(&mut self) -> BodyStep {
        loop {
            let step = tokio::select! {
                biased;
                step = self.reader.next() => step,
                () = self.ended.as_mut() => return self.end(),
                () = over(&mut self.rest) => return self.writer.closing(),
                () = self.heartbeat.as_mut() => match self.beat() {
                    true => return BodyStep::Write(Bytes::from_static(self.writer.heartbeat())),
                    false => continue,
                },
            };
            let next = match step {
                Ok(Step::Frames(frames)) => self.show(frames).await,
                Ok(Step::State(state)) => self.writer.caught_up(&self.cx, state, self.view),
                Err(error) if error.kind() == ErrorKind::Corrupt => self.lose(&error).await,
                Err(_) => BodyStep::Cut,
            };
            // Some frames have no bytes in this protocol.
            if !matches!(&next, BodyStep::Write(bytes) if bytes.is_empty()) {
                return next;
            }
        }
    }

    /// Ends the body because the server stops. If the journal has failed, the body must not look
    /// complete.
    fn end(&mut self) -> BodyStep {
        if self.cx.engine.is_broken() { BodyStep::Cut } else { self.writer.closing() }
    }

    /// The next packets are damaged. The viewer gets a final error in packets that the journal does
    /// not contain.
    async fn lose(&mut self, error: &JournalError) -> BodyStep {
        if self.is_lost {
            return self.writer.caught_up(&self.cx, RunState::Closed, self.view);
        }
        self.is_lost = true;
        let (stream, after) = (self.reader.stream_id(), self.reader.cursor());
        tracing::error!(%stream, after, %error, "a stream is damaged; its reader gets an error");
        let Ok(Some(run)) = self.cx.engine.store().run(stream).await else {
            return BodyStep::Cut;
        };
        self.cx.engine.emit(&run, Happened::ReadDamage);
        let frames = relay::last_words_of_lost(&self.cx.engine, &run, after);
        self.show(frames.into_iter().collect()).await
    }

    /// Resets the timer. Returns true if nothing was sent for a whole interval.
    fn beat(&mut self) -> bool {
        let is_due = self.silent_since.elapsed() >= self.interval;
        let from = if is_due { Instant::now() } else { self.silent_since };
        self.heartbeat.as_mut().reset(from + self.interval);
        is_due
    }

    async fn show(&mut self, frames: Frames) -> BodyStep {
        if let Some(behind) = &mut self.behind
            && behind.catch_up(&self.cx, &frames)
        {
            self.behind = None;
        }
        self.viewing.at(self.reader.cursor());
        match self.writer.frames(&self.cx, frames) {
            Emit::Now(next) => next,
            Emit::Later(next) => next.await.unwrap_or(BodyStep::Cut),
        }
    }
}

/// Waits for the end of `max_duration`, or forever.
async fn over(rest: &mut Option<Pin<Box<Sleep>>>) {
    match rest {
        Some(rest) => rest.as_mut().await,
        None => std::future::pending().await,
    }
}

//! What happens, as it happens: one broadcast for all who listen, made at the transitions of runs and only if somebody does.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use capstan_journal::Run;
use capstan_protocol::{Fault, FaultKind};
use futures_util::stream;
use serde::Serialize;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::answers::{Health, Refusal, RunRow};
use super::visitor::Visitor;
use crate::app::App;
use crate::reader::sse_response;

/// Who is further behind is told so, and asks anew.
const LENGTH: usize = 1024;
/// Who listens at once.
const MOST_FEEDS: usize = 20;
/// Below the idle limit of common proxies.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// What happened to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    Began,
    /// An attempt failed, and another follows.
    Attempt,
    Waits,
    Armed,
    Closed,
}

/// One piece of news.
#[derive(Debug)]
enum News {
    Run(What, Box<Run>),
    Refused(Refusal),
}

/// Where they are told.
pub(crate) struct Feed {
    sender: broadcast::Sender<Arc<News>>,
    open: AtomicUsize,
}

impl Default for Feed {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(LENGTH), open: AtomicUsize::new(0) }
    }
}

impl Feed {
    /// Whether anybody listens.
    fn is_heard(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    pub(crate) fn run(&self, what: What, run: &Run) {
        if self.is_heard() {
            // Who was there a moment ago may be gone.
            let _ = self.sender.send(Arc::new(News::Run(what, Box::new(run.clone()))));
        }
    }

    pub(crate) fn refused(&self, refusal: &Refusal) {
        if self.is_heard() {
            let _ = self.sender.send(Arc::new(News::Refused(refusal.clone())));
        }
    }
}

/// `data:` of an event about a run.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct RunNews {
    what: What,
    run: RunRow,
}

/// `data:` of any event, as the document describes it.
#[derive(schemars::JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "only its schema is used")]
pub(crate) enum FeedEvent {
    Run(Box<RunNews>),
    Refused(Refusal),
    State(Health),
    Drains(Drains),
    Lagged(Lagged),
}

/// A server that ends: the rest of its health is asked for.
#[derive(schemars::JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub(crate) struct Drains {
    /// `draining`.
    state: &'static str,
}

/// Some were missed.
#[derive(schemars::JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Lagged {}

/// One who listens.
struct Listener {
    app: App,
    visitor: Visitor,
    news: broadcast::Receiver<Arc<News>>,
    opening: Option<Bytes>,
    is_draining: bool,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.app.console.feed.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response that lasts as long as somebody listens.
pub(crate) fn respond(app: &App, visitor: Visitor, health: &Health) -> Result<Response, Fault> {
    let feed = &app.console.feed;
    let has_room = |open: usize| (open < MOST_FEEDS).then_some(open + 1);
    feed.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room).map_err(|_| {
        let fault = Fault::new(FaultKind::ServiceUnavailable).with_retry_after(15.0);
        fault.with_message(format!("{MOST_FEEDS} listen already, and no more are told."))
    })?;
    let opening = Some(event("state", health));
    let is_draining = app.draining.is_cancelled();
    let listener =
        Listener { app: app.clone(), visitor, news: feed.sender.subscribe(), opening, is_draining };
    Ok(sse_response(Body::from_stream(stream::unfold(Box::new(listener), next))))
}

async fn next(mut listener: Box<Listener>) -> Option<(io::Result<Bytes>, Box<Listener>)> {
    if let Some(opening) = listener.opening.take() {
        return Some((Ok(opening), listener));
    }
    loop {
        let (app, is_draining) = (listener.app.clone(), listener.is_draining);
        let bytes = tokio::select! {
            biased;
            () = app.ended.cancelled() => return None,
            () = app.draining.cancelled(), if !is_draining => {
                listener.is_draining = true;
                Some(Bytes::from_static(b"event: state\ndata: {\"state\":\"draining\"}\n\n"))
            }
            news = listener.news.recv() => match news {
                Ok(news) => listener.tell(&news),
                Err(RecvError::Lagged(_)) => Some(Bytes::from_static(b"event: lagged\ndata: {}\n\n")),
                Err(RecvError::Closed) => return None,
            },
            () = tokio::time::sleep(HEARTBEAT) => Some(Bytes::from_static(b": here\n\n")),
        };
        if let Some(bytes) = bytes {
            return Some((Ok(bytes), listener));
        }
    }
}

impl Listener {
    /// What is in sight.
    fn tell(&self, news: &News) -> Option<Bytes> {
        match news {
            News::Run(what, run) if self.visitor.sees(&run.tenant) => {
                let row = RunRow::new(&self.app, &self.visitor, run);
                Some(event("run", &RunNews { what: *what, run: row }))
            }
            News::Refused(refusal) if self.visitor.sees_refusal(refusal) => Some(event("refused", refusal)),
            News::Run(..) | News::Refused(_) => None,
        }
    }
}

fn event(name: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default();
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

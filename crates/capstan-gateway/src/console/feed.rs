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
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant;

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
/// What one who listens is told in a second; if there is more, it asks anew when the second is over.
const MOST_A_SECOND: usize = 100;
const SECOND: Duration = Duration::from_secs(1);

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
    ear: Ear,
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
        Listener { app: app.clone(), visitor, ear: Ear::new(feed.sender.subscribe()), opening, is_draining };
    Ok(sse_response(Body::from_stream(stream::unfold(Box::new(listener), next))))
}

async fn next(mut listener: Box<Listener>) -> Option<(io::Result<Bytes>, Box<Listener>)> {
    if let Some(opening) = listener.opening.take() {
        return Some((Ok(opening), listener));
    }
    let Listener { app, visitor, ear, is_draining, .. } = &mut *listener;
    let bytes = tokio::select! {
        biased;
        () = app.ended.cancelled() => return None,
        () = app.draining.cancelled(), if !*is_draining => {
            *is_draining = true;
            Bytes::from_static(b"event: state\ndata: {\"state\":\"draining\"}\n\n")
        }
        heard = ear.hear(|news| told(app, visitor, news)) => heard?,
        () = tokio::time::sleep(HEARTBEAT) => Bytes::from_static(b": here\n\n"),
    };
    Some((Ok(bytes), listener))
}

/// What is in sight.
fn told(app: &App, visitor: &Visitor, news: &News) -> Option<Bytes> {
    match news {
        News::Run(what, run) if visitor.sees(&run.tenant) => {
            let row = RunRow::new(app, visitor, run);
            Some(event("run", &RunNews { what: *what, run: row }))
        }
        News::Refused(refusal) if visitor.sees_refusal(refusal) => Some(event("refused", refusal)),
        News::Run(..) | News::Refused(_) => None,
    }
}

/// Hears no more than somebody can follow: runs may begin and end by the thousand a second, and each would be told to each who
/// listens.
struct Ear {
    news: broadcast::Receiver<Arc<News>>,
    since: Instant,
    heard: usize,
}

impl Ear {
    fn new(news: broadcast::Receiver<Arc<News>>) -> Self {
        Self { news, since: Instant::now(), heard: 0 }
    }

    /// The next that is in sight, or that some were missed; `None` once nobody tells any more. Nothing is lost if it is dropped.
    async fn hear(&mut self, tell: impl Fn(&News) -> Option<Bytes>) -> Option<Bytes> {
        loop {
            if self.heard >= MOST_A_SECOND {
                tokio::time::sleep_until(self.since + SECOND).await;
                self.begin_second();
                if self.skip() {
                    return Some(lagged());
                }
            }
            match self.news.recv().await {
                Ok(news) => {
                    if let Some(bytes) = tell(&news) {
                        self.count();
                        return Some(bytes);
                    }
                }
                Err(RecvError::Lagged(_)) => return Some(lagged()),
                Err(RecvError::Closed) => return None,
            }
        }
    }

    fn begin_second(&mut self) {
        (self.since, self.heard) = (Instant::now(), 0);
    }

    fn count(&mut self) {
        if self.since.elapsed() >= SECOND {
            self.begin_second();
        }
        self.heard += 1;
    }

    /// Leaves out what has come meanwhile; whether there was any.
    fn skip(&mut self) -> bool {
        let mut has_skipped = false;
        while let Ok(_) | Err(TryRecvError::Lagged(_)) = self.news.try_recv() {
            has_skipped = true;
        }
        has_skipped
    }
}

fn lagged() -> Bytes {
    Bytes::from_static(b"event: lagged\ndata: {}\n\n")
}

fn event(name: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default();
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use capstan_protocol::Timestamp;

    fn news(n: u64) -> Arc<News> {
        Arc::new(News::Refused(Refusal {
            at: Timestamp::from_micros(0),
            request_id: String::new(),
            tenant: None,
            route: String::new(),
            code: "code",
            title: "title",
            why: None,
            status: 400,
            ms: n,
        }))
    }

    /// The number of what was heard; `None` if some were missed.
    async fn hear(ear: &mut Ear) -> Option<u64> {
        let number = |news: &News| {
            let News::Refused(refusal) = news else { return None };
            refusal.ms.is_multiple_of(2).then(|| Bytes::from(refusal.ms.to_string()))
        };
        String::from_utf8(ear.hear(number).await.unwrap().to_vec()).unwrap().parse().ok()
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_told_than_somebody_can_follow() {
        let sender = broadcast::Sender::new(LENGTH);
        let mut ear = Ear::new(sender.subscribe());
        let began = Instant::now();
        // Every other one is out of sight, and does not count.
        (0..400).for_each(|n| drop(sender.send(news(n))));
        for n in 0..100 {
            assert_eq!(hear(&mut ear).await, Some(2 * n));
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(hear(&mut ear).await, None, "it is told once that there were more");
        assert_eq!(began.elapsed(), SECOND);
        drop(sender.send(news(1000)));
        assert_eq!(hear(&mut ear).await, Some(1000));
    }
}

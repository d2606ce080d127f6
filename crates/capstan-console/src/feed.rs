//! The live feed of events: one broadcast for all listeners, at the transitions of runs. An event
//! is encoded only if somebody listens. A listener that has received enough for a second leaves the
//! broadcast: if thousands of runs begin, most events are counted and never encoded.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
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
use tokio::time::Instant;

use super::answers::{Health, Refusal, RunRow, ServerState};
use super::visitor::Visitor;
use crate::Console;
use capstan_kit::face::reader::sse_response;

/// A listener that is further behind gets a notice, and loads its page again.
const LENGTH: usize = 1024;
/// The most listeners.
const MOST_FEEDS: usize = 20;
/// Below the idle limit of common proxies.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The most events for a listener in a second. If there are more, it loads its page again when the
/// second is over.
const MOST_A_SECOND: usize = 100;
const SECOND: Duration = Duration::from_secs(1);

/// The change of a run.
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

/// An event of the feed.
#[derive(Debug)]
enum News {
    Run(Box<OfRun>),
    Refused(Refusal),
}

/// An event of a run, encoded once for all listeners with the same rights.
#[derive(Debug)]
struct OfRun {
    what: What,
    run: Run,
    encoded: [OnceLock<Bytes>; 4],
}

impl OfRun {
    fn encoded(&self, console: &Console, visitor: &Visitor) -> Bytes {
        let sight = [visitor.sees_sessions_of(console, &self.run.tenant), visitor.sees_server()]
            .map(usize::from);
        let [session, server] = sight;
        let write = || {
            event(
                "run",
                &RunNews { what: self.what, run: RunRow::new(console, visitor, &self.run) },
            )
        };
        self.encoded
            .get(session * 2 + server)
            .map_or_else(write, |encoded| encoded.get_or_init(write).clone())
    }
}

/// The broadcast.
pub(crate) struct Feed {
    sender: broadcast::Sender<Arc<News>>,
    open: AtomicUsize,
    /// How many listeners there are.
    awake: AtomicUsize,
    /// How many events there were, encoded or not.
    happened: AtomicU64,
}

impl Default for Feed {
    fn default() -> Self {
        let [open, awake] = <[AtomicUsize; 2]>::default();
        Self { sender: broadcast::Sender::new(LENGTH), open, awake, happened: AtomicU64::new(0) }
    }
}

impl Feed {
    pub(crate) fn run(&self, what: What, run: &Run) {
        self.publish(|| {
            News::Run(Box::new(OfRun { what, run: run.clone(), encoded: <[_; 4]>::default() }))
        });
    }

    pub(crate) fn refused(&self, refusal: &Refusal) {
        self.publish(|| News::Refused(refusal.clone()));
    }

    /// Count first, so that a listener that returns now sees the count or receives the event.
    fn publish(&self, news: impl FnOnce() -> News) {
        self.happened.fetch_add(1, Ordering::SeqCst);
        if self.awake.load(Ordering::SeqCst) > 0 {
            // The listener may have left meanwhile.
            let _ = self.sender.send(Arc::new(news()));
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

/// The server shuts down. The page loads the rest of its health.
#[derive(schemars::JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub(crate) struct Drains {
    /// Always `draining`.
    state: ServerState,
}

/// Events were missed.
#[derive(schemars::JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Lagged {}

/// A listener.
struct Listener {
    console: Console,
    visitor: Visitor,
    receiver: FeedReceiver,
    opening: Option<Bytes>,
    is_draining: bool,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let feed = &self.console.memory.feed;
        self.receiver.rest(feed);
        feed.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Creates the response of a listener, which stays open.
pub(crate) fn respond(
    console: &Console,
    visitor: Visitor,
    health: &Health,
) -> Result<Response, Fault> {
    let feed = &console.memory.feed;
    let has_room = |open: usize| (open < MOST_FEEDS).then_some(open + 1);
    feed.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room).map_err(|_| {
        let fault = Fault::new(FaultKind::ServiceUnavailable).with_retry_after(15.0);
        fault.with_message(format!("{MOST_FEEDS} listeners are connected, which is the limit."))
    })?;
    let opening = Some(event("state", health));
    let is_draining = console.engine.is_draining();
    let listener = Listener {
        console: console.clone(),
        visitor,
        receiver: FeedReceiver::new(feed),
        opening,
        is_draining,
    };
    Ok(sse_response(Body::from_stream(stream::unfold(Box::new(listener), next))))
}

async fn next(mut listener: Box<Listener>) -> Option<(io::Result<Bytes>, Box<Listener>)> {
    if let Some(opening) = listener.opening.take() {
        return Some((Ok(opening), listener));
    }
    let Listener { console, visitor, receiver, is_draining, .. } = &mut *listener;
    let bytes = tokio::select! {
        biased;
        () = console.engine.until_ended() => return None,
        () = console.engine.until_draining(), if !*is_draining => {
            *is_draining = true;
            Bytes::from_static(b"event: state\ndata: {\"state\":\"draining\"}\n\n")
        }
        next = receiver.next(&console.memory.feed, |news| encode(console, visitor, news)) => next?,
        () = tokio::time::sleep(HEARTBEAT) => Bytes::from_static(b": here\n\n"),
    };
    Some((Ok(bytes), listener))
}

/// Encodes an event, if the listener may see it.
fn encode(console: &Console, visitor: &Visitor, news: &News) -> Option<Bytes> {
    match news {
        News::Run(news) if visitor.sees(&news.run.tenant) => Some(news.encoded(console, visitor)),
        News::Refused(refusal) if visitor.sees_refusal(refusal.tenant.as_deref()) => {
            Some(event("refused", refusal))
        }
        News::Run(_) | News::Refused(_) => None,
    }
}

/// Limits the events of a listener: thousands of runs may begin and end in a second.
struct FeedReceiver {
    /// None while the listener has left the broadcast.
    news: Option<broadcast::Receiver<Arc<News>>>,
    since: Instant,
    received: usize,
    /// The count of events when it left.
    happened: u64,
}

impl FeedReceiver {
    fn new(feed: &Feed) -> Self {
        let mut receiver = Self { news: None, since: Instant::now(), received: 0, happened: 0 };
        receiver.wake(feed);
        receiver
    }

    /// Returns the next visible event, or that some were missed; `None` after the broadcast has
    /// ended. It is safe to drop this future.
    async fn next(
        &mut self,
        feed: &Feed,
        encode: impl Fn(&News) -> Option<Bytes>,
    ) -> Option<Bytes> {
        loop {
            if self.received >= MOST_A_SECOND {
                self.rest(feed);
                tokio::time::sleep_until(self.since + SECOND).await;
                self.begin_second();
                if self.wake(feed) {
                    return Some(lagged());
                }
            }
            match self.news.as_mut()?.recv().await {
                Ok(news) => {
                    if let Some(bytes) = encode(&news) {
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
        (self.since, self.received) = (Instant::now(), 0);
    }

    fn count(&mut self) {
        if self.since.elapsed() >= SECOND {
            self.begin_second();
        }
        self.received += 1;
    }

    /// Leaves the broadcast until the second is over. Events that it has not received yet count as
    /// later ones.
    fn rest(&mut self, feed: &Feed) {
        if let Some(news) = self.news.take() {
            let unheard = u64::try_from(news.len()).unwrap_or(0);
            self.happened = feed.happened.load(Ordering::SeqCst).saturating_sub(unheard);
            feed.awake.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Returns to the broadcast. True if events happened meanwhile.
    fn wake(&mut self, feed: &Feed) -> bool {
        self.news = Some(feed.sender.subscribe());
        feed.awake.fetch_add(1, Ordering::SeqCst);
        feed.happened.load(Ordering::SeqCst) != self.happened
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
    use futures_util::FutureExt as _;

    fn news(n: u64) -> News {
        News::Refused(Refusal {
            at: Timestamp::from_micros(0),
            request_id: String::new(),
            tenant: None,
            route: String::new(),
            code: "code",
            title: "title",
            why: None,
            status: 400,
            retry_after: None,
            ms: n,
        })
    }

    /// The number of received events; `None` if some were missed.
    async fn next(receiver: &mut FeedReceiver, feed: &Feed) -> Option<u64> {
        let number = |news: &News| {
            let News::Refused(refusal) = news else { return None };
            refusal.ms.is_multiple_of(2).then(|| Bytes::from(refusal.ms.to_string()))
        };
        String::from_utf8(receiver.next(feed, number).await.unwrap().to_vec()).unwrap().parse().ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_gets_no_more_events_than_it_can_follow() {
        let feed = Feed::default();
        let mut receiver = FeedReceiver::new(&feed);
        let began = Instant::now();
        // Every other event is not visible, and does not count.
        (0..400).for_each(|n| feed.publish(|| news(n)));
        for n in 0..100 {
            assert_eq!(next(&mut receiver, &feed).await, Some(2 * n));
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(next(&mut receiver, &feed).await, None, "it is told once that there were more");
        assert_eq!(began.elapsed(), SECOND);
        feed.publish(|| news(1000));
        assert_eq!(next(&mut receiver, &feed).await, Some(1000));
    }

    #[tokio::test(start_paused = true)]
    async fn events_without_listeners_are_not_encoded() {
        let feed = Feed::default();
        feed.publish(|| unreachable!("nobody is there"));
        let (mut full, mut other) = (FeedReceiver::new(&feed), FeedReceiver::new(&feed));
        (0..100).for_each(|n| feed.publish(|| news(2 * n)));
        for _ in 0..100 {
            next(&mut full, &feed).await.unwrap();
        }
        let mut more = Box::pin(next(&mut full, &feed));
        assert!((&mut more).now_or_never().is_none());
        feed.publish(|| news(500));
        for _ in 0..100 {
            next(&mut other, &feed).await.unwrap();
        }
        assert!(next(&mut other, &feed).now_or_never().is_none());
        feed.publish(|| unreachable!("both have heard enough"));
        assert_eq!(more.await, None, "what was not made is missed all the same");
        full.rest(&feed);
        other.rest(&feed);
        assert_eq!(feed.awake.load(Ordering::SeqCst), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_that_missed_nothing_continues() {
        let feed = Feed::default();
        let mut receiver = FeedReceiver::new(&feed);
        (0..100).for_each(|n| feed.publish(|| news(2 * n)));
        for _ in 0..100 {
            next(&mut receiver, &feed).await.unwrap();
        }
        let mut next = Box::pin(next(&mut receiver, &feed));
        assert!((&mut next).now_or_never().is_none());
        tokio::time::advance(SECOND).await;
        assert!((&mut next).now_or_never().is_none(), "nothing was missed");
        feed.publish(|| news(7_000));
        assert_eq!(next.await, Some(7_000));
    }
}

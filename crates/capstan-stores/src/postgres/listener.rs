//! Hears what other processes tell.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_journal::News;
use tokio::sync::mpsc;

use super::Shared;
use super::link::{Failure, Link};
use super::notice::{self, CHANNEL, Notice};

const PAUSE: Duration = Duration::from_millis(500);
/// A connection on which nothing comes may be dead: so often it is asked.
const ASK_EVERY: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        if let Err(failure) = listen(&shared).await {
            tracing::debug!(%failure, "other processes are not heard for now; their streams are \
             looked at");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Until the connection is lost.
async fn listen(shared: &Shared) -> Result<(), Failure> {
    let (sender, mut notices) = mpsc::unbounded_channel();
    let link = Link::open_with(&shared.listen, PATIENCE, Some(sender)).await?;
    link.batch(&format!("listen {CHANNEL}")).await?;
    let _hearing = Hearing::begin(shared);
    // What was told in between was not heard.
    shared.behind.notify_one();
    loop {
        match tokio::time::timeout(ASK_EVERY, notices.recv()).await {
            Ok(Some(notice)) => match notice::decode(notice.payload()) {
                Some(notices) => notices.into_iter().for_each(|notice| hear(shared, notice)),
                None => shared.behind.notify_one(),
            },
            Ok(None) => return Ok(()),
            Err(_) => link.batch("").await?,
        }
    }
}

/// As long as it lives, who waits for a stream is known here.
struct Hearing<'a>(&'a Shared);

impl<'a> Hearing<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.hears.store(true, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for Hearing<'_> {
    fn drop(&mut self) {
        self.0.hears.store(false, Ordering::Relaxed);
    }
}

fn hear(shared: &Shared, notice: Notice) {
    match notice {
        Notice::Frames { stream, standing, frames } if shared.watched.has(stream) => {
            shared.watched.heard(stream, standing);
            pass_on(shared, News::Frames { stream, standing, frames });
        }
        Notice::Gone(stream) if shared.watched.has(stream) => pass_on(shared, News::Gone(stream)),
        Notice::Stop(stream) if shared.own.get(stream).is_some() => {
            let _ = shared.stops.try_send(stream);
        }
        Notice::Awaited(stream) => {
            if let Some(own) = shared.own.get(stream)
                && own.awaited()
            {
                // What was written before this was heard has to be looked for.
                shared.tell(own.notice(Vec::new()));
            }
        }
        Notice::Frames { .. } | Notice::Gone(_) | Notice::Stop(_) => {}
    }
}

fn pass_on(shared: &Shared, news: News) {
    if shared.news.try_send(news).is_err() {
        shared.behind.notify_one();
    }
}

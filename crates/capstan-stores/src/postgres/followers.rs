//! Tells the others for which streams somebody here waits: of all others nobody needs to be told.
//!
//! A notice wakes every process of the journal, and most streams are read where they are written.
//! So packets are told only of a stream that somebody elsewhere awaits. A word that is lost is said
//! again within a second; until then, what was not told is found by looking (`poll.rs`), as ever.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use super::notice::Notice;

const EVERY: Duration = Duration::from_secs(1);

pub(super) async fn run(shared: Arc<Shared>) {
    let mut again = Instant::now() + EVERY;
    loop {
        let new = tokio::time::timeout_at(again, shared.watched.newly_awaited()).await;
        let mut awaited = new.unwrap_or_default();
        if Instant::now() >= again {
            again = Instant::now() + EVERY;
            awaited = shared.watched.awaited();
        }
        awaited.into_iter().for_each(|stream| shared.tell(Notice::Awaited(stream)));
    }
}

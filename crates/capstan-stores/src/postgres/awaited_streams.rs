//! Announces the streams for which a reader of this process waits, so that their owners send
//! notifications.
//!
//! A notification wakes every process of the journal, and most streams are read where they are
//! written. So owners send packets only for streams that another process awaits. A lost
//! announcement is repeated within a second. Until then polling (`poll.rs`) finds the packets.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use super::peer_message::PeerMessage;

/// How often all awaited streams are announced again.
const INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn run(shared: Arc<Shared>) {
    let mut next = Instant::now() + INTERVAL;
    loop {
        let new = tokio::time::timeout_at(next, shared.watched.newly_awaited()).await;
        let mut awaited = new.unwrap_or_default();
        if Instant::now() >= next {
            next = Instant::now() + INTERVAL;
            awaited = shared.watched.awaited();
        }
        awaited.into_iter().for_each(|stream| shared.notify(PeerMessage::Awaited(stream)));
    }
}

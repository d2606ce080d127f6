//! Who waits for a sync. Claims and ends of streams are synced before anybody is told, but by a
//! thread of their own: packets of other streams, which need no sync, must not wait for the disk.
//!
//! A group can be read at once, so whoever has read of a stream waits here until its last claim or
//! end is synced.

use std::collections::HashMap;

use capstan_journal::JournalError;
use tokio::sync::watch;
use uuid::Uuid;

#[derive(Debug, Default)]
struct State {
    /// Streams whose last claim or end is not synced, and the group that holds it.
    unsynced: HashMap<Uuid, u64>,
    /// Nothing can be synced now.
    failed: Option<JournalError>,
}

/// Shared by the writer, the thread that syncs, and everyone who reads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Syncs(watch::Sender<State>);

impl Syncs {
    /// To be said before the group can be read.
    pub(crate) fn expect(&self, streams: &[Uuid], group: u64) {
        if streams.is_empty() {
            return;
        }
        self.0.send_if_modified(|state| {
            state.unsynced.extend(streams.iter().map(|stream| (*stream, group)));
            false
        });
    }

    /// Returns when nothing that was written about the stream can be undone by a power cut, its
    /// packets aside.
    ///
    /// To be awaited after the read: what was read may have been written after the read was asked
    /// for.
    pub(crate) async fn settled(&self, stream: Uuid) -> Result<(), JournalError> {
        let is_unsynced = |state: &State| state.unsynced.contains_key(&stream);
        if !is_unsynced(&self.0.borrow()) {
            return Ok(());
        }
        let mut news = self.0.subscribe();
        let state = news.wait_for(|state| state.failed.is_some() || !is_unsynced(state)).await;
        match state.ok().filter(|state| is_unsynced(state)).and_then(|state| state.failed.clone()) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Why nothing can be synced now.
    pub(crate) fn failure(&self) -> Option<JournalError> {
        self.0.borrow().failed.clone()
    }

    pub(crate) fn fail(&self, failure: JournalError) {
        self.0.send_modify(|state| state.failed = Some(failure));
    }

    pub(crate) fn are_done(&self, upto: u64) {
        self.0.send_modify(|state| {
            state.failed = None;
            state.unsynced.retain(|_, group| *group > upto);
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;
    use capstan_journal::ErrorKind;

    #[tokio::test]
    async fn reader_waits_for_the_sync_of_its_group() {
        let (syncs, stream) = (Syncs::default(), Uuid::now_v7());
        syncs.expect(&[stream], 1);
        let waiting = tokio::spawn({
            let syncs = syncs.clone();
            async move { syncs.settled(stream).await }
        });
        syncs.settled(Uuid::now_v7()).await.unwrap();
        syncs.expect(&[stream], 2);
        syncs.are_done(1);
        yield_now().await;
        assert!(!waiting.is_finished());
        syncs.are_done(2);
        waiting.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn unsynced_writes_are_not_acknowledged() {
        let (syncs, stream) = (Syncs::default(), Uuid::now_v7());
        syncs.expect(&[stream], 1);
        syncs.fail(JournalError::new(ErrorKind::Unavailable, "no space"));
        assert_eq!(syncs.settled(stream).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(syncs.failure().is_some());
        syncs.settled(Uuid::now_v7()).await.unwrap();
        syncs.are_done(1);
        syncs.settled(stream).await.unwrap();
        assert!(syncs.failure().is_none());
    }
}

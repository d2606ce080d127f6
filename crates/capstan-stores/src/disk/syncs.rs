//! Waits for syncs. A claim or an end of a stream is synced before its caller gets an answer. A
//! thread of its own does it, so that packets of other streams, which need no sync, do not wait for
//! the disk.
//!
//! A group can be read before its sync. So a reader of a stream waits here until the stream's last
//! claim or end is synced.

use std::collections::HashMap;

use capstan_journal::JournalError;
use tokio::sync::watch;
use uuid::Uuid;

#[derive(Debug, Default)]
struct State {
    /// Streams whose last claim or end is not synced, with the number of its group.
    unsynced: HashMap<Uuid, u64>,
    /// The failure, if syncs fail at the moment.
    failed: Option<JournalError>,
}

/// The pending syncs. The writer, the sync thread and all readers share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Syncs(watch::Sender<State>);

impl Syncs {
    /// Records that these streams wait for the sync of a group. Call it before the group can be
    /// read.
    pub(crate) fn expect(&self, streams: &[Uuid], group: u64) {
        if streams.is_empty() {
            return;
        }
        self.0.send_if_modified(|state| {
            state.unsynced.extend(streams.iter().map(|stream| (*stream, group)));
            false
        });
    }

    /// Waits until a power cut can undo nothing that was written about the stream, except its
    /// packets.
    ///
    /// Await it after the read: the data may have been written after the read began.
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

    /// The failure, if syncs fail at the moment.
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

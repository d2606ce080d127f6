//! What is written and not yet synced. Claims and ends of streams are synced before anybody is told, but by a thread of
//! their own: packets of other streams, which need no sync, must not wait for the disk.
//!
//! A commit can be read at once, so whoever has read of a stream waits here until its last claim or end is synced.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use tokio::sync::watch;
use uuid::Uuid;

use super::tables::Tables;
use crate::{ErrorKind, JournalError};

/// Which commit this is, counted by the writer.
type Commit = u64;

#[derive(Debug, Default)]
struct State {
    /// Streams whose last claim or end is not synced, and the commit that holds it.
    unsynced: HashMap<Uuid, Commit>,
    last: Commit,
    /// After a failed write or sync nobody knows what is on disk: nothing more is written until a restart has looked.
    failed: Option<JournalError>,
}

/// Shared by the writer, the thread that syncs, and everyone who reads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Syncs(watch::Sender<State>);

impl Syncs {
    /// To be said before the commit, since it can be read as soon as it is made.
    pub(crate) fn expect(&self, streams: &[Uuid]) -> Commit {
        let mut commit = 0;
        self.0.send_if_modified(|state| {
            state.last += 1;
            commit = state.last;
            state.unsynced.extend(streams.iter().map(|stream| (*stream, commit)));
            false
        });
        commit
    }

    /// Returns when nothing that was written about the stream can be undone by a power cut, its packets aside.
    ///
    /// To be awaited after the read: what was read may have been written after the read was asked for.
    pub(crate) async fn settled(&self, stream: Uuid) -> Result<(), JournalError> {
        let mut news = self.0.subscribe();
        let is_unsynced = |state: &State| state.unsynced.contains_key(&stream);
        let state = news.wait_for(|state| state.failed.is_some() || !is_unsynced(state)).await;
        match state.ok().filter(|state| is_unsynced(state)).and_then(|state| state.failed.clone()) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Why nothing can be written any more.
    pub(crate) fn failure(&self) -> Option<JournalError> {
        self.0.borrow().failed.clone()
    }

    pub(crate) fn fail(&self, error: &JournalError) {
        tracing::error!(%error, "the journal cannot write; it takes no more writes until it is reopened");
        let message = "the journal failed to write and takes no more writes";
        let failure = JournalError::new(ErrorKind::Unavailable, message).caused_by(error.clone());
        self.0.send_modify(|state| {
            state.failed.get_or_insert(failure);
        });
    }

    fn are_done(&self, upto: Commit) {
        self.0.send_modify(|state| {
            if state.failed.is_none() {
                state.unsynced.retain(|_, commit| *commit > upto);
            }
        });
    }
}

/// Syncs commits as they are sent, all that wait at once; ends when the sender is gone, or a sync fails.
pub(crate) fn spawn(
    tables: Arc<Tables>,
    syncs: Syncs,
) -> std::io::Result<(mpsc::Sender<Commit>, JoinHandle<()>)> {
    let (sender, commits) = mpsc::channel::<Commit>();
    let work = move || {
        while let Ok(first) = commits.recv() {
            let upto = commits.try_iter().last().unwrap_or(first);
            match tables.sync_log() {
                Ok(()) => syncs.are_done(upto),
                // The system tells of a failed sync once; the next may succeed without what this one lost.
                Err(error) => return syncs.fail(&error),
            }
        }
    };
    Ok((sender, thread::Builder::new().name("journal-sync".into()).spawn(work)?))
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn who_has_read_of_a_stream_waits_until_its_last_commit_is_synced() {
        let (syncs, stream) = (Syncs::default(), Uuid::now_v7());
        let claim = syncs.expect(&[stream]);
        let waiting = tokio::spawn({
            let syncs = syncs.clone();
            async move { syncs.settled(stream).await }
        });
        syncs.settled(Uuid::now_v7()).await.unwrap();
        let end = syncs.expect(&[stream]);
        syncs.are_done(claim);
        yield_now().await;
        assert!(!waiting.is_finished());
        syncs.are_done(end);
        waiting.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_could_not_be_synced_is_not_told() {
        let (syncs, stream) = (Syncs::default(), Uuid::now_v7());
        syncs.expect(&[stream]);
        syncs.fail(&JournalError::new(ErrorKind::Unavailable, "no space"));
        let later = syncs.expect(&[Uuid::now_v7()]);
        syncs.are_done(later);
        assert_eq!(syncs.settled(stream).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(syncs.failure().is_some());
        syncs.settled(Uuid::now_v7()).await.unwrap();
    }
}

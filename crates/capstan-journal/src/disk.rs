//! `disk:<folder>`: an embedded log-structured store. One thread writes, in groups; everyone may read.

mod apply;
mod expire;
mod folder;
mod group;
mod keys;
mod syncs;
mod tables;
mod values;
mod writer;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use async_trait::async_trait;
use bytes::Bytes;
use capstan_protocol::Timestamp;
use tokio::sync::{Semaphore, mpsc, oneshot};
use uuid::Uuid;

use self::group::Reply;
use self::syncs::Syncs;
use self::tables::{Table, Tables, View};
use self::writer::{Command, Writer};
use crate::rules::shown;
use crate::{
    Claim, Claimed, Durability, ErrorKind, Expired, Found, Frame, JournalError, Retention, Run, RunState,
    Secret, Store, Turn,
};

/// Callers wait for their answers, so this many callers write at the same time; the others wait to be queued.
const QUEUE: usize = 4096;

/// Reads at once. More would only queue at the disk, each on a thread of its own with a heap of its own.
const READS: usize = 8;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

pub(crate) struct DiskStore {
    tables: Arc<Tables>,
    reads: Semaphore,
    // Taken when the store is dropped.
    commands: Option<mpsc::Sender<Command>>,
    threads: Vec<JoinHandle<()>>,
    syncs: Syncs,
    boot: Option<String>,
}

impl DiskStore {
    pub(crate) fn open(folder: &Path, durability: Durability) -> Result<Self, JournalError> {
        // Linux's name for the time since the machine was started. Elsewhere a power cut goes unnoticed.
        let boot = fs::read_to_string(BOOT_ID).ok();
        if boot.is_none() && durability == Durability::Process {
            tracing::warn!(
                "{BOOT_ID} cannot be read: a stream that lost packets in a power cut would be continued"
            );
        }
        Self::open_in(folder, durability, boot.map(|id| id.trim().to_owned()))
    }

    fn open_in(folder: &Path, durability: Durability, boot: Option<String>) -> Result<Self, JournalError> {
        let tables = Arc::new(Tables::open(folder)?);
        let unsynced = boot.clone().filter(|_| durability == Durability::Process);
        let syncs = Syncs::default();
        let (to_sync, syncing) = syncs::spawn(tables.clone(), syncs.clone()).map_err(no_thread)?;
        let writer = Writer::new(tables.clone(), durability, unsynced, syncs.clone(), to_sync)?;
        let (commands, queue) = mpsc::channel(QUEUE);
        let writing = thread::Builder::new().name("journal-writer".into());
        let writing = writing.spawn(move || writer.run(queue)).map_err(no_thread)?;
        let (reads, threads) = (Semaphore::new(READS), vec![writing, syncing]);
        Ok(Self { tables, reads, commands: Some(commands), threads, syncs, boot })
    }

    /// Sends a command to the writer and waits for its answer.
    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command + Send) -> Result<T, JournalError> {
        let (reply, answer) = oneshot::channel();
        let command = command(reply);
        let commands = self.commands.as_ref().ok_or_else(closed)?;
        commands.send(command).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Reads at one moment of the store, off the runtime's threads: a read may have to wait for the disk, and whoever
    /// shares the thread with it would wait as well, heartbeats of other streams included.
    async fn view<T: Send + 'static>(
        &self,
        read: impl FnOnce(&View<'_>) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let _turn = self.reads.acquire().await.map_err(|_| closed())?;
        let tables = self.tables.clone();
        let outcome = tokio::task::spawn_blocking(move || read(&tables.view())).await;
        outcome.map_err(|error| {
            JournalError::new(ErrorKind::Unavailable, "a read was broken off").caused_by(error)
        })?
    }
}

impl Drop for DiskStore {
    /// Waits for the commit under way, so that the folder is free when the last user is gone.
    fn drop(&mut self) {
        self.commands = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[async_trait]
impl Store for DiskStore {
    async fn claim(&self, claim: Claim) -> Result<Claimed, JournalError> {
        let claimed = self.ask(|reply| Command::Claim(Box::new(claim), reply)).await?;
        self.syncs.settled(claimed.run.stream_id).await?;
        Ok(claimed)
    }

    async fn body(&self, stream: Uuid) -> Result<Option<Bytes>, JournalError> {
        self.view(move |view| view.body(stream)).await
    }

    async fn append(&self, stream: Uuid, attempt: u32, frames: Vec<Frame>) -> Result<(), JournalError> {
        self.ask(|reply| Command::Append { stream, attempt, frames, reply }).await
    }

    async fn transition(
        &self,
        from: (RunState, u32),
        to: Run,
        frames: Vec<Frame>,
        turn: Option<Turn>,
    ) -> Result<bool, JournalError> {
        let (stream, to, turn) = (to.stream_id, Box::new(to), turn.map(Box::new));
        let is_done = self.ask(|reply| Command::Transition { from, to, frames, turn, reply }).await?;
        self.syncs.settled(stream).await?;
        Ok(is_done)
    }

    async fn read(
        &self,
        stream: Uuid,
        after: u64,
        max_packets: usize,
        max_bytes: usize,
    ) -> Result<Vec<Frame>, JournalError> {
        let frames = self.view(move |view| view.read(stream, after, max_packets, max_bytes)).await?;
        self.syncs.settled(stream).await?;
        Ok(frames)
    }

    async fn run(&self, stream: Uuid) -> Result<Option<Run>, JournalError> {
        let run = self.view(move |view| view.run(stream)).await?;
        self.syncs.settled(stream).await?;
        Ok(run)
    }

    async fn is_tail_certain(&self, stream: Uuid) -> Result<bool, JournalError> {
        let boot = self.boot.clone();
        self.view(move |view| view.is_tail_certain(stream, boot.as_deref())).await
    }

    async fn find(&self, tenant: &str, key: &str) -> Result<Option<Found>, JournalError> {
        let (tenant, key) = (tenant.to_owned(), key.to_owned());
        let found = self.view(move |view| view.find(&tenant, &key)).await?;
        if let Some(Found::Run(run)) = &found {
            self.syncs.settled(run.stream_id).await?;
        }
        Ok(found)
    }

    async fn list(&self, tenant: &str, before: Option<Uuid>, limit: usize) -> Result<Vec<Run>, JournalError> {
        let tenant = tenant.to_owned();
        let runs = self.view(move |view| view.list(&tenant, before, limit)).await?;
        for run in &runs {
            self.syncs.settled(run.stream_id).await?;
        }
        Ok(runs)
    }

    async fn open_runs(&self) -> Result<Vec<Run>, JournalError> {
        let records = self.view(|view| view.open_records()).await?;
        Ok(records.into_iter().map(|record| shown(record.run)).collect())
    }

    async fn turns(&self, tenant: &str, session: &str) -> Result<Vec<Turn>, JournalError> {
        let (tenant, session) = (tenant.to_owned(), session.to_owned());
        let turns = self.view(move |view| view.turns(&tenant, &session)).await?;
        for turn in &turns {
            self.syncs.settled(turn.stream_id).await?;
        }
        Ok(turns)
    }

    async fn is_expired(&self, tenant: &str, stream: Uuid) -> Result<bool, JournalError> {
        let key = keys::late(tenant, stream);
        self.view(move |view| view.has(Table::Index, &key)).await
    }

    async fn has_session(&self, tenant: &str, session: &str) -> Result<bool, JournalError> {
        let key = keys::index(keys::SESSION, &[&keys::names(&[tenant, session])]);
        self.view(move |view| view.has(Table::Index, &key)).await
    }

    async fn sessions(&self, tenant: &str) -> Result<u64, JournalError> {
        let tenant = tenant.to_owned();
        self.view(move |view| view.sessions(&tenant)).await
    }

    async fn purge(&self, stream: Uuid, now: Timestamp) -> Result<bool, JournalError> {
        let is_gone = self.ask(|reply| Command::Purge { stream, now, reply }).await?;
        if is_gone {
            self.sweep(stream).await?;
        }
        Ok(is_gone)
    }

    async fn purge_session(&self, tenant: &str, session: &str) -> Result<bool, JournalError> {
        let entry = keys::index(keys::SESSION, &[&keys::names(&[tenant, session])]);
        self.ask(|reply| Command::ForgetSession { entry, unused_since: None, reply }).await
    }

    async fn expire(&self, retention: &Retention, now: Timestamp) -> Result<Expired, JournalError> {
        self.expire_all(retention, now).await
    }

    async fn secret(&self) -> Result<Secret, JournalError> {
        Ok(self.tables.secret().clone())
    }

    async fn close(&self) -> Result<(), JournalError> {
        self.ask(Command::Close).await
    }
}

fn no_thread(error: std::io::Error) -> JournalError {
    JournalError::new(ErrorKind::Unavailable, "cannot start a thread of the journal").caused_by(error)
}

fn closed() -> JournalError {
    JournalError::new(ErrorKind::Unavailable, "the journal is closed")
}

/// The engine's failures in our words.
fn failure(error: fjall::Error) -> JournalError {
    use fjall::Error;
    let is_damage = matches!(
        error,
        Error::JournalRecovery(_)
            | Error::InvalidVersion(_)
            | Error::Decompress(_)
            | Error::InvalidTrailer
            | Error::InvalidTag(_)
            | Error::Unrecoverable
    );
    let (kind, message) = match is_damage {
        true => (ErrorKind::Corrupt, "the journal is damaged"),
        false => (ErrorKind::Unavailable, "the journal's disk store failed"),
    };
    JournalError::new(kind, message).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the tail of a run that was under way is certain after a restart in the given uptime.
    async fn is_certain_after(durability: Durability, state: RunState, boot: &str) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let open = |boot: &str| DiskStore::open_in(folder.path(), durability, Some(boot.into())).unwrap();
        let claim = Claim::new("local", "k", Uuid::now_v7(), Timestamp::now());
        {
            let store = open("first");
            store.claim(claim.clone()).await.unwrap();
            store.append(claim.stream_id, 1, vec![Frame::new(1, "frame")]).await.unwrap();
            let to = Run { state, ..claim.to_run() };
            assert!(store.transition((RunState::Running, 1), to, vec![], None).await.unwrap());
        }
        open(boot).is_tail_certain(claim.stream_id).await.unwrap()
    }

    #[tokio::test]
    async fn only_a_restart_of_the_machine_makes_an_unsynced_tail_uncertain() {
        for (durability, state, boot, is_certain) in [
            (Durability::Process, RunState::Running, "first", true),
            (Durability::Process, RunState::Running, "second", false),
            (Durability::Process, RunState::Waiting, "second", true),
            (Durability::Process, RunState::Closed, "second", true),
            (Durability::Power, RunState::Running, "second", true),
        ] {
            let found = is_certain_after(durability, state, boot).await;
            assert_eq!(found, is_certain, "{durability:?} {state:?} {boot}");
        }
    }

    #[tokio::test]
    async fn nobody_is_told_of_what_could_not_be_synced() {
        let folder = tempfile::tempdir().unwrap();
        let store = DiskStore::open_in(folder.path(), Durability::Process, None).unwrap();
        let claims = ["k", "l"].map(|key| Claim::new("local", key, Uuid::now_v7(), Timestamp::now()));
        for claim in &claims {
            store.claim(claim.clone()).await.unwrap();
        }
        let [lost, kept] = claims.map(|claim| claim.stream_id);
        store.syncs.expect(&[lost]);
        store.syncs.fail(&closed());
        assert!(store.run(lost).await.is_err());
        assert!(store.read(lost, 0, 1, 1).await.is_err());
        assert!(store.find("local", "k").await.is_err());
        assert!(store.list("local", None, 10).await.is_err());
        assert!(store.run(kept).await.is_ok() && store.find("local", "l").await.is_ok());
        assert!(
            store.append(kept, 1, vec![Frame::new(1, "frame")]).await.is_err(),
            "nothing more is written"
        );
    }
}

//! Retention. A stream is hidden by one small commit, then its frames are deleted bit by bit; appends go in between.

use std::collections::HashMap;

use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::DiskStore;
use super::keys;
use super::tables::{Table, View};
use super::values;
use super::writer::Command;
use crate::retention::{Judge, before, is_past};
use crate::{Expired, JournalError, Retention};

/// How many streams are hidden, or keys deleted, by one commit.
const STREAMS_AT_ONCE: usize = 64;
const KEYS_AT_ONCE: usize = 512;

struct Due {
    stream: Uuid,
    size: u64,
}

impl DiskStore {
    pub(super) async fn expire_all(
        &self,
        retention: &Retention,
        now: Timestamp,
    ) -> Result<Expired, JournalError> {
        let mut report = Expired::default();
        self.sweep_leftovers().await?;
        let rules = retention.clone();
        let due = self.view(move |view| due(view, &rules, now)).await?;
        for some in due.chunks(STREAMS_AT_ONCE) {
            let streams = some.iter().map(|due| due.stream).collect();
            self.ask(|reply| Command::Retire { streams, now, reply }).await?;
            for due in some {
                self.sweep(due.stream).await?;
            }
            report.streams += some.len() as u64;
            report.bytes += some.iter().map(|due| due.size).sum::<u64>();
        }
        report.sessions = self.expire_sessions(retention, now).await?;
        report.claims = self.expire_claims(retention, now).await?;
        Ok(report)
    }

    /// Deletes the frames of hidden streams that an earlier process did not come to delete.
    async fn sweep_leftovers(&self) -> Result<(), JournalError> {
        let doomed = self.view(|view| {
            let entries = view.prefix(Table::Index, &[keys::DOOMED]);
            entries.map(|entry| entry.map(|(key, _)| keys::stream(&key))).collect::<Result<Vec<_>, _>>()
        });
        for stream in doomed.await?.into_iter().flatten() {
            self.sweep(stream).await?;
        }
        Ok(())
    }

    /// Deletes a hidden stream's frames, then its entry among the doomed.
    pub(super) async fn sweep(&self, stream: Uuid) -> Result<(), JournalError> {
        // From where the last step ended: what was deleted still has to be stepped over when read from the start.
        let mut from = 0;
        loop {
            let found = self.view(move |view| view.frame_keys(stream, from, KEYS_AT_ONCE)).await?;
            let Some(last) = found.last().and_then(|key| keys::seq(key)) else { break };
            from = last.saturating_add(1);
            self.forget(found.into_iter().map(|key| (Table::Frames, key)).collect()).await?;
        }
        self.forget(vec![(Table::Index, keys::index(keys::DOOMED, &[stream.as_bytes()]))]).await
    }

    async fn expire_sessions(&self, retention: &Retention, now: Timestamp) -> Result<u64, JournalError> {
        let (rules, mut count) = (retention.clone(), 0);
        let unused = self.view(move |view| unused_sessions(view, &rules, now)).await?;
        for (entry, cutoff) in unused {
            let unused_since = Some(cutoff);
            let is_gone = self.ask(|reply| Command::ForgetSession { entry, unused_since, reply }).await?;
            count += u64::from(is_gone);
        }
        Ok(count)
    }

    async fn expire_claims(&self, retention: &Retention, now: Timestamp) -> Result<u64, JournalError> {
        let claim_age = retention.claim_age;
        let gone = self.view(move |view| {
            let mut gone = Vec::new();
            for entry in view.prefix(Table::Index, &[keys::GONE]) {
                let (key, late) = entry?;
                if keys::time_of(&key).is_none_or(|at| !is_past(at, claim_age, now)) {
                    break;
                }
                gone.push((key.to_vec(), late.to_vec()));
            }
            Ok(gone)
        });
        let gone = gone.await?;
        for some in gone.chunks(KEYS_AT_ONCE) {
            let claims = some.iter().filter_map(|(key, _)| Some((Table::Claims, key.get(9..)?.to_vec())));
            let entries = some.iter().flat_map(|(key, late)| [key, late]).filter(|key| !key.is_empty());
            let entries = entries.map(|key| (Table::Index, key.clone()));
            self.forget(claims.chain(entries).collect()).await?;
        }
        Ok(gone.len() as u64)
    }

    async fn forget(&self, keys: Vec<(Table, Vec<u8>)>) -> Result<(), JournalError> {
        self.ask(|reply| Command::Forget { keys, reply }).await
    }
}

/// The closed streams that have to go, oldest first.
fn due(view: &View<'_>, retention: &Retention, now: Timestamp) -> Result<Vec<Due>, JournalError> {
    let sizes = if retention.is_by_size() { sizes(view)? } else { HashMap::new() };
    let mut judge = Judge::new(retention, now, &sizes);
    let mut due = Vec::new();
    for entry in view.prefix(Table::Index, &[keys::CLOSED]) {
        let (key, value) = entry?;
        let (Some(closed_at), Some(stream)) = (keys::time_of(&key), keys::stream(&key)) else { continue };
        if judge.is_done(closed_at) {
            break;
        }
        let size = values::read_number(&value);
        if judge.is_due(values::read_tenant(&value), closed_at, size) {
            due.push(Due { stream, size });
        }
    }
    Ok(due)
}

/// What all streams take, open ones included, by tenant.
fn sizes(view: &View<'_>) -> Result<HashMap<String, u64>, JournalError> {
    let mut sizes: HashMap<String, u64> = HashMap::new();
    for record in view.open_records()? {
        *sizes.entry(record.run.tenant.clone()).or_default() += record.size();
    }
    for entry in view.prefix(Table::Index, &[keys::CLOSED]) {
        let (_, value) = entry?;
        let size = values::read_number(&value);
        match sizes.get_mut(values::read_tenant(&value)) {
            Some(sum) => *sum += size,
            None => drop(sizes.insert(values::read_tenant(&value).to_owned(), size)),
        }
    }
    Ok(sizes)
}

/// Sessions that were not used for too long, each with the moment since when.
fn unused_sessions(
    view: &View<'_>,
    retention: &Retention,
    now: Timestamp,
) -> Result<Vec<(Vec<u8>, Timestamp)>, JournalError> {
    let mut unused = Vec::new();
    for entry in view.prefix(Table::Index, &[keys::SESSION]) {
        let (key, used_at) = entry?;
        let tenant = keys::first_name(&key).unwrap_or_default();
        let cutoff = before(now, retention.max_age_of(tenant));
        if keys::read_time(&used_at).is_some_and(|at| at <= cutoff) {
            unused.push((key.to_vec(), cutoff));
        }
    }
    Ok(unused)
}

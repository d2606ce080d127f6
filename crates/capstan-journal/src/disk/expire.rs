//! Retention: what is due is marked as gone, in small groups between which appends go on. The cleaner does the rest.

use std::collections::{HashMap, HashSet};

use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::DiskStore;
use super::names::Name;
use super::shared::Shared;
use super::writer::Command;
use crate::retention::Judge;
use crate::{Expired, JournalError, Retention};

/// How many streams one group marks.
const STREAMS_AT_ONCE: usize = 64;
/// How many entries are looked at before writers get their turn.
const LOOK_AT_ONCE: usize = 4096;
/// All tenants without a retention of their own. No tenant can be called this.
const OTHERS: &str = "\0";

struct Due {
    stream: Uuid,
    size: u64,
}

/// Tenants that have a retention of their own, by the name in the index.
struct Tenants<'a>(HashMap<Name, &'a str>);

impl<'a> Tenants<'a> {
    fn new(shared: &Shared, retention: &'a Retention) -> Self {
        let named = |tenant: &'a String| (shared.names.tenant(tenant), tenant.as_str());
        Self(retention.tenants.keys().map(named).collect())
    }

    fn name(&self, tenant: &Name) -> &'a str {
        self.0.get(tenant).copied().unwrap_or(OTHERS)
    }
}

impl DiskStore {
    pub(super) async fn expire_all(
        &self,
        retention: &Retention,
        now: Timestamp,
    ) -> Result<Expired, JournalError> {
        let mut report = Expired::default();
        let rules = retention.clone();
        let due = self.view(move |shared| Ok(due(shared, &rules, now))).await?;
        for some in due.chunks(STREAMS_AT_ONCE) {
            let streams = some.iter().map(|due| due.stream).collect();
            report.streams += self.ask(|reply| Command::Retire { streams, now, reply }).await?;
            report.bytes += some.iter().map(|due| due.size).sum::<u64>();
        }
        report.sessions = self.expire_sessions(retention, now).await?;
        let rules = retention.clone();
        report.claims = self.view(move |shared| Ok(expire_claims(shared, &rules, now))).await?;
        self.wake_keeper();
        Ok(report)
    }

    async fn expire_sessions(&self, retention: &Retention, now: Timestamp) -> Result<u64, JournalError> {
        let (rules, mut count) = (retention.clone(), 0);
        let unused = self.view(move |shared| Ok(unused_sessions(shared, &rules, now))).await?;
        for (session, used_at) in unused {
            let unused_since = Some(used_at);
            let command = |reply| Command::ForgetSession { session, unused_since, now, reply };
            count += u64::from(self.ask(command).await?);
        }
        Ok(count)
    }
}

/// The closed streams that have to go, oldest first.
fn due(shared: &Shared, retention: &Retention, now: Timestamp) -> Vec<Due> {
    let tenants = Tenants::new(shared, retention);
    let mut sizes: HashMap<String, u64> = HashMap::new();
    for (tenant, size) in &shared.index().sizes_of {
        *sizes.entry(tenants.name(tenant).to_owned()).or_default() += size;
    }
    let mut judge = Judge::new(retention, now, &sizes);
    let (mut due, mut from) = (Vec::new(), (Timestamp::from_micros(i64::MIN), Uuid::nil()));
    loop {
        let index = shared.index();
        let mut entries = index.closed.range((std::ops::Bound::Excluded(from), std::ops::Bound::Unbounded));
        for &(closed_at, stream) in entries.by_ref().take(LOOK_AT_ONCE) {
            if judge.is_done(closed_at) {
                return due;
            }
            from = (closed_at, stream);
            let Some(found) = index.streams.get(&stream) else { continue };
            if judge.is_due(tenants.name(&found.tenant), closed_at, found.size) {
                due.push(Due { stream, size: found.size });
            }
        }
        if entries.next().is_none() {
            return due;
        }
    }
}

/// Sessions that have to go, those first that were not used for longest, each with when it was used last. Not one that
/// a run is under way in.
fn unused_sessions(shared: &Shared, retention: &Retention, now: Timestamp) -> Vec<(Uuid, Timestamp)> {
    let tenants = Tenants::new(shared, retention);
    let index = shared.index();
    let mut sizes: HashMap<String, u64> = HashMap::new();
    for (tenant, size) in &index.turns_of {
        *sizes.entry(tenants.name(tenant).to_owned()).or_default() += size;
    }
    let of = |stream: &Uuid| index.streams.get(stream).map(|stream| stream.session_id);
    let busy: HashSet<_> = index.open.iter().filter_map(of).collect();
    let mut judge = Judge::new(retention, now, &sizes);
    let (mut due, mut used) = (Vec::new(), index.used.iter());
    while let Some((used_at, id)) = used.next().filter(|(used_at, _)| !judge.is_done(*used_at)) {
        let Some(session) = index.sessions.get(id).filter(|_| !busy.contains(id)) else { continue };
        if judge.is_due(tenants.name(&session.tenant), *used_at, session.bytes) {
            due.push((*id, *used_at));
        }
    }
    due
}

/// Claims whose stream went long ago are free again. Their marks go with the segments that hold them.
fn expire_claims(shared: &Shared, retention: &Retention, now: Timestamp) -> u64 {
    let mut index = shared.index_mut();
    let oldest = retention.before(now, retention.claim_age);
    let past: Vec<_> =
        index.gone_at.iter().take_while(|(at, _)| *at <= oldest).map(|(_, stream)| *stream).collect();
    past.iter().for_each(|stream| index.free_claim(*stream));
    past.len() as u64
}

//! Retention. Marks expired data as deleted, in small groups, so that appends go on in between. The
//! compactor removes the data.

use std::collections::{HashMap, HashSet};
use std::ops::Bound::{Excluded, Unbounded};

use capstan_journal::backend::Judge;
use capstan_journal::{Expired, JournalError, Retention};
use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::DiskStore;
use super::names::Name;
use super::shared::Shared;
use super::writer::Command;

/// The most streams that one group marks.
const STREAMS_AT_ONCE: usize = 64;
/// The most entries that are checked before the lock of the index is released.
const ENTRIES_AT_ONCE: usize = 4096;
/// Stands for all tenants without a retention of their own. No tenant can have this name.
const OTHERS: &str = "\0";

/// The expired data: closed streams and unused sessions, with their size.
#[derive(Default)]
struct Due {
    streams: Vec<(Uuid, u64)>,
    /// Each with the time of its last use.
    sessions: Vec<(Uuid, Timestamp, u64)>,
}

/// Tenants with a retention of their own, by their name in the index.
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
        for some in due.streams.chunks(STREAMS_AT_ONCE) {
            let streams = some.iter().map(|(stream, _)| *stream).collect();
            report.streams += self.ask(|reply| Command::Retire { streams, now, reply }).await?;
            report.bytes += some.iter().map(|(_, size)| size).sum::<u64>();
        }
        for (session, used_at, size) in due.sessions {
            let unused_since = Some(used_at);
            let command = |reply| Command::ForgetSession { session, unused_since, now, reply };
            if self.ask(command).await? {
                report.sessions += 1;
                report.bytes += size;
            }
        }
        let rules = retention.clone();
        report.claims = self.view(move |shared| Ok(expire_claims(shared, &rules, now))).await?;
        self.wake_compactor();
        Ok(report)
    }
}

/// Selects the expired data, oldest first: streams by their end, sessions by their last use.
fn due(shared: &Shared, retention: &Retention, now: Timestamp) -> Due {
    let tenants = Tenants::new(shared, retention);
    let mut sizes: HashMap<String, u64> = HashMap::new();
    {
        let index = shared.index();
        for (tenant, size) in index.sizes_of.iter().chain(&index.turns_of) {
            *sizes.entry(tenants.name(tenant).to_owned()).or_default() += size;
        }
    }
    let (mut judge, mut due) = (Judge::new(retention, now, &sizes), Due::default());
    let start = (Timestamp::from_micros(i64::MIN), Uuid::nil());
    let (mut after_closed, mut after_used) = (start, start);
    loop {
        let index = shared.index();
        // A session with an open run is in use.
        let in_use: HashSet<Uuid> = {
            let open = index.open.iter().filter_map(|stream| index.streams.get(stream));
            open.map(|stream| stream.session_id).collect()
        };
        let mut closed = index.closed.range((Excluded(after_closed), Unbounded)).peekable();
        let mut used = index.used.range((Excluded(after_used), Unbounded)).peekable();
        for _ in 0..ENTRIES_AT_ONCE {
            let is_stream = match (closed.peek(), used.peek()) {
                (None, None) => return due,
                (Some(closed), Some(used)) => closed.0 <= used.0,
                (closed, None) => closed.is_some(),
                (None, Some(_)) => false,
            };
            let Some(&(at, id)) = (if is_stream { closed.next() } else { used.next() }) else {
                return due;
            };
            if judge.is_done(at) {
                return due;
            }
            if is_stream {
                after_closed = (at, id);
                let Some(found) = index.streams.get(&id) else { continue };
                if judge.is_due(tenants.name(&found.tenant), at, found.size) {
                    due.streams.push((id, found.size));
                }
            } else {
                after_used = (at, id);
                let Some(found) = index.sessions.get(&id).filter(|_| !in_use.contains(&id)) else {
                    continue;
                };
                if judge.is_due(tenants.name(&found.tenant), at, found.bytes) {
                    due.sessions.push((id, at, found.bytes));
                }
            }
        }
    }
}

/// Frees the claims of streams that were deleted long ago. Their marks disappear with the segments
/// that contain them.
fn expire_claims(shared: &Shared, retention: &Retention, now: Timestamp) -> u64 {
    let mut index = shared.index_mut();
    let oldest = retention.before(now, retention.claim_age);
    let past: Vec<_> = index
        .gone_at
        .iter()
        .take_while(|(at, _)| *at <= oldest)
        .map(|(_, stream)| *stream)
        .collect();
    past.iter().for_each(|stream| index.free_claim(*stream));
    past.len() as u64
}

//! Finds runs by any id. The id must be exact, or the beginning of a stream's id.

use capstan_journal::{Found, JournalError, Query, Run, RunPage};
use capstan_protocol::{LastEventId, Timestamp};
use uuid::Uuid;

use super::answers::{Findings, Hit, HitKind, Looked, Refusal};
use super::visitor::Visitor;
use crate::Console;

/// The most results of a kind.
const MOST: usize = 20;
/// How many tenants are searched for keys and sessions.
const TENANTS: usize = 200;
/// The fewest digits of a stream's id.
const LEAST_DIGITS: usize = 8;
/// The longest id.
const LONGEST: usize = 256;

struct Search<'a> {
    console: &'a Console,
    visitor: &'a Visitor,
    found: Findings,
}

pub(crate) async fn find(
    console: &Console,
    visitor: &Visitor,
    q: &str,
) -> Result<Findings, JournalError> {
    let found = Findings { hits: Vec::new(), refusals: Vec::new(), looked: Vec::new() };
    let mut search = Search { console, visitor, found };
    let q = q.trim();
    if !q.is_empty() && q.len() <= LONGEST {
        search.streams(q).await?;
        search.requests(q).await?;
        search.traces(q).await?;
        search.names(q).await?;
        search.refusals(q);
    }
    Ok(search.found)
}

impl Search<'_> {
    fn looked(&mut self, place: &'static str, back_to: Option<Timestamp>) {
        self.found.looked.push(Looked { place, back_to });
    }

    fn hit(&mut self, kind: HitKind, run: &Run, seq: Option<u64>) {
        let (stream_id, tenant) = (Some(run.stream_id), Some(run.tenant.clone()));
        let is_known = self.found.hits.iter().any(|hit| hit.stream_id == stream_id);
        if !is_known {
            self.found.hits.push(Hit { kind, stream_id, tenant, session: None, seq });
        }
    }

    async fn page(&self, query: Query) -> Result<RunPage, JournalError> {
        let tenants = self.visitor.names();
        self.console.engine.store().page(Query { tenants, limit: MOST, ..query }).await
    }

    /// A stream's id, a cursor, or the beginning of a stream's id.
    async fn streams(&mut self, q: &str) -> Result<(), JournalError> {
        let cursor =
            q.parse::<LastEventId>().ok().filter(|_| q.contains(':')).map(LastEventId::cursor);
        let whole = cursor.map(|cursor| cursor.stream_id).or_else(|| q.parse().ok());
        let back_to = if let Some(stream) = whole {
            let run = self.console.engine.store().run(stream).await?;
            if let Some(run) = run.filter(|run| self.visitor.sees(&run.tenant)) {
                let (kind, seq) = if cursor.is_some() {
                    (HitKind::Cursor, cursor.map(|c| c.seq))
                } else {
                    (HitKind::Stream, None)
                };
                self.hit(kind, &run, seq);
            }
            None
        } else if let Some((from, last)) = ids_from(q) {
            let before = Some(Uuid::from_u128(last.as_u128().saturating_add(1)));
            let page = self.page(Query { from: Some(from), before, ..Query::default() }).await?;
            page.runs.iter().for_each(|run| self.hit(HitKind::Stream, run, None));
            page.looked_back_to
        } else {
            return Ok(());
        };
        self.looked("streams", back_to);
        Ok(())
    }

    async fn requests(&mut self, q: &str) -> Result<(), JournalError> {
        let page = self.page(Query { request_id: Some(q.to_owned()), ..Query::default() }).await?;
        page.runs.iter().for_each(|run| self.hit(HitKind::RequestId, run, None));
        self.looked("request ids", page.looked_back_to);
        Ok(())
    }

    async fn traces(&mut self, q: &str) -> Result<(), JournalError> {
        /// The length of a trace id of W3C.
        const DIGITS: usize = 32;
        let is_trace = q.len() == DIGITS && q.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_trace {
            return Ok(());
        }
        let trace_id = Some(q.to_ascii_lowercase());
        let page = self.page(Query { trace_id, ..Query::default() }).await?;
        page.runs.iter().for_each(|run| self.hit(HitKind::Trace, run, None));
        self.looked("traces", page.looked_back_to);
        Ok(())
    }

    /// A run's key, or a session: each tenant has its own.
    async fn names(&mut self, q: &str) -> Result<(), JournalError> {
        let store = self.console.engine.store().clone();
        for tenant in self.visitor.known_tenants(self.console).iter().take(TENANTS) {
            if let Some(Found::Run(run)) = store.find(tenant, q).await? {
                self.hit(HitKind::Key, &run, None);
            }
            let may_be_told = self.visitor.sees_sessions_of(self.console, tenant);
            if may_be_told && self.found.hits.len() < MOST && store.has_session(tenant, q).await? {
                let (tenant, session) = (Some(tenant.clone()), Some(q.to_owned()));
                self.found.hits.push(Hit {
                    kind: HitKind::Session,
                    stream_id: None,
                    tenant,
                    session,
                    seq: None,
                });
            }
        }
        self.looked("keys and sessions", None);
        Ok(())
    }

    fn refusals(&mut self, q: &str) {
        let is_it = |refusal: &Refusal| {
            refusal.request_id == q && self.visitor.sees_refusal(refusal.tenant.as_deref())
        };
        let (refusals, back_to) = self.console.memory.refusals.find(MOST, is_it);
        self.found.refusals = refusals;
        // Nothing is remembered from before a restart.
        let since_start = self.console.began();
        self.looked("refusals", Some(back_to.unwrap_or(since_start)));
    }
}

/// The first and the last stream whose id begins with these digits.
fn ids_from(q: &str) -> Option<(Uuid, Uuid)> {
    let digits: String = q.chars().filter(|c| *c != '-').collect();
    let is_start =
        (LEAST_DIGITS..32).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let fill = |with: &str| {
        let rest = with.repeat(32_usize.saturating_sub(digits.len()));
        Uuid::try_parse(&format!("{digits}{rest}")).ok()
    };
    is_start.then(|| Some((fill("0")?, fill("f")?))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_digits_are_the_beginning_of_a_streams_id() {
        let (from, last) = ids_from("0198b0d5-6a2e").unwrap();
        assert_eq!(from.to_string(), "0198b0d5-6a2e-0000-0000-000000000000");
        assert_eq!(last.to_string(), "0198b0d5-6a2e-ffff-ffff-ffffffffffff");
        for no_id in ["0198b0d", "0198b0dg", "", "0198b0d5-6a2e-7c31-9f4e-2f1d3c5b7a90"] {
            assert_eq!(ids_from(no_id), None, "{no_id}");
        }
    }
}

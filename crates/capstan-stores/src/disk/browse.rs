//! Searches the runs of several tenants, newest first.

use std::collections::HashSet;

use capstan_journal::backend::Pager;
use capstan_journal::{ErrorKind, JournalError, NameKind, Query, Run, RunPage};
use uuid::Uuid;

use super::index::{Index, Stream};
use super::names::{GlobalKey, Name};
use super::shared::Shared;
use super::view;

/// The most streams that are looked up at once, so that no other thread waits long for the index.
const WINDOW: usize = 128;

/// The part of a query that the index can answer without reading records.
struct Prefilter {
    way: Way,
    tenants: Option<HashSet<Name>>,
}

/// The order of the search. It includes every matching stream.
#[derive(Clone, Copy)]
enum Way {
    All,
    Open,
    Named(Name),
}

impl Prefilter {
    fn new(shared: &Shared, query: &Query) -> Self {
        let names = &shared.names;
        let only = query.tenants.as_ref().and_then(|tenants| match tenants.as_slice() {
            [one] => Some(one.as_str()),
            _ => None,
        });
        let global_key = |global_key, word: &Option<String>| {
            word.as_deref().map(|word| names.global_key(global_key, word))
        };
        // Choose the condition with the fewest results.
        let way = global_key(GlobalKey::RequestId, &query.request_id)
            .or_else(|| global_key(GlobalKey::TraceId, &query.trace_id))
            .or_else(|| Some(names.of(only?, NameKind::Session, query.session.as_deref()?)))
            .map(Way::Named)
            .or_else(|| query.is_of_open().then_some(Way::Open))
            .or_else(|| global_key(GlobalKey::Fault, &query.fault).map(Way::Named))
            .or_else(|| only.map(|tenant| Way::Named(names.tenant(tenant))))
            .unwrap_or(Way::All);
        let tenants = query.tenants.as_ref();
        let tenants =
            tenants.map(|tenants| tenants.iter().map(|tenant| names.tenant(tenant)).collect());
        Self { way, tenants }
    }

    /// Whether the record may match, so that it has to be read.
    fn lets_through(&self, query: &Query, stream: &Stream) -> bool {
        self.tenants.as_ref().is_none_or(|tenants| tenants.contains(&stream.tenant))
            && query.status.is_none_or(|status| status.state() == stream.state)
    }

    /// The next streams, and whether their records have to be read.
    fn window(
        &self,
        index: &Index,
        query: &Query,
        before: Option<Uuid>,
        room: usize,
    ) -> Vec<(Uuid, bool)> {
        let Some(range) = query.range(before) else { return Vec::new() };
        let entry = |id: &Uuid| {
            let stream = index.streams.get(id)?;
            Some((*id, self.lets_through(query, stream)))
        };
        let room = room.min(WINDOW);
        match self.way {
            Way::All => index
                .streams
                .range(range)
                .rev()
                .filter_map(|(id, _)| entry(id))
                .take(room)
                .collect(),
            Way::Open => index.open.range(range).rev().filter_map(entry).take(room).collect(),
            Way::Named(name) => {
                let range = (range.0.map(|id| (name, id)), range.1.map(|id| (name, id)));
                let named = index.names.range(range).rev();
                named.filter_map(|(_, id)| entry(id)).take(room).collect()
            }
        }
    }
}

pub(crate) fn page(shared: &Shared, query: &Query) -> Result<RunPage, JournalError> {
    let (sieve, mut pager) = (Prefilter::new(shared, query), Pager::new(query));
    loop {
        let window = sieve.window(&shared.index(), query, pager.last(), pager.room());
        if window.is_empty() {
            let is_end = pager.goes_on();
            return Ok(pager.page(is_end));
        }
        for (stream, is_worth_it) in window {
            if !pager.goes_on() {
                return Ok(pager.page(false));
            }
            let run = if is_worth_it { whole(shared, stream)? } else { None };
            pager.looked(stream, run.filter(|run| query.matches(run)));
        }
    }
}

/// A run, unless it was deleted meanwhile. A damaged one was counted and reported, and the others
/// can still be listed.
fn whole(shared: &Shared, stream: Uuid) -> Result<Option<Run>, JournalError> {
    match view::run(shared, stream) {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        run => run,
    }
}

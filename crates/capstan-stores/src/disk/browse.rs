//! Looking through runs of several tenants, newest first.

use std::collections::HashSet;

use capstan_journal::backend::Pager;
use capstan_journal::{ErrorKind, JournalError, NameKind, Query, Run, RunPage};
use uuid::Uuid;

use super::index::{Index, Stream};
use super::names::{Clue, Name};
use super::shared::Shared;
use super::view;

/// Places that are looked up at once, so that nobody waits long for the index.
const WINDOW: usize = 128;

/// What the index itself can tell of a query.
struct Sieve {
    way: Way,
    tenants: Option<HashSet<Name>>,
}

/// Along what the streams are met: all that is wanted lies there.
#[derive(Clone, Copy)]
enum Way {
    All,
    Open,
    Named(Name),
    /// A name by which some are not found: those that are clueless are met as well.
    Clue(Name),
}

impl Sieve {
    fn new(shared: &Shared, query: &Query) -> Self {
        let names = &shared.names;
        let only = query.tenants.as_ref().and_then(|tenants| match tenants.as_slice() {
            [one] => Some(one.as_str()),
            _ => None,
        });
        let clue = |clue, word: &Option<String>| word.as_deref().map(|word| names.clue(clue, word));
        // The rarest first.
        let way = clue(Clue::RequestId, &query.request_id)
            .or_else(|| clue(Clue::TraceId, &query.trace_id))
            .map(Way::Clue)
            .or_else(|| {
                Some(Way::Named(names.of(only?, NameKind::Session, query.session.as_deref()?)))
            })
            .or_else(|| query.is_of_open().then_some(Way::Open))
            .or_else(|| clue(Clue::Fault, &query.fault).map(Way::Clue))
            .or_else(|| only.map(|tenant| Way::Named(names.tenant(tenant))))
            .unwrap_or(Way::All);
        let tenants = query.tenants.as_ref();
        let tenants =
            tenants.map(|tenants| tenants.iter().map(|tenant| names.tenant(tenant)).collect());
        Self { way, tenants }
    }

    /// Whether the record is worth a look.
    fn lets_through(&self, query: &Query, stream: &Stream) -> bool {
        self.tenants.as_ref().is_none_or(|tenants| tenants.contains(&stream.tenant))
            && query.status.is_none_or(|status| status.state() == stream.state)
    }

    /// The next streams, and whether each is worth a look.
    fn window(
        &self,
        index: &Index,
        query: &Query,
        before: Option<Uuid>,
        room: usize,
    ) -> Vec<(Uuid, bool)> {
        let Some(range) = query.range(before) else { return Vec::new() };
        let told = |id: &Uuid| {
            let stream = index.streams.get(id)?;
            Some((*id, self.lets_through(query, stream)))
        };
        let room = room.min(WINDOW);
        let named = |name: Name| {
            let range = (range.0.map(|id| (name, id)), range.1.map(|id| (name, id)));
            index.names.range(range).rev().map(|(_, id)| id)
        };
        match self.way {
            Way::All => {
                index.streams.range(range).rev().filter_map(|(id, _)| told(id)).take(room).collect()
            }
            Way::Open => index.open.range(range).rev().filter_map(told).take(room).collect(),
            Way::Named(name) => named(name).filter_map(told).take(room).collect(),
            Way::Clue(name) => {
                let clueless = index.clueless.range(range).rev();
                newest(named(name), clueless).filter_map(told).take(room).collect()
            }
        }
    }
}

/// Two that are sorted, the newest first, as one.
fn newest<'a>(
    some: impl Iterator<Item = &'a Uuid>,
    others: impl Iterator<Item = &'a Uuid>,
) -> impl Iterator<Item = &'a Uuid> {
    let (mut some, mut others) = (some.peekable(), others.peekable());
    std::iter::from_fn(move || match (some.peek(), others.peek()) {
        (Some(one), Some(other)) if one < other => others.next(),
        (None, _) => others.next(),
        (Some(_), _) => some.next(),
    })
}

pub(crate) fn page(shared: &Shared, query: &Query) -> Result<RunPage, JournalError> {
    let (sieve, mut pager) = (Sieve::new(shared, query), Pager::new(query));
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

/// A run, unless it went meanwhile. One that is damaged was counted and said; the others can be
/// listed all the same.
fn whole(shared: &Shared, stream: Uuid) -> Result<Option<Run>, JournalError> {
    match view::run(shared, stream) {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        run => run,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use capstan_protocol::Timestamp;
    use serde_json::Map;

    use super::super::footer::Entry;
    use super::super::format::Kind;
    use super::super::names::Names;
    use super::super::record::{Record, split_summary};
    use super::*;
    use capstan_journal::Claim;

    const NAMES: Names = Names { salt: [3; 16] };

    /// Takes in a record of a run that failed; as a build writes it that knows no clues, or as this
    /// one does.
    fn admit(index: &mut Index, stream: Uuid, revision: u64, has_clues: bool) {
        let mut run = Claim::new("t", stream.to_string(), stream, Timestamp::now()).to_run();
        run.fault = Some("timeout".into());
        let (session_id, more) = (Uuid::nil(), Map::new());
        let record = Record {
            run,
            body_bytes: 0,
            boot: None,
            session_id,
            turn: 0,
            answers: None,
            revision,
            more,
        };
        let (summary, _) = record.encode(&NAMES).unwrap();
        let mut summary = split_summary(&summary).unwrap().0.to_vec();
        if !has_clues {
            // The mark, and the one clue: its name is the last.
            summary.truncate(summary.len() - 1 - size_of::<Name>());
            summary[1] -= 1;
        }
        let entry =
            Entry { kind: Kind::Record, owner: stream, seq: revision, offset: 0, length: 0 };
        index.admit(1, &entry, &summary);
    }

    #[test]
    fn what_an_older_build_wrote_is_found_in_its_place_until_it_changes_and_then_once() {
        let ids: Vec<_> = (1..=4_u128).map(|n| Uuid::from_u128(n << 80)).collect();
        let mut index = Index::default();
        for (id, has_clues) in ids.iter().zip([false, true, false, true]) {
            admit(&mut index, *id, 1, has_clues);
        }
        let query = Query { fault: Some("timeout".into()), limit: 9, ..Query::default() };
        let sieve = Sieve { way: Way::Clue(NAMES.clue(Clue::Fault, "timeout")), tenants: None };
        let found = |index: &Index, before| {
            sieve.window(index, &query, before, 9).into_iter().map(|(id, _)| id).collect::<Vec<_>>()
        };
        let newest_first = [ids[3], ids[2], ids[1], ids[0]];
        assert_eq!(found(&index, None), newest_first);
        assert_eq!(found(&index, Some(ids[2])), newest_first[2..]);
        ids.iter().for_each(|id| admit(&mut index, *id, 2, true));
        assert_eq!(found(&index, None), newest_first);
        assert!(index.clueless.is_empty());
    }
}

//! The move itself. The old store is only read; the new one is made beside it, and the format file
//! says which counts. Killed before that is replaced, the move starts again.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use capstan_journal::backend::failpoint::{self, Point};
use capstan_journal::{Frame, JournalError, NameKind, Run, StoredTurn};
use serde_json::Map;
use uuid::Uuid;

use super::old::OldStore;
use super::remove;
use crate::disk::files::Files;
use crate::disk::folder::Folder;
use crate::disk::format::Kind;
use crate::disk::group::Group;
use crate::disk::index::Index;
use crate::disk::names::{Name, Names};
use crate::disk::record::{GoneSummary, Record, SessionSummary, json, number_summary};
use crate::disk::segment::Segment;
use crate::disk::shared::{CLEANED, MB, Opened, Settings, Shared, io_failure};
use crate::disk::{keeper, packets};

const GROUP_BYTES: usize = 4 * 1024 * 1024;

/// Everything of the older store in the new one, which counts from then on.
pub(super) fn carry(
    folder: &Folder,
    path: &Path,
    files: &Arc<dyn Files>,
    settings: Settings,
) -> Result<(), JournalError> {
    let store = path.join("store");
    check_room(&store, path, &**files)?;
    tracing::info!(folder = %path.display(), "moving the journal to a new format");
    remove(&path.join("log"))?;
    let fail = |error| io_failure("write to", path, error);
    let manifest = folder.begin_files(&**files).map_err(fail)?;
    let opened = Opened {
        index: Index::default(),
        names: Names { salt: manifest.salt },
        next_segment: 1,
        next_cleaned: CLEANED,
        last_group: 0,
    };
    {
        let shared = Shared::new(files.clone(), path, None, settings, opened);
        let old = OldStore::open(&store)?;
        Mover { shared, group: Group::new(), number: 0, segment: None, sessions: HashMap::new() }
            .run(&old)?;
    }
    failpoint::hit(Point::BeforeMove);
    // This is the moment.
    folder.write_format().map_err(fail)?;
    failpoint::hit(Point::AfterMove);
    Ok(())
}

/// The new store takes at most what the old one does.
fn check_room(store: &Path, path: &Path, files: &dyn Files) -> Result<(), JournalError> {
    let fail = |error| io_failure("read", store, error);
    let (needed, free) = (size_of(store).map_err(fail)?, files.free_bytes(path).map_err(fail)?);
    if free >= needed {
        return Ok(());
    }
    let message = format!(
        "moving the journal {} to the new format takes up to {} MB, and {} MB are free; nothing \
         was changed",
        path.display(),
        needed / MB,
        free / MB
    );
    Err(JournalError::new(capstan_journal::ErrorKind::Full, message))
}

fn size_of(folder: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let data = entry.metadata()?;
        sum += if data.is_dir() { size_of(&entry.path())? } else { data.len() };
    }
    Ok(sum)
}

struct Mover {
    shared: Shared,
    group: Group,
    number: u64,
    segment: Option<Arc<Segment>>,
    sessions: HashMap<(String, String), (Uuid, Vec<StoredTurn>)>,
}

impl Mover {
    fn run(mut self, old: &OldStore) -> Result<(), JournalError> {
        for (tenant, session, turn) in old.turns()? {
            let used_at = turn.closed_at;
            let (id, turns) =
                self.sessions.entry((tenant.clone(), session.clone())).or_insert_with(|| {
                    let id = Uuid::now_v7();
                    put_session(&self.shared, &mut self.group, id, &tenant, &session, used_at);
                    (id, Vec::new())
                });
            let turn = StoredTurn { number: turns.len() as u64 + 1, ..turn };
            let used_at = number_summary(used_at.as_micros().cast_unsigned());
            self.group.put(Kind::Turn, *id, turn.number, &[&used_at, &json(&turn)?]);
            turns.push(turn);
            self.flush(GROUP_BYTES)?;
        }
        for run in old.runs() {
            let mut run = run?;
            let (mut body, mut frames) = (None, Vec::new());
            for block in old.blocks(run.run.stream_id) {
                let mut block = block?;
                if block.first().is_some_and(|frame| frame.seq == 0) {
                    body = block.pop();
                } else {
                    frames.extend(block);
                }
            }
            run.count(&frames);
            self.put_run(run.run, run.boot, body, &frames)?;
        }
        for claim in old.gone() {
            let claim = claim?;
            let names = &self.shared.names;
            let key = names.of(&claim.tenant, NameKind::Key, &claim.key);
            self.put_gone(claim.stream, claim.gone_at, key, &claim.tenant);
            self.flush(GROUP_BYTES)?;
        }
        self.flush(0)?;
        self.finish().map_err(|error| io_failure("write to", &self.shared.folder, error))
    }

    fn put_run(
        &mut self,
        mut run: Run,
        boot: Option<String>,
        body: Option<Frame>,
        frames: &[Frame],
    ) -> Result<(), JournalError> {
        let name = (run.tenant.clone(), run.session.clone());
        let (id, turns) = self.sessions.entry(name).or_insert_with(|| {
            let id = Uuid::now_v7();
            put_session(
                &self.shared,
                &mut self.group,
                id,
                &run.tenant,
                &run.session,
                run.created_at,
            );
            (id, Vec::new())
        });
        let before = turns.iter().filter(|turn| turn.closed_at <= run.created_at);
        run.turns_before = before.map(|turn| turn.number).max().unwrap_or(0);
        let own = turns.iter().find(|turn| turn.stream_id == run.stream_id);
        let body = body.map(|body| body.bytes).unwrap_or_default();
        let stream = run.stream_id;
        let record = Record {
            run,
            body_bytes: body.len() as u64,
            boot,
            session_id: *id,
            turn: own.map_or(0, |turn| turn.number),
            answers: None,
            revision: 1,
            more: Map::new(),
        };
        let (summary, json) = record.encode(&self.shared.names)?;
        self.group.put(Kind::Record, stream, 1, &[&summary, &json]);
        self.group.put(Kind::Body, stream, 1, &[&body]);
        let (mut total, mut rest) = (0, frames);
        // The one gap of a stream lies between blocks.
        while let Some(first) = rest.first() {
            let run =
                rest.iter().zip(first.seq..).take_while(|(frame, seq)| frame.seq == *seq).count();
            let (some, after) = rest.split_at(run);
            for block in packets::blocks(some) {
                let Some(last) = block.last() else { continue };
                total += block.iter().map(|frame| frame.bytes.len() as u64).sum::<u64>();
                self.group.put_with(Kind::Packets, stream, last.seq, |out| {
                    packets::encode(stream, total, block, out);
                });
            }
            rest = after;
        }
        self.flush(GROUP_BYTES)
    }

    fn put_gone(&mut self, stream: Uuid, at: capstan_protocol::Timestamp, key: Name, tenant: &str) {
        let tenant = self.shared.names.tenant(tenant);
        // What was purged goes with the old store.
        let gone = GoneSummary { at, is_purged: false, claim: Some(key), tenant };
        self.group.put(Kind::Gone, stream, 1, &[&gone.encode()]);
    }

    fn flush(&mut self, above: usize) -> Result<(), JournalError> {
        if self.group.is_empty() || self.group.size() < above {
            return Ok(());
        }
        self.write().map_err(|error| io_failure("write to", &self.shared.folder, error))
    }

    fn write(&mut self) -> io::Result<()> {
        self.number += 1;
        let mut group = std::mem::replace(&mut self.group, Group::new());
        group.seal(self.number, 0);
        let full = self.shared.settings.segment_bytes;
        let fits = |segment: &&Arc<Segment>| segment.size() + group.size() as u64 <= full;
        let segment = match self.segment.as_ref().filter(fits) {
            Some(segment) => segment.clone(),
            None => {
                self.seal()?;
                self.segment.insert(self.shared.begin_segment(self.number)?).clone()
            }
        };
        let offset = u32::try_from(segment.size()).map_err(io::Error::other)?;
        segment.file()?.write_at(group.bytes(), offset.into())?;
        segment.push(group.entries_at(offset).map(|(entry, _)| entry));
        segment.set_size(u64::from(offset) + group.size() as u64);
        segment.set_last_group(self.number);
        Ok(())
    }

    fn seal(&mut self) -> io::Result<()> {
        self.segment.take().map_or(Ok(()), |segment| keeper::seal(&segment))
    }

    fn finish(&mut self) -> io::Result<()> {
        self.seal()?;
        self.shared.drop_spare();
        self.shared.files.sync_folder(&self.shared.folder.join("log"))?;
        self.shared.written.store(self.number, std::sync::atomic::Ordering::Relaxed);
        self.shared.log.are_synced(self.number);
        self.shared.save_manifest()
    }
}

fn put_session(
    shared: &Shared,
    group: &mut Group,
    id: Uuid,
    tenant: &str,
    session: &str,
    used_at: capstan_protocol::Timestamp,
) {
    let name = shared.names.of(tenant, NameKind::Session, session);
    let summary = SessionSummary { name, tenant: shared.names.tenant(tenant), used_at };
    group.put(Kind::Session, id, 1, &[&summary.encode()]);
}

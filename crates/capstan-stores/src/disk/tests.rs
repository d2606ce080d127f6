//! Tests of the disk store with a disk that fails, loses data and flips bits. Segments are tiny, so
//! that a few runs make many of them.

mod at_once;
mod compaction;
mod damage;
mod faults;
mod power;
mod purge;
mod recorder;
mod tokens;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use capstan_journal::{
    Catalog, Claim, Frame, Quota, Records, Run, RunState, Sessions, Store, StoredTurn, Transition,
    TurnRange,
};
use capstan_protocol::{Payload, StreamPacket, Timestamp, sse};
use serde_json::json;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::DiskStore;
use super::files::{Files, SystemFiles};
use super::record;
use super::shared::Settings;
use super::task::Task;
use crate::Durability;

const BOOT: [u8; 16] = [1; 16];

fn settings(durability: Durability) -> Settings {
    Settings {
        segment_bytes: 16 * 1024,
        slack_bytes: 24 * 1024,
        boot: BOOT,
        retry_ms: 1,
        ..Settings::new(durability)
    }
}

fn open(folder: &Path, durability: Durability) -> DiskStore {
    open_on(folder, durability, Arc::new(SystemFiles))
}

fn open_on(folder: &Path, durability: Durability, files: Arc<dyn Files>) -> DiskStore {
    DiskStore::open_with(folder, settings(durability), files).unwrap()
}

impl DiskStore {
    /// Waits until the compactor has nothing more to do.
    async fn maintain(&self) {
        // Sealing may wait for a sync that the first round starts.
        for _ in 0..3 {
            let (reply, answer) = oneshot::channel();
            self.tasks.send(Task::Save(reply)).unwrap();
            let _ = answer.await.unwrap();
            self.shared.log.want_all();
        }
    }
}

/// The number of seeds of the long tests; `make soak` uses more.
fn seeds() -> u64 {
    std::env::var("CAPSTAN_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(50)
}

/// A random generator with a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The text of a stream's packets. Ids do not contain its letters, so a search of the disk is
/// certain.
fn word(stream: Uuid) -> String {
    let letter = |digit: u8| char::from(b'g' + digit);
    stream.as_bytes().iter().flat_map(|byte| [byte >> 4, byte & 15]).map(letter).collect()
}

fn frame(stream: Uuid, seq: u64) -> Frame {
    packet(stream, seq, format!("{} {}", word(stream), "x".repeat((seq * 37 % 200) as usize)))
}

/// A packet in the gateway's form.
fn packet(stream_id: Uuid, seq: u64, text: String) -> Frame {
    let (t, payload) = (Timestamp::from_micros(1_795_000_000_000_001), Payload::Delta(text));
    let mut bytes = Vec::new();
    sse::encode_packet(&StreamPacket { stream_id, seq, t, payload }, &mut bytes);
    Frame::new(seq, bytes)
}

fn frames(stream: Uuid, first: u64, last: u64) -> Vec<Frame> {
    (first..=last).map(|seq| frame(stream, seq)).collect()
}

fn claim(stream: Uuid) -> Claim {
    let mut claim = Claim::new("t", format!("key {stream}"), stream, Timestamp::now());
    claim.session = "session".into();
    claim.body = Bytes::from(format!("body of {stream}"));
    claim
}

fn closed(run: &Run) -> Run {
    Run { state: RunState::Closed, updated_at: Timestamp::now(), tokens: 7, ..run.clone() }
}

fn turn(stream: Uuid) -> StoredTurn {
    StoredTurn::new(
        stream,
        Timestamp::now(),
        1,
        json!({"assistant": format!("answer of {stream}")}),
    )
}

/// The acknowledged writes of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Acknowledged {
    last: u64,
    is_closed: bool,
    is_purged: bool,
}

type All = BTreeMap<Uuid, Acknowledged>;

/// Executes a complete run. Reports each step when it is acknowledged.
async fn run_once(
    store: &DiskStore,
    packets: u64,
    mut report: impl FnMut(Uuid, Acknowledged),
) -> Result<Uuid, capstan_journal::JournalError> {
    let id = Uuid::now_v7();
    let run = store.claim(claim(id), &Quota::UNLIMITED).await?.run;
    let mut now = Acknowledged::default();
    report(id, now);
    while now.last < packets {
        let some = (1 + now.last % 4).min(packets - now.last);
        store.append(id, 1, frames(id, now.last + 1, now.last + some)).await?;
        now.last += some;
        report(id, now);
    }
    assert!(
        store
            .transition(Transition::new(
                (RunState::Running, 1),
                closed(&run),
                vec![],
                Some(turn(id))
            ))
            .await?
    );
    now.is_closed = true;
    report(id, now);
    Ok(id)
}

/// Checks that all acknowledged data is there and intact, and nothing else.
async fn assert_kept(store: &DiskStore, all: &All) {
    for (&id, known) in all {
        if known.is_purged {
            assert_eq!(store.run(id).await.unwrap(), None);
            assert!(
                !store
                    .claim(claim(id), &Quota::UNLIMITED)
                    .await
                    .is_ok_and(|claimed| claimed.is_new)
            );
            continue;
        }
        let run = store.run(id).await.unwrap().unwrap_or_else(|| panic!("{id} is gone, {known:?}"));
        assert!(run.last_seq >= known.last, "{id} ends at {}, {known:?}", run.last_seq);
        assert_eq!(run.state == RunState::Closed, known.is_closed || run.state == RunState::Closed);
        let found = store.read(id, 0, usize::MAX, usize::MAX).await.unwrap();
        assert_eq!(found, frames(id, 1, run.last_seq), "{id}");
        assert_eq!(run.bytes, found.iter().map(|frame| frame.bytes.len() as u64).sum::<u64>());
        assert_eq!(store.body(id).await.unwrap().unwrap(), claim(id).body);
        assert!(!store.claim(claim(id), &Quota::UNLIMITED).await.unwrap().is_new, "{id} runs once");
    }
    let turns = store.turns(TurnRange::all("t", "session")).await.unwrap();
    assert!(turns.windows(2).all(|pair| pair[0].number < pair[1].number));
    assert_eq!(store.turn_count("t", "session").await.unwrap(), turns.len() as u64);
    // The usage for quotas agrees.
    let usage = store.usage("t", "session").await.unwrap();
    let open = store.open_runs().await.unwrap().len() as u64;
    let lengths = turns.iter().map(|turn| record::json(turn).unwrap().len() as u64 + 10);
    assert_eq!(usage.messages, turns.len() as u64 + open);
    assert_eq!(
        usage.session_bytes,
        lengths.sum::<u64>() + open * claim(Uuid::nil()).body.len() as u64
    );
    for (id, _) in all.iter().filter(|(_, known)| known.is_closed) {
        let is_there = turns.iter().any(|turn| turn.stream_id == *id);
        assert_eq!(is_there, !all[id].is_purged, "the turn of {id}");
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

fn all_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(path) = folders.pop() {
        match path.is_dir() {
            true => {
                folders.extend(std::fs::read_dir(path).unwrap().flatten().map(|entry| entry.path()))
            }
            false => found.push(path),
        }
    }
    found.sort();
    found
}

fn holds(folder: &Path, word: &str) -> bool {
    let holds = |file: &std::path::PathBuf| {
        // The compactor may have removed it meanwhile.
        let bytes = std::fs::read(file).unwrap_or_default();
        memchr::memmem::find(&bytes, word.as_bytes()).is_some()
    };
    all_files(folder).iter().any(holds)
}

fn disk_size(folder: &Path) -> u64 {
    all_files(folder).iter().filter_map(|file| Some(std::fs::metadata(file).ok()?.len())).sum()
}

async fn is_certain_after(durability: Durability, state: RunState, boot: [u8; 16]) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let id = Uuid::now_v7();
    {
        let store = open(folder.path(), durability);
        let run = store.claim(claim(id), &Quota::UNLIMITED).await.unwrap().run;
        store.append(id, 1, frames(id, 1, 1)).await.unwrap();
        let to = Run { state, ..run };
        assert!(
            store
                .transition(Transition::new((RunState::Running, 1), to, vec![], None))
                .await
                .unwrap()
        );
    }
    let settings = Settings { boot, ..settings(durability) };
    let store = DiskStore::open_with(folder.path(), settings, Arc::new(SystemFiles)).unwrap();
    store.is_tail_certain(id).await.unwrap()
}

#[tokio::test]
async fn only_a_reboot_makes_an_unsynced_tail_uncertain() {
    for (durability, state, boot, is_certain) in [
        (Durability::Process, RunState::Running, BOOT, true),
        (Durability::Process, RunState::Running, [2; 16], false),
        (Durability::Process, RunState::Waiting, [2; 16], true),
        (Durability::Process, RunState::Closed, [2; 16], true),
        (Durability::Power, RunState::Running, [2; 16], true),
    ] {
        let found = is_certain_after(durability, state, boot).await;
        assert_eq!(found, is_certain, "{durability:?} {state:?} {boot:?}");
    }
}

//! Kills a process at random moments. Nothing acknowledged is missing, nothing is torn, and the
//! folder opens again.
//!
//! The child is this test binary, with only the test `child` and a folder in its environment.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use capstan_journal::{
    Claim, ErrorKind, Found, Frame, Journal, Quota, Retention, Run, RunState, Step, Store,
    TailLimits, Transition,
};
use capstan_protocol::{Payload, StreamPacket, Timestamp, sse};
use capstan_stores::{Durability, open};
use uuid::Uuid;

const FOLDER: &str = "CAPSTAN_TEST_FOLDER";
const FRAMES_PER_STREAM: u64 = 60;

fn frame(stream: Uuid, seq: u64) -> Frame {
    let (t, payload) =
        (Timestamp::from_micros(0), Payload::Delta("x".repeat((seq * 37 % 400) as usize)));
    let mut bytes = Vec::new();
    sse::encode_packet(&StreamPacket { stream_id: stream, seq, t, payload }, &mut bytes);
    Frame::new(seq, bytes)
}

fn open_folder(folder: &Path) -> Arc<dyn Store> {
    open(&format!("disk:{}", folder.display()), Durability::Process).unwrap()
}

/// Not a real test: the code of the killed process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let journal = Journal::new(open_folder(Path::new(&folder)), TailLimits::default());
    println!("open");
    let writers: Vec<_> = (0..4).map(|_| tokio::spawn(write_streams(journal.clone()))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

/// Writes streams in an endless loop: claims, reads, writes, closes, and sometimes expires them.
async fn write_streams(journal: Journal) {
    for round in 1.. {
        let id = Uuid::now_v7();
        let claim = Claim::new("local", id.to_string(), id, Timestamp::now());
        let run = journal.claim(claim, &Quota::UNLIMITED).await.unwrap().run;
        println!("claimed {id} 0");
        let viewer = tokio::spawn(view(journal.clone(), id));
        let mut seq = 0;
        while seq + 3 < FRAMES_PER_STREAM {
            let frames: Vec<_> = (seq + 1..=seq + 1 + seq % 3).map(|seq| frame(id, seq)).collect();
            seq += frames.len() as u64;
            journal.append(id, 1, frames).await.unwrap();
            println!("stored {id} {seq}");
        }
        let to = Run { state: RunState::Closed, ..run };
        assert!(
            journal
                .transition((RunState::Running, 1), to, vec![frame(id, seq + 1)], None)
                .await
                .unwrap()
        );
        println!("closed {id} {}", seq + 1);
        viewer.await.unwrap();
        if round % 3 == 0 {
            assert!(journal.purge(id, Timestamp::now()).await.unwrap());
            println!("purged {id} 0");
        }
        if round % 5 == 0 {
            let retention = Retention { max_bytes: Some(200_000), ..Retention::default() };
            journal.store().expire(&retention, Timestamp::now()).await.unwrap();
        }
    }
}

async fn view(journal: Journal, id: Uuid) {
    let mut reader = journal.reader(id, 0);
    while let Step::Frames(_) = reader.next().await.unwrap() {
        println!("seen {id} {}", reader.cursor());
    }
}

/// A running child, killed when the test is over.
struct Writer {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Writer {
    fn start(folder: &Path, failpoint: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child", "--nocapture", "--test-threads=1"])
            .env(FOLDER, folder)
            .env("CAPSTAN_FAILPOINT", failpoint)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next acknowledgement of the child; `None` when it is dead.
    fn next(&mut self) -> Option<(String, Option<(Uuid, u64)>)> {
        loop {
            let line = self.lines.next()?.unwrap();
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                [what @ ("claimed" | "stored" | "closed" | "seen" | "purged"), id, seq] => {
                    // The kill may have cut the last line.
                    let (Ok(id), Ok(seq)) = (id.parse(), seq.parse()) else { continue };
                    return Some((what.into(), Some((id, seq))));
                }
                _ if line.ends_with("open") => return Some(("open".into(), None)),
                _ => {}
            }
        }
    }

    fn wait_open(&mut self) {
        while self.next().unwrap().0 != "open" {}
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// For each stream the last acknowledged `seq`, and whether its end and its purge were
/// acknowledged.
type Acknowledged = HashMap<Uuid, (u64, bool, bool)>;

fn note(acknowledged: &mut Acknowledged, what: &str, id: Uuid, seq: u64) {
    let (last, is_closed, is_purged) = acknowledged.entry(id).or_default();
    *last = seq.max(*last);
    *is_closed |= what == "closed";
    *is_purged |= what == "purged";
}

/// Whether any file of the folder contains a text.
fn holds(folder: &Path, word: &str) -> bool {
    let mut paths = vec![folder.to_owned()];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if memchr::memmem::find(&std::fs::read(&path).unwrap_or_default(), word.as_bytes())
            .is_some()
        {
            return true;
        }
    }
    false
}

/// Checks that no file contains purged text. A closed store has finished the erasures of an earlier
/// process.
async fn assert_erased(store: Arc<dyn Store>, folder: &Path, acknowledged: &Acknowledged) {
    store.close().await.unwrap();
    drop(store);
    for (id, _) in acknowledged.iter().filter(|(_, (.., is_purged))| *is_purged) {
        assert!(!holds(folder, &format!("id: {id}")), "{id} was purged");
    }
}

/// Runs a child, kills it after `count` acknowledgements, and returns them.
fn kill_after(folder: &Path, count: usize) -> Acknowledged {
    let mut writer = Writer::start(folder, "");
    let mut acknowledged = Acknowledged::new();
    for _ in 0..count {
        if let Some((what, Some((id, seq)))) = writer.next() {
            note(&mut acknowledged, &what, id, seq);
        }
    }
    writer.child.kill().unwrap();
    // Lines that the child wrote before its death are acknowledgements too.
    while let Some((what, place)) = writer.next() {
        if let Some((id, seq)) = place {
            note(&mut acknowledged, &what, id, seq);
        }
    }
    acknowledged
}

async fn verify(store: &Arc<dyn Store>, acknowledged: &Acknowledged) {
    for (&id, &(last, is_closed, _)) in acknowledged {
        let run = match store.find("local", &id.to_string()).await.unwrap() {
            Some(Found::Run(run)) => run,
            Some(Found::Expired) if is_closed => continue,
            other => panic!("{id} was claimed, but there is {other:?}"),
        };
        let frames = store.read(id, 0, usize::MAX, usize::MAX).await.unwrap();
        let expected: Vec<_> = (1..=run.last_seq).map(|seq| frame(id, seq)).collect();
        assert!(frames == expected, "{id} is torn");
        assert!(run.last_seq >= last, "{id}: {last} was acknowledged, {} is there", run.last_seq);
        assert_eq!(run.bytes, frames.iter().map(|frame| frame.bytes.len() as u64).sum::<u64>());
        assert!(!is_closed || run.state == RunState::Closed);
    }
}

/// Ends the runs that a crash left open, as recovery does.
async fn recover(store: &Arc<dyn Store>) {
    for run in store.open_runs().await.unwrap() {
        let (id, from, seq) = (run.stream_id, (run.state, run.attempt), run.last_seq + 1);
        let to = Run { state: RunState::Closed, ..run };
        assert!(
            store.transition(Transition::new(from, to, vec![frame(id, seq)], None)).await.unwrap()
        );
    }
    assert!(store.open_runs().await.unwrap().is_empty());
}

#[tokio::test]
async fn kill_9_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut streams = 0;
    for round in 0..20 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Some children die while they open the folder, others later.
        let count = if round % 4 == 0 { random % 3 } else { random % 1500 };
        let acknowledged = kill_after(folder.path(), count as usize);
        let store = open_folder(folder.path());
        verify(&store, &acknowledged).await;
        streams += acknowledged.len();
        if round % 2 == 0 {
            recover(&store).await;
        }
        assert_erased(store, folder.path(), &acknowledged).await;
    }
    assert!(streams > 50, "only {streams} streams were written: this proves nothing");
}

#[tokio::test]
async fn second_process_is_refused_with_the_holder() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::start(folder.path(), "");
    writer.wait_open();
    let url = format!("disk:{}", folder.path().display());
    let error = open(&url, Durability::Process).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.to_string().contains(&format!("process {}", writer.child.id())), "{error}");
    assert!(error.to_string().contains(&folder.path().display().to_string()), "{error}");
    drop(writer);
    open_folder(folder.path());
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn crash_at_a_failpoint_keeps_earlier_writes() {
    for failpoint in
        ["after_claim", "after_claim:3", "after_append:1", "after_append:40", "before_wake:7"]
    {
        let folder = tempfile::tempdir().unwrap();
        let (store, acknowledged) = die_at(folder.path(), failpoint).await;
        let open = store.open_runs().await.unwrap();
        let is_unheard = |run: &&Run| {
            acknowledged.get(&run.stream_id).is_none_or(|(last, ..)| *last < run.last_seq)
        };
        assert!(
            open.iter().find(is_unheard).is_some(),
            "{failpoint}: stored, but not acknowledged"
        );
        for run in open {
            let again = Claim::new("local", run.key, Uuid::now_v7(), Timestamp::now());
            assert!(!store.claim(again, &Quota::UNLIMITED).await.unwrap().is_new);
        }
    }
}

/// Runs a child until a failpoint, and opens its folder, which must have everything acknowledged.
#[cfg(debug_assertions)]
async fn die_at(folder: &Path, failpoint: &str) -> (Arc<dyn Store>, Acknowledged) {
    let mut writer = Writer::start(folder, failpoint);
    let mut acknowledged = Acknowledged::new();
    while let Some((what, place)) = writer.next() {
        if let Some((id, seq)) = place {
            note(&mut acknowledged, &what, id, seq);
        }
    }
    assert!(!writer.child.wait().unwrap().success(), "{failpoint}");
    let store = open_folder(folder);
    verify(&store, &acknowledged).await;
    (store, acknowledged)
}

/// Failpoints before and after each write, sync, rename, unlink and swap.
#[cfg(debug_assertions)]
#[tokio::test]
async fn crash_during_compaction_loses_and_revives_nothing() {
    for point in [
        "before_write",
        "after_write",
        "after_sync",
        "before_seal",
        "after_seal",
        "before_rename",
        "after_swap",
        "before_unlink",
        "after_erase",
    ] {
        let folder = tempfile::tempdir().unwrap();
        for hit in [1, 2, 5] {
            let (store, acknowledged) = die_at(folder.path(), &format!("{point}:{hit}")).await;
            recover(&store).await;
            assert_erased(store, folder.path(), &acknowledged).await;
        }
    }
}

//! Two processes with one database: fencing, takeover and notifications.

mod blocks;
mod costs;
mod notifications;
#[cfg(debug_assertions)]
mod planted_bugs;

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::network::{Network, Weather};
use crate::postgres_server::{Database, Engine};
use capstan_journal::{
    Claim, Cluster, ErrorKind, Frame, Journal, Load, Over, Quota, Reader, Refused, RemoteReaders,
    Replica, Run, RunState, Standing, Step, Store, TailLimits, Transition,
};
use capstan_protocol::Timestamp;
use capstan_stores::{Durability, Options, connect, migrate};
use uuid::Uuid;

const UNLIMITED: Quota = Quota::UNLIMITED;

fn claim(key: &str) -> Claim {
    let claim = Claim::new("t", key, Uuid::now_v7(), Timestamp::now());
    Claim { session: "s".into(), max_attempts: 3, ..claim }
}

fn frames(first: u64, last: u64) -> Vec<Frame> {
    (first..=last)
        .map(|seq| {
            Frame::new(seq, format!("id: {seq}\ndata: {}\n\n", "x".repeat(seq as usize % 97)))
        })
        .collect()
}

fn moved(run: &Run, state: RunState, attempt: u32) -> Run {
    Run { state, attempt, updated_at: Timestamp::now(), ..run.clone() }
}

/// A replica with a short lease.
fn brief(name: &str) -> Replica {
    Replica { name: name.into(), lease: Duration::from_millis(500), ..Replica::default() }
}

/// A replica whose lease does not expire during a test.
fn lasting(name: &str) -> Replica {
    Replica { name: name.into(), lease: Duration::from_secs(600), ..Replica::default() }
}

/// Two stores on one database, whose leases do not expire during a test.
async fn two() -> (Database, Arc<dyn Store>, Arc<dyn Store>) {
    let database = Database::create();
    let (a, b) = (
        database.store(Durability::Process, lasting("a")).await,
        database.store(Durability::Process, lasting("b")).await,
    );
    (database, a, b)
}

fn cluster(store: &Arc<dyn Store>) -> &dyn Cluster {
    store.cluster().unwrap()
}

async fn begin(store: &Arc<dyn Store>, key: &str) -> Run {
    let claimed = store.claim(claim(key), &UNLIMITED).await.unwrap();
    assert!(claimed.is_new);
    claimed.run
}

/// Reads a stream until its state is returned.
async fn rest(reader: &mut Reader) -> (Vec<u8>, RunState) {
    let mut seen = Vec::new();
    loop {
        match reader.next().await.unwrap() {
            Step::Frames(some) => some.iter().for_each(|frame| seen.extend_from_slice(frame)),
            Step::State(state) => return (seen, state),
        }
    }
}

fn bytes(first: u64, last: u64) -> Vec<u8> {
    frames(first, last).iter().flat_map(|frame| frame.bytes.to_vec()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn concurrent_claims_of_a_key_start_one_run() {
    let (_database, a, b) = two().await;
    let race = |n: usize| {
        let store = if n.is_multiple_of(2) { a.clone() } else { b.clone() };
        tokio::spawn(async move {
            store.claim(claim(&format!("k{}", n / 4)), &UNLIMITED).await.unwrap()
        })
    };
    let tasks: Vec<_> = (0..400).map(race).collect();
    let (mut won, mut streams) = (0, HashSet::new());
    for task in tasks {
        let claimed = task.await.unwrap();
        won += usize::from(claimed.is_new);
        streams.insert((claimed.run.key.clone(), claimed.run.stream_id));
    }
    assert_eq!((won, streams.len()), (100, 100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn only_the_owner_of_a_run_writes_to_it() {
    let (_database, a, b) = two().await;
    let run = begin(&a, "k").await;
    let stream = run.stream_id;
    a.append(stream, 1, frames(1, 3)).await.unwrap();
    assert_eq!(b.append(stream, 1, frames(4, 4)).await.unwrap_err().kind(), ErrorKind::Fenced);
    let closed = moved(&run, RunState::Closed, 1);
    assert!(
        !b.transition(Transition::new((RunState::Running, 1), closed, frames(4, 4), None))
            .await
            .unwrap()
    );
    assert_eq!(b.orphans(9).await.unwrap(), [], "its owner lives");
    // Any process may continue a waiting run.
    let waiting = moved(&run, RunState::Waiting, 1);
    assert!(
        a.transition(Transition::new((RunState::Running, 1), waiting, frames(4, 4), None))
            .await
            .unwrap()
    );
    let armed = moved(&run, RunState::Running, 2);
    assert!(
        b.transition(Transition::new((RunState::Waiting, 1), armed, vec![], None)).await.unwrap()
    );
    assert_eq!(a.append(stream, 2, frames(5, 5)).await.unwrap_err().kind(), ErrorKind::Fenced);
    b.append(stream, 2, frames(5, 6)).await.unwrap();
    assert_eq!(a.read(stream, 0, 99, 9999).await.unwrap(), frames(1, 6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn fenced_process_cannot_write_and_loses_its_runs() {
    let (database, a, b) = two().await;
    let run = begin(&a, "k").await;
    let stream = run.stream_id;
    a.append(stream, 1, frames(1, 3)).await.unwrap();
    let mut lease_epoch = cluster(&a).lease_epoch();
    lease_epoch.mark_unchanged();
    database.sql("select capstan.end_lease(id) from capstan.replicas where name = 'a'");
    assert_eq!(a.append(stream, 1, frames(4, 4)).await.unwrap_err().kind(), ErrorKind::Fenced);
    let closed = moved(&run, RunState::Closed, 1);
    assert!(
        !a.transition(Transition::new((RunState::Running, 1), closed, frames(4, 4), None))
            .await
            .unwrap()
    );
    lease_epoch.changed().await.unwrap();
    let orphans = b.orphans(9).await.unwrap();
    assert_eq!(
        orphans.iter().map(|run| (run.stream_id, run.last_seq)).collect::<Vec<_>>(),
        [(stream, 3)]
    );
    assert_eq!(b.orphans(9).await.unwrap().len(), 1, "it is returned again until it has ended");
    assert!(b.is_tail_certain(stream).await.unwrap());
    let waiting = moved(&run, RunState::Waiting, 1);
    assert!(
        b.transition(Transition::new((RunState::Running, 1), waiting, frames(4, 4), None))
            .await
            .unwrap()
    );
    assert_eq!(b.orphans(9).await.unwrap(), []);
    assert_eq!(
        a.read(stream, 0, 99, 9999).await.unwrap(),
        frames(1, 4),
        "nothing was added after the fence"
    );
    // The fenced process continues under another lease.
    let next = begin(&a, "k2").await;
    a.append(next.stream_id, 1, frames(1, 1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn process_without_heartbeat_is_fenced() {
    let database = Database::create();
    let b = database.store(Durability::Process, brief("b")).await;
    let a = database.store(Durability::Process, brief("a")).await;
    let stream = begin(&a, "k").await.stream_id;
    a.append(stream, 1, frames(1, 2)).await.unwrap();
    // The process disappears, as after kill -9.
    drop(a);
    let orphans = loop {
        let orphans = b.orphans(9).await.unwrap();
        if !orphans.is_empty() {
            break orphans;
        }
    };
    assert_eq!((orphans[0].stream_id, orphans[0].last_seq), (stream, 2));
    let listed = cluster(&b).replicas().await.unwrap();
    let standings: Vec<_> =
        listed.iter().map(|one| (one.name.as_str(), one.standing, one.is_self, one.runs)).collect();
    assert_eq!(standings, [("b", Standing::Live, true, 1), ("a", Standing::Gone, false, 0)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn closed_process_gives_up_its_lease() {
    let (_database, a, b) = two().await;
    let stream = begin(&a, "k").await.stream_id;
    a.close().await.unwrap();
    assert_eq!(b.orphans(9).await.unwrap()[0].stream_id, stream);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn load_is_reported_with_heartbeats() {
    let (database, a, b) = two().await;
    // A live replica that has not reported its load.
    let silent = Uuid::now_v7();
    database.sql(&format!("select capstan.begin_lease('{silent}', null, 'silent', null, '0')"));
    assert_eq!(
        database.sql(&format!("select capstan.heartbeat('{silent}', false, null, null)")),
        "t"
    );
    let busy = Load { responses: 3, append_p95: Some(Duration::from_micros(2048)) };
    let idle = Load { responses: 0, append_p95: None };
    cluster(&a).set_load(busy);
    cluster(&b).set_load(idle);
    let reported = async || -> HashMap<String, Option<Load>> {
        let replicas = cluster(&b).replicas().await.unwrap();
        replicas.into_iter().map(|replica| (replica.name, replica.load)).collect()
    };
    let known = [("a", Some(busy)), ("b", Some(idle)), ("silent", None)];
    let known = known.map(|(name, load)| (name.to_owned(), load)).into();
    while reported().await != known {}
    a.close().await.unwrap();
    assert_eq!(reported().await["a"], None, "it has left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn stop_request_reaches_the_owner() {
    let (_database, a, b) = two().await;
    let run = begin(&a, "k").await;
    let mut stops = cluster(&a).stop_requests().unwrap();
    assert!(
        !cluster(&b).request_stop(run.stream_id, 2).await.unwrap(),
        "another attempt is running"
    );
    assert!(cluster(&b).request_stop(run.stream_id, 1).await.unwrap());
    assert_eq!(stops.recv().await, Some(run.stream_id));
    assert!(cluster(&a).has_stop_request(run.stream_id).await.unwrap());
    let closed = moved(&run, RunState::Closed, 1);
    assert!(
        a.transition(Transition::new((RunState::Running, 1), closed, vec![], None)).await.unwrap()
    );
    assert!(!cluster(&b).request_stop(run.stream_id, 1).await.unwrap(), "it has ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn claim_records_its_reader_at_once() {
    let (database, a, b) = two().await;
    for n in 0..20 {
        let reads = Claim { is_read: true, ..claim(&n.to_string()) };
        let stream = a.claim(reads, &UNLIMITED).await.unwrap().run.stream_id;
        // There is no moment in which the run has no reader.
        assert!(
            cluster(&b).remote_readers(stream, "t").await.unwrap().is_read,
            "the claiming process reads it"
        );
        cluster(&a).mark_read(stream, false);
        while !cluster(&b).take_unread(stream).await.unwrap() {}
    }
    // The process records its readers again under its next lease.
    let reads = Claim { is_read: true, ..claim("again") };
    let stream = a.claim(reads, &UNLIMITED).await.unwrap().run.stream_id;
    database.sql("update capstan.replicas set state = 3 where name = 'a'");
    while !cluster(&b).remote_readers(stream, "t").await.unwrap().is_read {}
    // A claim that attaches to a run, or has no reader, records none.
    let other = Claim { is_read: true, ..claim("again") };
    assert!(!b.claim(other, &UNLIMITED).await.unwrap().is_new);
    assert!(!cluster(&a).remote_readers(stream, "t").await.unwrap().is_read);
    let plain = begin(&b, "plain").await.stream_id;
    assert!(cluster(&a).take_unread(plain).await.unwrap(), "it has no reader");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn unread_run_is_taken_after_its_reader_died() {
    let database = Database::create();
    let b = database.store(Durability::Process, brief("b")).await;
    let a = database.store(Durability::Process, brief("a")).await;
    let reads = Claim { is_read: true, ..claim("k") };
    let stream = a.claim(reads, &UNLIMITED).await.unwrap().run.stream_id;
    assert!(!cluster(&b).take_unread(stream).await.unwrap(), "its reader's process is live");
    // The process disappears, as after kill -9.
    drop(a);
    assert!(
        cluster(&b).remote_readers(stream, "t").await.unwrap().is_read,
        "its lease has not ended"
    );
    assert!(cluster(&b).take_unread(stream).await.unwrap(), "its process sends no heartbeats");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn remote_readers_count_while_their_lease_lasts() {
    const LIVE: &str =
        "capstan.readers m join capstan.replicas p on p.id = m.replica and p.state < 3";
    let (database, a, b) = two().await;
    let stream = begin(&a, "k").await.stream_id;
    let remote = async || cluster(&b).remote_readers(stream, "t").await.unwrap();
    assert_eq!(remote().await, RemoteReaders::default());
    cluster(&a).mark_read(stream, true);
    while !remote().await.is_read {}
    assert!(
        !cluster(&a).remote_readers(stream, "t").await.unwrap().is_read,
        "its own readers do not count"
    );
    assert!(!cluster(&b).take_unread(stream).await.unwrap(), "another process reads it");
    cluster(&a).mark_read(stream, false);
    while remote().await.is_read {}
    assert!(remote().await.unread_for.is_some(), "the time of the last reader is recorded");
    // Of two concurrent calls one succeeds.
    let (one, other) =
        tokio::join!(cluster(&a).take_unread(stream), cluster(&b).take_unread(stream));
    assert_ne!(one.unwrap(), other.unwrap());
    for store in [&a, &b] {
        cluster(store).mark_read(stream, false);
    }
    while cluster(&a).remote_readers(stream, "t").await.unwrap().is_read || remote().await.is_read {
    }
    // A fenced process has no readers, until it records them under its next lease.
    cluster(&a).mark_read(stream, true);
    while !remote().await.is_read {}
    database.sql("update capstan.replicas set state = 3 where name = 'a'");
    while database.sql(&format!("select count(*) from {LIVE} where m.left_at is null")) != "1" {}
    assert!(remote().await.is_read);
    // The longest wait counts.
    for seconds in [60, 20] {
        cluster(&b).expect_clients("t", Duration::from_secs(seconds));
    }
    while cluster(&a).remote_readers(stream, "t").await.unwrap().expected.is_zero() {}
    assert!(
        cluster(&a).remote_readers(stream, "t").await.unwrap().expected > Duration::from_secs(30)
    );
    // The rows of closed runs are deleted.
    database.sql("update capstan.runs set state = 3");
    for store in [&a, &b] {
        cluster(store).mark_read(stream, false);
    }
    while database.sql(&format!("select count(*) from {LIVE}")) != "0" {}
}

/// Reads a stream until its state is returned. Checks that each packet is stored.
async fn stored_rest(store: &dyn Store, reader: &mut Reader) -> (Vec<u8>, RunState) {
    let mut seen = Vec::new();
    loop {
        match reader.next().await.unwrap() {
            Step::Frames(some) => {
                let last = store.read(reader.stream_id(), reader.cursor() - 1, 1, 1).await.unwrap();
                assert!(
                    !last.is_empty(),
                    "packet {} was delivered and is not stored",
                    reader.cursor()
                );
                some.iter().for_each(|frame| seen.extend_from_slice(frame));
            }
            Step::State(state) => return (seen, state),
        }
    }
}

/// A reader at `b` follows a stream that `a` writes, to its end. `b` continues the run, and if
/// `is_waited_for`, not before its reader has seen the run waiting.
async fn follows(a: Arc<dyn Store>, b: Arc<dyn Store>, is_waited_for: bool) {
    let (a, b) = (Journal::new(a, TailLimits::default()), Journal::new(b, TailLimits::default()));
    let run = a.claim(claim("k"), &UNLIMITED).await.unwrap().run;
    let stream = run.stream_id;
    let mut reader = b.reader(stream, 0);
    a.append(stream, 1, frames(1, 1)).await.unwrap();
    assert!(matches!(reader.next().await.unwrap(), Step::Frames(_)));
    let store = b.store().clone();
    let watch = cluster(&store).watch(stream);
    let (has_caught_up, caught_up) = tokio::sync::oneshot::channel();
    let followed = tokio::spawn(async move {
        let first = stored_rest(&*store, &mut reader).await;
        let _ = has_caught_up.send(());
        (first, rest(&mut reader).await)
    });
    // The reader waits before more is written. Otherwise it could find all of it stored.
    while !watch.is_awaited() {
        tokio::task::yield_now().await;
    }
    for seq in 2..=200 {
        a.append(stream, 1, frames(seq, seq)).await.unwrap();
    }
    // Too long for a notification.
    let long = vec![Frame::new(201, "y".repeat(9000)), Frame::new(202, "z")];
    a.append(stream, 1, long).await.unwrap();
    let waiting = moved(&run, RunState::Waiting, 1);
    assert!(a.transition((RunState::Running, 1), waiting, frames(203, 203), None).await.unwrap());
    if is_waited_for {
        caught_up.await.unwrap();
    }
    // The reader's own process continues the run and ends it.
    let armed = moved(&run, RunState::Running, 2);
    while !b.transition((RunState::Waiting, 1), armed.clone(), vec![], None).await.unwrap() {}
    b.append(stream, 2, frames(204, 210)).await.unwrap();
    let closed = moved(&run, RunState::Closed, 2);
    assert!(b.transition((RunState::Running, 2), closed, frames(211, 211), None).await.unwrap());
    let ((mut seen, state), later) = followed.await.unwrap();
    // The reader may or may not have seen the run waiting.
    if state == RunState::Waiting {
        seen.extend(later.0);
    }
    let whole =
        [bytes(2, 200), "y".repeat(9000).into_bytes(), b"z".to_vec(), bytes(203, 211)].concat();
    assert!(seen == whole, "{} of {} bytes", seen.len(), whole.len());
    // The first process follows the stream now.
    assert_eq!(rest(&mut a.reader(stream, 203)).await, (bytes(204, 211), RunState::Closed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn remote_reader_sees_all_packets_in_order() {
    let (_database, a, b) = two().await;
    follows(a, b, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn polling_replaces_lost_notifications() {
    let (database, a, _b) = two().await;
    // Notifications do not leave their database.
    let other = database.url.replacen(
        database.url.rsplit('/').next().unwrap().split('?').next().unwrap(),
        "postgres",
        1,
    );
    let deaf = Replica { listen_url: Some(other), ..lasting("deaf") };
    let b = database.store(Durability::Process, deaf).await;
    follows(a, b, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn purge_ends_remote_readers() {
    let (_database, a, b) = two().await;
    let (a, b) = (Journal::new(a, TailLimits::default()), Journal::new(b, TailLimits::default()));
    let run = a.claim(claim("k"), &UNLIMITED).await.unwrap().run;
    a.append(run.stream_id, 1, frames(1, 3)).await.unwrap();
    let mut reader = b.reader(run.stream_id, 0);
    assert!(matches!(reader.next().await.unwrap(), Step::Frames(_)));
    let waiting = tokio::spawn(async move {
        loop {
            match reader.next().await {
                Ok(Step::Frames(_) | Step::State(_)) => tokio::task::yield_now().await,
                Err(error) => return error.kind(),
            }
        }
    });
    let closed = moved(&run, RunState::Closed, 1);
    assert!(a.transition((RunState::Running, 1), closed, frames(4, 4), None).await.unwrap());
    assert!(a.purge(run.stream_id, Timestamp::now()).await.unwrap());
    assert_eq!(waiting.await.unwrap(), ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn quotas_hold_across_processes() {
    let (_database, a, b) = two().await;
    let claim_many = async |quota: Quota, name: &str| {
        let race = |n: usize| {
            let (store, key) =
                (if n.is_multiple_of(2) { a.clone() } else { b.clone() }, format!("{name}{n}"));
            tokio::spawn(async move {
                store.claim(Claim { tenant: key[..1].into(), ..claim(&key) }, &quota).await
            })
        };
        let tasks: Vec<_> = (0..40).map(race).collect();
        let (mut won, mut refused) = (0, HashSet::new());
        for task in tasks {
            match task.await.unwrap() {
                Ok(claimed) => won += usize::from(claimed.is_new),
                Err(error) => {
                    let ErrorKind::Refused(Refused { over, .. }) = error.kind() else {
                        panic!("{error:?}")
                    };
                    refused.insert(over);
                }
            }
        }
        (won, refused)
    };
    let running = Quota { running: Some(7), ..UNLIMITED };
    assert_eq!(claim_many(running, "r").await, (7, [Over::Running].into()));
    let rate = Quota { per_minute: NonZeroU32::new(5), ..UNLIMITED };
    assert_eq!(claim_many(rate, "m").await, (5, [Over::Rate].into()));
    let usage = a.usage("r", "s").await.unwrap();
    assert_eq!((usage.running, usage.sessions, usage.messages), (7, 1, 7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn schema_is_created_once_and_a_newer_one_is_refused() {
    let database = Database::create_empty();
    let open = || connect(&database.url, Options::default(), Replica::default());
    let (first, second) = tokio::join!(open(), open());
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.secret().await.unwrap(), second.secret().await.unwrap());
    let schema = migrate(&database.url).await.unwrap();
    assert_eq!(schema.version, capstan_stores::Schema::NEWEST);
    // The next release adds to the tables. This build may still write.
    database.sql(
        "alter table capstan.runs add column mood text not null default 'calm'; update \
         capstan.meta set schema = 2",
    );
    assert!(begin(&open().await.unwrap(), "k").await.is_open());
    // The release after that requires a newer build.
    database.sql("update capstan.meta set schema = 3, min_writer = 2");
    let error = open().await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(
        error.to_string(),
        "the journal's database has schema 3 (table capstan.meta), which only builds that know \
         schema 2 or later may use; this one knows 1. Nothing was changed; start a later release \
         of capstan"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_database_error_hides_the_password() {
    let error =
        connect("postgres://u:hunter2@127.0.0.1:1/db", Options::default(), Replica::default())
            .await
            .err()
            .unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
}

/// Appends while the server restarts.
async fn writes_survive(durability: Durability, signal: &str, settings: &[&str]) {
    let mut engine = Engine::start(settings);
    let options = Options { durability, ..Options::default() };
    let store = connect(&engine.url(), options, lasting("a")).await.unwrap();
    let run = begin(&store, "k").await;
    let stream = run.stream_id;
    for seq in 1..=50 {
        store.append(stream, 1, frames(seq, seq)).await.unwrap();
    }
    engine.end(signal);
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            for seq in 51..=60 {
                store.append(stream, 1, frames(seq, seq)).await.unwrap();
            }
            let closed = moved(&run, RunState::Closed, 1);
            store
                .transition(Transition::new((RunState::Running, 1), closed, frames(61, 61), None))
                .await
                .unwrap()
        }
    });
    engine.start_again();
    assert!(writing.await.unwrap());
    assert_eq!(store.read(stream, 0, 999, usize::MAX).await.unwrap(), frames(1, 61));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn lost_packets_are_rewritten_after_a_server_crash() {
    // Without this setting nothing would be lost, because the server flushes its log early.
    writes_survive(Durability::Process, "QUIT", &["wal_writer_delay=10s"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn writes_wait_for_a_restarting_server() {
    writes_survive(Durability::Power, "INT", &[]).await;
}

/// Starts a write whose answer is lost, and waits until the server has done it.
async fn lost_answer<T: Send + 'static>(
    database: &Database,
    network: &Network,
    is_done: &str,
    writing: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    network.turn(Weather::Deaf);
    let writing = tokio::spawn(writing);
    while database.sql(is_done) != "t" {}
    assert!(!writing.is_finished());
    writing
}

/// Opens all writer connections. One that is opened later, without answers, would send nothing.
async fn use_all_writers(store: &Arc<dyn Store>) {
    let run = begin(store, &Uuid::new_v4().to_string()).await;
    store.append(run.stream_id, 1, frames(1, 1)).await.unwrap();
    let waiting = moved(&run, RunState::Waiting, 1);
    assert!(
        store
            .transition(Transition::new((RunState::Running, 1), waiting, frames(2, 2), None))
            .await
            .unwrap()
    );
}

/// A claim, an append and an end. The server does each of them, and its answer is lost.
async fn answers_are_lost(replica: Replica, end: impl Fn(&Network)) {
    let database = Database::create();
    let (network, url) = Network::before(&database.url).await;
    let options = Options { durability: Durability::Process, ..Options::default() };
    let store = connect(&url, options, replica).await.unwrap();
    use_all_writers(&store).await;
    let claims = "select exists (select from capstan.claims where key = 'k')";
    let claiming = {
        let store = store.clone();
        lost_answer(&database, &network, claims, async move {
            store.claim(claim("k"), &UNLIMITED).await
        })
        .await
    };
    end(&network);
    let claimed = claiming.await.unwrap().unwrap();
    assert!(claimed.is_new, "it was this process's own claim");
    let (run, stream) = (claimed.run.clone(), claimed.run.stream_id);
    store.append(stream, 1, frames(1, 3)).await.unwrap();
    use_all_writers(&store).await;
    let packets = "select exists (select from capstan.blocks where last_seq = 5)";
    let appending = {
        let store = store.clone();
        lost_answer(&database, &network, packets, async move {
            store.append(stream, 1, frames(4, 5)).await
        })
        .await
    };
    end(&network);
    appending.await.unwrap().unwrap();
    store.append(stream, 1, frames(6, 6)).await.unwrap();
    use_all_writers(&store).await;
    let is_closed = "select exists (select from capstan.runs where state = 3)";
    let ending = {
        let (store, closed) = (store.clone(), moved(&run, RunState::Closed, 1));
        let ended = async move {
            store
                .transition(Transition::new((RunState::Running, 1), closed, frames(7, 7), None))
                .await
        };
        lost_answer(&database, &network, is_closed, ended).await
    };
    end(&network);
    assert!(ending.await.unwrap().unwrap(), "it was this process's own change");
    assert_eq!(
        store.read(stream, 0, 99, 9999).await.unwrap(),
        frames(1, 7),
        "no packet is lost or doubled"
    );
    assert_eq!(database.sql("select count(*) from capstan.runs"), "4");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn writes_with_a_cut_answer_happen_once() {
    answers_are_lost(lasting("a"), |network| {
        network.clear_up();
        network.cut();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn silent_connection_is_replaced() {
    // The connection is never closed, so only a timeout can notice. Timeouts follow from the lease.
    // The lease must be longer than the outage on a busy machine, or the process loses its runs.
    answers_are_lost(Replica { lease: Duration::from_secs(5), ..lasting("a") }, Network::clear_up)
        .await;
}

/// Creates a root certificate, and a certificate of a server on loopback.
fn certificates(folder: &std::path::Path, name: &str) {
    let line = format!(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout {name}-root.key -out \
         {name}-root.pem -subj /CN={name} 2>&1 && \
         openssl req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN=server \
         2>&1 && \
         printf 'subjectAltName=IP:127.0.0.1' >{name}.ext && \
         openssl x509 -req -in {name}.csr -CA {name}-root.pem -CAkey {name}-root.key \
         -CAcreateserial -days 2 \
           -extfile {name}.ext -out {name}.pem 2>&1 && chmod 0644 {name}.pem && chmod 0600 \
           {name}.key && \
         if [ \"$(id -u)\" = 0 ]; then chown postgres: {name}.key; fi"
    );
    let made =
        std::process::Command::new("sh").args(["-c", &line]).current_dir(folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn server_certificate_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    ["own", "other"].into_iter().for_each(|name| certificates(folder.path(), name));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let settings = [
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
        "ssl=on".into(),
        format!("ssl_cert_file={}", file("own.pem")),
        format!("ssl_key_file={}", file("own.key")),
        format!("hba_file={}", file("hba")),
    ];
    let hba = "local all all trust\nhostssl all bound all scram-sha-256\nhost all all all trust\n";
    std::fs::write(file("hba"), hba).unwrap();
    let engine = Engine::start(&settings.each_ref().map(String::as_str));
    let open = async |mode: &str, root: &str, host: &str| {
        let url = format!(
            "postgres://postgres@{host}:{port}/postgres?sslmode={mode}&sslrootcert={}",
            file(root)
        );
        connect(&url, Options::default(), Replica::default()).await
    };
    let store = open("verify-full", "own-root.pem", "127.0.0.1").await.unwrap();
    assert!(begin(&store, "k").await.is_open());
    for mode in ["require", "verify-full"] {
        let refused = open(mode, "other-root.pem", "127.0.0.1").await.err().unwrap();
        assert!(refused.to_string().contains("certificate"), "{refused}");
        let misnamed = open(mode, "own-root.pem", "localhost").await.err().unwrap();
        assert!(misnamed.to_string().contains("certificate"), "{misnamed}");
    }
    // Channel binding: the server computes the hash of its certificate too, and refuses another.
    engine.sql("create role bound superuser login password 'pw'");
    let query =
        format!("sslmode=verify-full&channel_binding=require&sslrootcert={}", file("own-root.pem"));
    let url = format!("postgres://bound:pw@127.0.0.1:{port}/postgres?{query}");
    connect(&url, Options::default(), Replica::default()).await.unwrap();
}

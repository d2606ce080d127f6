//! Restarts that find runs under way: how long they take when these are many, and what becomes of
//! those that a repair cannot vouch for.

use std::time::{Duration, Instant};

use crate::common::{demo, disk};
use capstan_gateway::{Gateway, Service, Settings};
use capstan_journal::{Claim, Frame, Journal, Quota, Run, RunState};
use capstan_protocol::Timestamp;
use futures_util::{StreamExt as _, stream};
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: tells little of a build that is not optimised"]
async fn soak_ten_thousand_runs_are_recovered_within_two_seconds() {
    let took = recover(10_000).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_runs_are_recovered_at_once() {
    recover(400).await;
}

/// A restart that finds so many runs under way, half of which may try again; how long it takes.
async fn recover(runs: usize) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let journal = disk(folder.path());
    let body = bytes::Bytes::from(serde_json::to_vec(&crate::common::ask("/tokens 5")).unwrap());
    let begin = |n: usize| {
        let (journal, body) = (journal.clone(), body.clone());
        async move {
            let claim = Claim::new("local", n.to_string(), Uuid::now_v7(), Timestamp::now());
            let (agent, face, session) = ("demo".into(), "cap".into(), n.to_string());
            let claim =
                Claim { agent, face, session, body, max_attempts: 1 + n as u32 % 2, ..claim };
            let run = journal.claim(claim, &Quota::UNLIMITED).await.unwrap().run;
            let frames = (1..=3).map(|seq| Frame::new(seq, "data: word\n\n")).collect();
            journal.append(run.stream_id, 1, frames).await.unwrap();
        }
    };
    stream::iter(0..runs).map(begin).buffer_unordered(512).collect::<()>().await;
    drop(journal);
    let opening = Instant::now();
    let journal = disk(folder.path());
    let recovering = Instant::now();
    let service =
        Service::start(Gateway::new(journal.clone()).agent("demo", demo())).await.unwrap();
    let took = recovering.elapsed();
    eprintln!("opened in {:?}, recovered in {took:?}", recovering - opening);
    let open = journal.store().open_runs().await.unwrap();
    assert!(open.len() == runs / 2 && open.iter().all(|run| run.state == RunState::Waiting));
    service.drain().await.unwrap();
    took
}

/// A run of this name, with three packets; one that waits if it has failed.
async fn begin(journal: &Journal, name: &str, has_failed: bool) -> Run {
    let body = serde_json::to_vec(&crate::common::ask("/tokens 5")).unwrap().into();
    let (agent, face, session) = ("demo".into(), "cap".into(), name.into());
    let claim = Claim::new("local", name, Uuid::now_v7(), Timestamp::now());
    let claim = Claim { agent, face, session, body, max_attempts: 3, ..claim };
    let run = journal.claim(claim, &Quota::UNLIMITED).await.unwrap().run;
    let frames = (1..=3).map(|seq| Frame::new(seq, "data: word\n\n")).collect();
    journal.append(run.stream_id, 1, frames).await.unwrap();
    if has_failed {
        let to = Run { state: RunState::Waiting, ..run.clone() };
        assert!(journal.transition((RunState::Running, 1), to, Vec::new(), None).await.unwrap());
    }
    run
}

#[tokio::test]
async fn runs_that_a_repair_cannot_restore_are_lost_and_not_continued() {
    let folder = tempfile::tempdir().unwrap();
    let journal = disk(folder.path());
    let runs = [begin(&journal, "waits", true).await, begin(&journal, "runs", false).await];
    journal.store().close().await.unwrap();
    drop(journal);
    // The end of the log is gone: perhaps these runs had ended in it.
    let log =
        std::fs::read_dir(folder.path().join("log")).unwrap().map(|entry| entry.unwrap().path());
    let segment = log.filter(|path| path.metadata().unwrap().len() > 64).max().unwrap();
    let whole = std::fs::read(&segment).unwrap();
    std::fs::write(&segment, &whole[..whole.len() - 1]).unwrap();
    let path = folder.path().to_owned();
    let report =
        tokio::task::spawn_blocking(move || capstan_stores::repair(&path)).await.unwrap().unwrap();
    assert_eq!(report.lost_streams.len(), 2, "{report:?}");
    let journal = disk(folder.path());
    let server = crate::common::start_on(journal.clone(), Settings::default()).await;
    while server.get("/readyz").await.status() != 200 {}
    assert!(journal.store().open_runs().await.unwrap().is_empty());
    for run in runs {
        let body =
            server.get(&format!("/v1/streams/{}", run.stream_id)).await.text().await.unwrap();
        assert!(body.contains("stream_lost") && body.contains("FATAL"), "{body}");
        // Beyond the three packets that there are and beyond all that may have been: the only gap
        // there may be.
        let seqs = body
            .lines()
            .filter_map(|line| line.strip_prefix("id: ")?.rsplit(':').next()?.parse().ok());
        let [0, error, close] = seqs.collect::<Vec<u64>>()[..] else { panic!("{body}") };
        assert!(error >= 3 + (1 << 20) && close == error + 1, "{error} {close}");
    }
    server.stop().await;
}

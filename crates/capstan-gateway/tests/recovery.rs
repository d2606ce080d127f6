//! How long a restart takes that finds many runs under way.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod common;

use std::time::{Duration, Instant};

use capstan_gateway::{Gateway, Service};
use capstan_journal::{Claim, Frame, Quota, RunState};
use capstan_protocol::Timestamp;
use common::{demo, disk};
use futures_util::{StreamExt as _, stream};
use uuid::Uuid;

const RUNS: usize = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes seconds, and tells little of a build that is not optimised; `make soak` runs it"]
async fn ten_thousand_runs_are_recovered_within_two_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let journal = disk(folder.path());
    let body = bytes::Bytes::from(serde_json::to_vec(&common::ask("/tokens 5")).unwrap());
    let begin = |n: usize| {
        let (journal, body) = (journal.clone(), body.clone());
        async move {
            let claim = Claim::new("local", n.to_string(), Uuid::now_v7(), Timestamp::now());
            let (agent, face, session) = ("demo".into(), "cap".into(), n.to_string());
            let claim = Claim { agent, face, session, body, max_attempts: 1 + n as u32 % 2, ..claim };
            let run = journal.claim(claim, &Quota::UNLIMITED).await.unwrap().run;
            let frames = (1..=3).map(|seq| Frame::new(seq, "data: word\n\n")).collect();
            journal.append(run.stream_id, 1, frames).await.unwrap();
        }
    };
    stream::iter(0..RUNS).map(begin).buffer_unordered(512).collect::<()>().await;
    drop(journal);
    let opening = Instant::now();
    let journal = disk(folder.path());
    let recovering = Instant::now();
    let service = Service::start(Gateway::new(journal.clone()).agent("demo", demo())).await.unwrap();
    let took = recovering.elapsed();
    println!("opened in {:?}, recovered in {took:?}", recovering - opening);
    let open = journal.store().open_runs().await.unwrap();
    assert!(open.len() == RUNS / 2 && open.iter().all(|run| run.state == RunState::Waiting));
    assert!(took < Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 2 }), "{took:?}");
    service.drain().await.unwrap();
}

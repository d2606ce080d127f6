//! `no_store` tenants. Their streams are in memory, and a changed rule hides none of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use capstan_journal::{
    Claim, Frame, Journal, Quota, Run, RunState, StoredTurn, TailLimits, TurnRange,
};
use capstan_protocol::Timestamp;
use capstan_stores::{Durability, open};
use uuid::Uuid;

fn claim(tenant: &str, key: &str) -> Claim {
    let body = Bytes::from_static(b"quinquereme");
    Claim { body, session: "s".into(), ..Claim::new(tenant, key, Uuid::now_v7(), Timestamp::now()) }
}

/// A complete run with one frame and one turn.
async fn run(journal: &Journal, tenant: &str, key: &str) -> Run {
    let run = journal.claim(claim(tenant, key), &Quota::UNLIMITED).await.unwrap().run;
    journal.append(run.stream_id, 1, vec![Frame::new(1, "data: quinquereme\n\n")]).await.unwrap();
    let said = serde_json::json!({"messages": ["quinquereme"], "interrupts": ["quinquereme"]});
    let turn = StoredTurn::new(run.stream_id, Timestamp::now(), 2, said);
    let to = Run { state: RunState::Closed, ..run.clone() };
    assert!(journal.transition((RunState::Running, 1), to, vec![], Some(turn)).await.unwrap());
    run
}

#[tokio::test]
async fn no_store_data_never_reaches_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("disk:{}", folder.path().display());
    let journal = Journal::new(open(&url, Durability::Power).unwrap(), TailLimits::default());
    let journal = journal.keeping_in_memory(|tenant| tenant == "private");
    let hidden = run(&journal, "private", "secret-key").await;
    assert_eq!(journal.store().read(hidden.stream_id, 0, 9, 999).await.unwrap().len(), 1);
    journal.store().close().await.unwrap();
    drop(journal);
    let mut files = vec![folder.path().to_owned()];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        for word in ["quinquereme", "secret-key", "private"] {
            assert!(
                !bytes.windows(word.len()).any(|part| part == word.as_bytes()),
                "{word} in {path:?}"
            );
        }
    }
}

#[tokio::test]
async fn changed_no_store_rule_loses_and_repeats_no_run() {
    let is_private = Arc::new(AtomicBool::new(false));
    let rule = Arc::clone(&is_private);
    let journal =
        Journal::new(open("memory:", Durability::Process).unwrap(), TailLimits::default());
    let journal = journal.keeping_in_memory(move |_| rule.load(Ordering::SeqCst));
    let mut runs = Vec::new();
    for (key, rule) in [("1", false), ("2", true), ("3", false)] {
        is_private.store(rule, Ordering::SeqCst);
        runs.push(run(&journal, "t", key).await.stream_id);
    }
    for rule in [true, false] {
        is_private.store(rule, Ordering::SeqCst);
        for (key, stream) in ["1", "2", "3"].into_iter().zip(&runs) {
            let claimed = journal.claim(claim("t", key), &Quota::UNLIMITED).await.unwrap();
            assert_eq!((claimed.is_new, claimed.run.stream_id), (false, *stream));
        }
        let listed: Vec<_> =
            journal.store().list("t", None, 2).await.unwrap().iter().map(|r| r.stream_id).collect();
        assert_eq!(listed, [runs[2], runs[1]]);
        let turns: Vec<_> = journal
            .store()
            .turns(TurnRange::all("t", "s"))
            .await
            .unwrap()
            .iter()
            .map(|t| t.stream_id)
            .collect();
        assert_eq!(turns, runs);
    }
}

#[tokio::test]
async fn turns_from_before_a_rule_change_count() {
    let is_private = Arc::new(AtomicBool::new(false));
    let rule = Arc::clone(&is_private);
    let journal =
        Journal::new(open("memory:", Durability::Process).unwrap(), TailLimits::default());
    let journal = journal.keeping_in_memory(move |_| rule.load(Ordering::SeqCst));
    for (n, rule) in [false, false, true, true, false].into_iter().enumerate() {
        is_private.store(rule, Ordering::SeqCst);
        let run = run(&journal, "t", &n.to_string()).await;
        let turns = journal.store().turns(TurnRange::all("t", "s")).await.unwrap();
        let known = turns.iter().filter(|turn| turn.number <= run.turns_before).count();
        assert_eq!(known, n, "all turns of runs that ended before");
    }
}

//! Many runs. Every query returns all results, page by page, and each page stays within its budget.

use std::sync::Arc;
use std::time::{Duration, Instant};

use capstan_journal::{Budget, Query, Run, Status, Store};
use capstan_stores::{Durability, open};
use uuid::Uuid;

use super::says;
use crate::filled::{AGENTS, Filling, OFTEN, SELDOM, TURNS};

/// The queries of a user, and whether an index on disk supports each.
fn questions(filling: &Filling) -> Vec<(Query, bool)> {
    let asked = || Query { limit: Query::MOST, ..Query::default() };
    let tenant = |n: usize| Some(vec![filling.tenants[n].clone()]);
    let old = filling.count / 2;
    vec![
        (asked(), true),
        (Query { tenants: tenant(0), ..asked() }, true),
        (Query { tenants: tenant(1), status: Some(Status::Failed), ..asked() }, false),
        (
            Query {
                tenants: Some(filling.tenants[1..].to_vec()),
                agent: Some(AGENTS[1].into()),
                ..asked()
            },
            false,
        ),
        (Query { status: Some(Status::Healed), ..asked() }, false),
        (Query { status: Some(Status::Stopped), agent: Some(AGENTS[0].into()), ..asked() }, false),
        (Query { status: Some(Status::Running), ..asked() }, true),
        (Query { status: Some(Status::Waiting), ..asked() }, false),
        (Query { fault: Some(OFTEN.into()), ..asked() }, true),
        (Query { fault: Some(SELDOM.into()), ..asked() }, true),
        (Query { fault: Some(OFTEN.into()), agent: Some(AGENTS[1].into()), ..asked() }, false),
        (Query { fault: Some("nobody_met_it".into()), ..asked() }, true),
        (Query { request_id: Some(format!("ticket-{old}")), ..asked() }, true),
        (Query { trace_id: Some(format!("{old:032x}")), ..asked() }, true),
        (
            Query {
                tenants: tenant(0),
                session: Some(format!("session-{}", old / TURNS)),
                ..asked()
            },
            true,
        ),
        (
            Query {
                from: Some(filling.stream(old)),
                before: Some(filling.stream(old + 300)),
                ..asked()
            },
            true,
        ),
    ]
}

/// All results of a query, page by page, with the duration of each page.
async fn whole(store: &dyn Store, asked: &Query, is_led: bool) -> (Vec<Uuid>, Vec<Duration>) {
    let (mut found, mut times, mut before, mut looked_at) =
        (Vec::new(), Vec::new(), asked.before, 0);
    loop {
        let began = Instant::now();
        let page = store.page(Query { before, ..asked.clone() }).await.unwrap();
        times.push(began.elapsed());
        assert!(
            page.looked_at <= asked.budget.records && page.runs.len() <= Query::MOST,
            "{asked:?}"
        );
        looked_at += page.looked_at;
        found.extend(page.runs.iter().map(|run| run.stream_id));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert!(
        !is_led || looked_at == found.len(),
        "{asked:?}: {looked_at} looked at for {}",
        found.len()
    );
    (found, times)
}

/// Runs all queries. With `counts`, checks that indexed queries read only as many records as they
/// return.
pub(crate) async fn ask_all(
    store: &dyn Store,
    filling: &Filling,
    budget: Budget,
    counts: bool,
) -> Vec<Duration> {
    let runs: Vec<Run> = (0..filling.count).rev().map(|n| filling.run(n)).collect();
    let mut times = Vec::new();
    for (question, is_led) in questions(filling) {
        let in_time = |run: &&Run| {
            question.from.is_none_or(|from| run.stream_id >= from)
                && question.before.is_none_or(|before| run.stream_id < before)
        };
        let asked = runs.iter().filter(in_time).filter(|run| says(run, &question));
        let expected: Vec<_> = asked.map(|run| run.stream_id).collect();
        let (found, took) =
            whole(store, &Query { budget, ..question.clone() }, is_led && counts).await;
        assert!(found == expected, "{question:?}: {} of {}", found.len(), expected.len());
        times.extend(took);
    }
    times.sort();
    times
}

/// The usual number of records with unlimited time, so that a slow machine does not change the
/// results.
pub(crate) fn patient() -> Budget {
    Budget { time: Duration::from_secs(60), ..Budget::default() }
}

pub(crate) fn filling(count: usize) -> Filling {
    Filling::new(&["a", "b", "c"], count)
}

async fn on_disk(count: usize) -> (tempfile::TempDir, Arc<dyn Store>, Filling) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("disk:{}", folder.path().join("journal").display());
    let (store, filling) = (open(&url, Durability::Process).unwrap(), filling(count));
    filling.fill(&store).await;
    (folder, store, filling)
}

/// The console's promise for a hundred thousand runs, for a release build on a quiet machine.
pub(crate) fn assert_quick(times: &[Duration]) {
    let p95 = times[times.len() * 95 / 100];
    eprintln!(
        "{} pages, p50 {:?}, p95 {p95:?}, at most {:?}",
        times.len(),
        times[times.len() / 2],
        times.last()
    );
    assert!(p95 < Duration::from_millis(60), "p95 {p95:?}");
}

mod disk {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ten_thousand_runs_match_every_query() {
        let (_folder, store, filling) = on_disk(10_000).await;
        ask_all(&*store, &filling, patient(), true).await;
    }

    #[ignore = "soak: takes minutes"]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn soak_page_of_hundred_thousand_runs_takes_60_ms() {
        let (_folder, store, filling) = on_disk(100_000).await;
        assert_quick(&ask_all(&*store, &filling, Budget::default(), true).await);
    }
}

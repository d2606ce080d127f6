//! Pages of runs of several tenants.

use std::time::Duration;

use capstan_journal::{
    Attempt, Budget, Claim, Counts, Query, Quota, Retention, Rollup, RollupKey, Run, RunPage,
    RunState, Status,
};
use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::{Backend, claim, frames, moved};

fn ids(page: &RunPage) -> Vec<Uuid> {
    page.runs.iter().map(|run| run.stream_id).collect()
}

/// A query with unlimited time, for slow machines.
fn query() -> Query {
    let budget = Budget { time: Duration::from_secs(60), ..Budget::default() };
    Query { limit: Query::MOST, budget, ..Query::default() }
}

/// A run with failed attempts, in the state after the last one.
async fn failed(backend: &Backend, tenant: &str, codes: &[&str], state: RunState) -> Run {
    let claim = Claim {
        agent: "adam".into(),
        request_id: Some(format!("r-{tenant}")),
        trace_id: Some("t".repeat(32)),
        ..claim(tenant, &Uuid::new_v4().to_string())
    };
    let run = backend.store.claim(claim, &Quota::UNLIMITED).await.unwrap().run;
    let mut to = moved(&run, state, 1);
    to.attempts = (1..)
        .zip(codes)
        .map(|(n, code)| Attempt {
            fault: Some((*code).to_owned()),
            request_id: Some(format!("a-{n}")),
            ..Attempt::new(n, run.created_at)
        })
        .collect();
    to.fault = codes.last().map(|code| (*code).to_owned());
    if state == RunState::Closed {
        to.closed_at = Some(to.updated_at);
    }
    assert!(backend.step((RunState::Running, 1), to, frames(1, 2), None).await.unwrap());
    backend.store.run(run.stream_id).await.unwrap().unwrap()
}

pub(crate) async fn page_covers_the_chosen_tenants_newest_first(backend: &Backend) {
    let mut runs = Vec::new();
    for n in 0..9 {
        runs.push(backend.start(["a", "b", "c"][n % 3]).await);
    }
    runs.reverse();
    let of = |tenants: &[&str]| {
        let of = |run: &&Run| tenants.contains(&run.tenant.as_str());
        runs.iter().filter(of).map(|run| run.stream_id).collect::<Vec<_>>()
    };
    let page = |query| backend.store.page(query);
    let all = page(query()).await.unwrap();
    assert_eq!(ids(&all), of(&["a", "b", "c"]));
    assert_eq!((all.next, all.looked_back_to), (None, None), "that was all");
    for tenants in [&["a"][..], &["a", "c"], &["nobody"]] {
        let names = Some(tenants.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(ids(&page(Query { tenants: names, ..query() }).await.unwrap()), of(tenants));
    }
    // Pages have no gaps and no repeats.
    let (mut before, mut found) = (None, Vec::new());
    loop {
        let some = page(Query { before, limit: 2, ..query() }).await.unwrap();
        assert!(some.runs.len() <= 2);
        assert_eq!(some.looked_back_to.is_some(), some.next.is_some());
        found.extend(ids(&some));
        before = some.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(found, of(&["a", "b", "c"]));
    // A range of streams.
    let (from, before) = (Some(runs[6].stream_id), Some(runs[2].stream_id));
    let between = page(Query { from, before, ..query() }).await.unwrap();
    assert_eq!(ids(&between), runs[3..=6].iter().map(|run| run.stream_id).collect::<Vec<_>>());
    assert_eq!(
        page(Query { from: before, before: from, ..query() }).await.unwrap(),
        RunPage::default()
    );
}

pub(crate) async fn page_applies_every_filter(backend: &Backend) {
    let running = backend.start("a").await;
    let waits = failed(backend, "a", &["timeout"], RunState::Waiting).await;
    let failed_run = failed(backend, "b", &["timeout", "rate_limited"], RunState::Closed).await;
    let mut healed = failed(backend, "b", &["timeout"], RunState::Waiting).await;
    for (from, to) in [
        ((RunState::Waiting, 1), (RunState::Running, 2)),
        ((RunState::Running, 2), (RunState::Closed, 2)),
    ] {
        let next =
            Run { fault: None, reason: Some("completed".into()), ..moved(&healed, to.0, to.1) };
        assert!(backend.step(from, next, vec![], None).await.unwrap());
    }
    healed = backend.store.run(healed.stream_id).await.unwrap().unwrap();
    let stopped = backend.start("c").await;
    let to = Run { reason: Some("cancelled".into()), ..moved(&stopped, RunState::Closed, 1) };
    assert!(backend.step((RunState::Running, 1), to, vec![], None).await.unwrap());
    let found = |query: Query| async { ids(&backend.store.page(query).await.unwrap()) };
    for (status, run) in [
        (Status::Running, &running),
        (Status::Waiting, &waits),
        (Status::Failed, &failed_run),
        (Status::Healed, &healed),
        (Status::Stopped, &stopped),
    ] {
        assert_eq!(
            found(Query { status: Some(status), ..query() }).await,
            [run.stream_id],
            "{status:?}"
        );
    }
    assert!(found(Query { status: Some(Status::Done), ..query() }).await.is_empty());
    // The faults of all attempts match, even if the run completed later.
    let by_fault = |code: &str| Query { fault: Some(code.to_owned()), ..query() };
    let with_timeout = [healed.stream_id, failed_run.stream_id, waits.stream_id];
    assert_eq!(found(by_fault("timeout")).await, with_timeout);
    assert_eq!(found(by_fault("rate_limited")).await, [failed_run.stream_id]);
    assert!(found(by_fault("time")).await.is_empty());
    let of_a = Query { tenants: Some(vec!["a".into()]), ..by_fault("timeout") };
    assert_eq!(found(of_a).await, [waits.stream_id]);
    let agent = |name: &str| Query { agent: Some(name.into()), ..query() };
    assert_eq!(found(agent("adam")).await, with_timeout);
    assert!(found(agent("eve")).await.is_empty());
    // Ids match across tenants.
    let by_request = |id: &str| Query { request_id: Some(id.into()), ..query() };
    assert_eq!(found(by_request("r-a")).await, [waits.stream_id]);
    assert_eq!(found(by_request("a-2")).await, [failed_run.stream_id]);
    assert!(found(Query { tenants: Some(vec!["c".into()]), ..by_request("r-a") }).await.is_empty());
    assert_eq!(found(Query { trace_id: Some("t".repeat(32)), ..query() }).await, with_timeout);
    // Sessions of one tenant and of several.
    let by_session = |tenants: Option<Vec<String>>| Query {
        session: Some("session".into()),
        tenants,
        ..query()
    };
    assert_eq!(found(by_session(Some(vec!["c".into()]))).await, [stopped.stream_id]);
    assert_eq!(found(by_session(None)).await.len(), 5);
}

pub(crate) async fn page_stays_within_its_budget(backend: &Backend) {
    for _ in 0..30 {
        backend.start("a").await;
    }
    let budget = Budget { records: 10, ..query().budget };
    let nothing = Query { agent: Some("nobody".into()), budget, ..query() };
    let (mut before, mut pages) = (None, 0);
    loop {
        let page = backend.store.page(Query { before, ..nothing.clone() }).await.unwrap();
        assert!(page.runs.is_empty() && page.looked_at <= 10, "{}", page.looked_at);
        pages += 1;
        before = page.next;
        let Some(next) = before else { break };
        assert_eq!(page.looked_back_to, Some(Query::time_of(next)), "how far it looked");
    }
    assert!((3..=4).contains(&pages), "{pages}");
    // Even without any time, each page makes progress.
    let hasty = Budget { time: Duration::ZERO, records: 0 };
    let page = backend.store.page(Query { budget: hasty, ..query() }).await.unwrap();
    assert!(page.looked_at >= 1 && page.next.is_some());
    // A page never has more rows than its limit.
    let page = backend.store.page(Query { limit: usize::MAX, ..query() }).await.unwrap();
    assert_eq!(page.runs.len(), 30);
}

pub(crate) async fn open_runs_are_found_behind_many_closed_ones(backend: &Backend) {
    let (runs, waits) =
        (backend.start("a").await, failed(backend, "b", &["timeout"], RunState::Waiting).await);
    for _ in 0..20 {
        backend.closed("a", 1, Timestamp::now()).await;
    }
    let budget = Budget { records: 3, ..query().budget };
    for (status, run) in [(Status::Running, runs), (Status::Waiting, waits)] {
        let tenants = Some(vec![run.tenant.clone(), "c".into()]);
        for tenants in [None, tenants] {
            let asked = Query { status: Some(status), tenants, budget, ..query() };
            let page = backend.store.page(asked).await.unwrap();
            assert_eq!((ids(&page), page.next), (vec![run.stream_id], None), "{status:?}");
        }
    }
}

pub(crate) async fn deleted_runs_are_on_no_page(backend: &Backend) {
    let run = failed(backend, "a", &["timeout"], RunState::Closed).await;
    let kept = failed(backend, "a", &["timeout"], RunState::Closed).await;
    let questions = || {
        let of_a = Query { tenants: Some(vec!["a".into()]), ..query() };
        [
            query(),
            Query { fault: Some("timeout".into()), ..query() },
            Query { request_id: Some("r-a".into()), ..query() },
            Query { trace_id: Some("t".repeat(32)), ..query() },
            Query { session: Some("session".into()), ..of_a.clone() },
            of_a,
        ]
    };
    for question in questions() {
        assert_eq!(
            ids(&backend.store.page(question).await.unwrap()),
            [kept.stream_id, run.stream_id]
        );
    }
    assert!(backend.store.purge(run.stream_id, Timestamp::now()).await.unwrap());
    for question in questions() {
        assert_eq!(ids(&backend.store.page(question).await.unwrap()), [kept.stream_id]);
    }
    let all = Retention { max_age: Duration::ZERO, ..Retention::default() };
    let later = Timestamp::from_micros(Timestamp::now().as_micros() + 10_000_000);
    backend.store.expire(&all, later).await.unwrap();
    for question in questions() {
        assert!(ids(&backend.store.page(question).await.unwrap()).is_empty());
    }
}

pub(crate) async fn rollups_add_up_and_expire_after_a_month(backend: &Backend) {
    let key = |agent: &str| RollupKey {
        tenant: "a".into(),
        agent: agent.into(),
        is_fault: true,
        code: "timeout".into(),
    };
    let row = |hour, agent: &str, fatal| {
        let mut counts = Counts { fatal, ..Counts::default() };
        counts.first_packet_after(120);
        Rollup { hour, key: key(agent), counts }
    };
    let store = &backend.store;
    store.add_rollups(vec![row(1000, "x", 1), row(1000, "y", 2), row(1001, "x", 3)]).await.unwrap();
    store.add_rollups(vec![row(1000, "x", 5)]).await.unwrap();
    let found = |from, to| async move {
        let mut rows = store.rollups(from, to).await.unwrap();
        rows.sort_by(|a, b| (a.hour, &a.key).cmp(&(b.hour, &b.key)));
        rows.iter()
            .map(|row| (row.hour, row.key.agent.clone(), row.counts.fatal))
            .collect::<Vec<_>>()
    };
    let (x, y) = ("x".to_owned(), "y".to_owned());
    assert_eq!(found(1000, 1000).await, [(1000, x.clone(), 6), (1000, y.clone(), 2)]);
    assert_eq!(found(0, 5000).await.len(), 3);
    assert!(found(1002, 5000).await.is_empty() && found(5, 4).await.is_empty());
    let first_packets = store
        .rollups(1000, 1000)
        .await
        .unwrap()
        .iter()
        .map(|row| row.counts.first_packet[2])
        .sum::<u64>();
    assert_eq!(first_packets, 3);
    store.add_rollups(vec![row(1000 + 30 * 24, "x", 1)]).await.unwrap();
    assert_eq!(found(0, 5000).await, [(1001, x.clone(), 3), (1720, x, 1)]);
}

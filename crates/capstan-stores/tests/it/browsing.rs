//! Random histories of runs. Every query by index must agree with the records.

mod many;
#[cfg(feature = "postgres")]
mod postgres;

use std::sync::Arc;
use std::time::Duration;

use capstan_journal::{
    Attempt, Budget, Claim, Frame, Query, Quota, Retention, Run, RunState, Status, Store,
    Transition,
};
use capstan_protocol::Timestamp;
use capstan_stores::{Durability, open};
use proptest::prelude::*;
use uuid::Uuid;

const CODES: [&str; 3] = ["timeout", "rate_limited", "made_up"];
const TENANTS: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone)]
enum Step {
    Claim {
        tenant: usize,
        session: u8,
        request: u8,
    },
    /// The attempt fails. The run waits or ends.
    Fail {
        at: prop::sample::Index,
        code: usize,
        is_last: bool,
    },
    Arm {
        at: prop::sample::Index,
        request: u8,
    },
    Finish {
        at: prop::sample::Index,
    },
    Purge {
        at: prop::sample::Index,
    },
    /// All closed runs expire.
    Expire,
    /// The store is closed or just dropped, and opened again.
    Reopen {
        is_orderly: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = any::<prop::sample::Index>;
    let step = prop_oneof![
        4 => (0..TENANTS.len(), 0..3_u8, 0..4_u8)
            .prop_map(|(tenant, session, request)| Step::Claim { tenant, session, request }),
        4 => (at(), 0..CODES.len(), any::<bool>()).prop_map(|(at, code, is_last)| Step::Fail { at,
        code, is_last }),
        2 => (at(), 0..4_u8).prop_map(|(at, request)| Step::Arm { at, request }),
        2 => at().prop_map(|at| Step::Finish { at }),
        1 => at().prop_map(|at| Step::Purge { at }),
        1 => Just(Step::Expire),
        1 => any::<bool>().prop_map(|is_orderly| Step::Reopen { is_orderly }),
    ];
    prop::collection::vec(step, 1..40)
}

struct Journal {
    url: String,
    store: Option<Arc<dyn Store>>,
}

impl Journal {
    fn store(&self) -> &Arc<dyn Store> {
        self.store.as_ref().unwrap()
    }

    async fn runs(&self) -> Vec<Run> {
        self.store().transfer().unwrap().runs_after(Uuid::nil(), usize::MAX).await.unwrap()
    }

    async fn one(&self, at: prop::sample::Index, is_it: impl Fn(&Run) -> bool) -> Option<Run> {
        let runs: Vec<_> = self.runs().await.into_iter().filter(is_it).collect();
        (!runs.is_empty()).then(|| at.get(&runs).clone())
    }

    async fn change(&self, run: Run, change: impl FnOnce(&mut Run)) {
        let from = (run.state, run.attempt);
        let mut to = Run { updated_at: Timestamp::now(), ..run };
        change(&mut to);
        let next = to.last_seq + 1;
        assert!(
            self.store()
                .transition(Transition::new(from, to, vec![Frame::new(next, "data: {}\n\n")], None))
                .await
                .unwrap()
        );
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Claim { tenant, session, request } => {
                let claim = Claim {
                    session: format!("s{session}"),
                    request_id: Some(format!("r{request}")),
                    trace_id: Some(format!("t{request}")),
                    max_attempts: 9,
                    ..Claim::new(
                        TENANTS[tenant],
                        Uuid::new_v4().to_string(),
                        Uuid::now_v7(),
                        Timestamp::now(),
                    )
                };
                self.store().claim(claim, &Quota::UNLIMITED).await.unwrap();
            }
            Step::Fail { at, code, is_last } => {
                let Some(run) = self.one(at, |run| run.state == RunState::Running).await else {
                    return;
                };
                self.change(run, |run| {
                    let attempt = run.attempts.last_mut().unwrap();
                    attempt.fault = Some(CODES[code].into());
                    run.fault = Some(CODES[code].into());
                    run.state = if is_last { RunState::Closed } else { RunState::Waiting };
                    run.closed_at = is_last.then_some(run.updated_at);
                })
                .await;
            }
            Step::Arm { at, request } => {
                let Some(run) = self.one(at, |run| run.state == RunState::Waiting).await else {
                    return;
                };
                self.change(run, |run| {
                    (run.state, run.attempt) = (RunState::Running, run.attempt + 1);
                    let request_id = Some(format!("r{request}"));
                    run.attempts
                        .push(Attempt { request_id, ..Attempt::new(run.attempt, run.updated_at) });
                })
                .await;
            }
            Step::Finish { at } => {
                let Some(run) = self.one(at, |run| run.state == RunState::Running).await else {
                    return;
                };
                self.change(run, |run| {
                    (run.state, run.fault, run.closed_at) =
                        (RunState::Closed, None, Some(run.updated_at));
                })
                .await;
            }
            Step::Purge { at } => {
                let Some(run) = self.one(at, |run| run.state == RunState::Closed).await else {
                    return;
                };
                assert!(self.store().purge(run.stream_id, Timestamp::now()).await.unwrap());
            }
            Step::Expire => {
                let all = Retention { max_age: Duration::ZERO, ..Retention::default() };
                let later = Timestamp::from_micros(Timestamp::now().as_micros() + 1_000_000);
                self.store().expire(&all, later).await.unwrap();
            }
            Step::Reopen { is_orderly } => {
                if is_orderly {
                    self.store().close().await.unwrap();
                }
                drop(self.store.take());
                self.store = Some(open(&self.url, Durability::Process).unwrap());
            }
        }
    }

    /// Compares every indexed query with the records.
    async fn check(&self) {
        let all = self.runs().await;
        let budget = Budget { records: usize::MAX, time: Duration::from_secs(60) };
        let asked = || Query { limit: Query::MOST, budget, ..Query::default() };
        let mut questions = vec![asked()];
        for code in CODES {
            let of_code = Query { fault: Some(code.into()), ..asked() };
            questions
                .push(Query { tenants: Some(vec!["a".into(), "c".into()]), ..of_code.clone() });
            questions.push(of_code);
        }
        for n in 0..4 {
            questions.push(Query { request_id: Some(format!("r{n}")), ..asked() });
            questions.push(Query { trace_id: Some(format!("t{n}")), ..asked() });
        }
        for tenant in TENANTS {
            let of_tenant = Query { tenants: Some(vec![tenant.into()]), ..asked() };
            questions.push(Query { session: Some("s1".into()), ..of_tenant.clone() });
            questions.push(of_tenant);
        }
        questions.extend(Status::ALL.map(|status| Query { status: Some(status), ..asked() }));
        for question in questions {
            let mut expected: Vec<_> =
                all.iter().filter(|run| says(run, &question)).map(|run| run.stream_id).collect();
            expected.reverse();
            let page = self.store().page(question.clone()).await.unwrap();
            let found: Vec<_> = page.runs.iter().map(|run| run.stream_id).collect();
            assert_eq!(found, expected, "{question:?}");
            assert_eq!(page.next, None);
        }
    }
}

/// Whether a record matches a query, by this test's own rules.
fn says(run: &Run, question: &Query) -> bool {
    let attempts = || run.attempts.iter();
    question.tenants.iter().all(|tenants| tenants.contains(&run.tenant))
        && question.agent.iter().all(|agent| *agent == run.agent)
        && question.session.iter().all(|session| *session == run.session)
        && question.status.iter().all(|status| *status == Status::of(run))
        && question
            .fault
            .iter()
            .all(|code| attempts().any(|attempt| attempt.fault.as_ref() == Some(code)))
        && question.request_id.iter().all(|id| {
            run.request_id.as_ref() == Some(id)
                || attempts().any(|attempt| attempt.request_id.as_ref() == Some(id))
        })
        && question.trace_id.iter().all(|id| run.trace_id.as_ref() == Some(id))
}

proptest! {
    // Each case opens journals and runs all queries, so a few cases are enough.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 10,
    ..ProptestConfig::default() })]

    #[test]
    fn queries_agree_with_the_records(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let url = format!("disk:{}", folder.path().join("journal").display());
            let store = Some(open(&url, Durability::Process).unwrap());
            let mut journal = Journal { url, store };
            for step in steps {
                journal.take(step).await;
            }
            journal.check().await;
            journal.take(Step::Reopen { is_orderly: false }).await;
            journal.check().await;
        });
    }
}

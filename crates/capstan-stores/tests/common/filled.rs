//! Fills a store with many runs, as gateways would. Each run follows from its number, so tests know
//! the result of every query.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use bytes::Bytes;
use capstan_journal::{Attempt, Claim, Frame, Quota, Run, RunState, Store, Transition};
use capstan_protocol::Timestamp;
use tokio::task::JoinSet;
use uuid::Uuid;

pub const AGENTS: [&str; 2] = ["demo", "steady"];
/// The fault of one run in ten, and of one in a thousand.
pub const OFTEN: &str = "upstream_timeout";
pub const SELDOM: &str = "content_refused";
/// The runs of a conversation.
pub const TURNS: usize = 20;
/// The most runs that are written concurrently.
const AT_ONCE: usize = 512;

/// Runs have numbers from 0. They are a second apart, and the newest is from now.
#[derive(Clone)]
pub struct Filling {
    pub tenants: Vec<String>,
    pub count: usize,
    now: Timestamp,
}

impl Filling {
    pub fn new(tenants: &[&str], count: usize) -> Self {
        let tenants = tenants.iter().map(|name| (*name).to_owned()).collect();
        Self { tenants, count, now: Timestamp::now() }
    }

    pub async fn fill(&self, store: &Arc<dyn Store>) {
        for first in (0..self.count).step_by(AT_ONCE) {
            let mut writes = JoinSet::new();
            for n in first..self.count.min(first + AT_ONCE) {
                let (filling, store) = (self.clone(), store.clone());
                writes.spawn(async move { filling.write(&*store, n).await });
            }
            while let Some(done) = writes.join_next().await {
                done.unwrap();
            }
        }
    }

    fn created_at(&self, n: usize) -> Timestamp {
        let ago = i64::try_from(self.count - n).unwrap() * 1_000_000;
        Timestamp::from_micros(self.now.as_micros() - ago)
    }

    /// The UUIDv7 of a run, with its time.
    pub fn stream(&self, n: usize) -> Uuid {
        let ms = u128::try_from(self.created_at(n).as_micros() / 1000).unwrap();
        Uuid::from_u128(ms << 80 | 7 << 76 | 2 << 62 | n as u128)
    }

    fn claim(&self, n: usize) -> Claim {
        let stream = self.stream(n);
        Claim {
            agent: AGENTS[n % AGENTS.len()].to_owned(),
            session: format!("session-{}", n / TURNS),
            face: "cap".into(),
            body: Bytes::from(format!(r#"{{"request_id":"{stream}"}}"#)),
            max_attempts: 3,
            request_id: Some(format!("ticket-{n}")),
            trace_id: Some(format!("{n:032x}")),
            ..Claim::new(
                &self.tenants[n % self.tenants.len()],
                format!("key-{n}"),
                stream,
                self.created_at(n),
            )
        }
    }

    /// A run as it ended. The first one has not ended.
    pub fn run(&self, n: usize) -> Run {
        let mut run = self.claim(n).to_run();
        // The oldest one is still running, and must be found behind all ended ones.
        if n == 0 {
            return run;
        }
        let at = |ms: i64| Timestamp::from_micros(run.created_at.as_micros() + ms * 1000);
        let (first, middle, last) = (at(40), at(400), at(900));
        let code = if n % 1000 == 500 { Some(SELDOM) } else { (n % 10 < 2).then_some(OFTEN) };
        let is_healed = n % 10 == 1;
        let attempt = &mut run.attempts[0];
        (attempt.first_packet_at, attempt.ended_at) =
            (Some(first), Some(if is_healed { middle } else { last }));
        (attempt.from_seq, attempt.to_seq, attempt.fault) =
            (Some(1), Some(3), code.map(str::to_owned));
        if is_healed {
            run.attempt = 2;
            run.attempts.push(Attempt { ended_at: Some(last), ..Attempt::new(2, middle) });
        } else {
            run.fault = code.map(str::to_owned);
        }
        let reason = match (&run.fault, n % 10) {
            (Some(_), _) => "error",
            (None, 2) => "cancelled",
            _ => "completed",
        };
        (run.state, run.reason) = (RunState::Closed, Some(reason.to_owned()));
        (run.updated_at, run.closed_at) = (last, Some(last));
        run
    }

    async fn write(&self, store: &dyn Store, n: usize) {
        let claim = self.claim(n);
        if self.run(n).is_open() {
            assert!(store.claim(claim, &Quota::UNLIMITED).await.unwrap().is_new);
            return;
        }
        let frames = packets(claim.stream_id, claim.created_at);
        assert!(store.claim(claim, &Quota::UNLIMITED).await.unwrap().is_new);
        assert!(
            store
                .transition(Transition::new((RunState::Running, 1), self.run(n), frames, None))
                .await
                .unwrap()
        );
    }
}

fn packets(stream: Uuid, at: Timestamp) -> Vec<Frame> {
    let packets = [
        ("DELTA", r#""A drum ""#),
        ("DELTA", r#""that turns.""#),
        ("CLOSE", r#"{"reason":"completed"}"#),
    ];
    let frame = |(seq, (op, p)): (u64, (&str, &str))| {
        let data =
            format!(r#"{{"stream_id":"{stream}","seq":{seq},"op":"{op}","t":"{at}","p":{p}}}"#);
        Frame::new(seq, format!("event: stream.packet\nid: {stream}:{seq}\ndata: {data}\n\n"))
    };
    (1..).zip(packets).map(frame).collect()
}

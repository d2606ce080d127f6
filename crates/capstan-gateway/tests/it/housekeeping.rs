//! What the gateway does unasked: it ends who waits for too long, without looking through
//! everything, and whatever fails on the way.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::odd_store::OddStore;
use crate::common::{Server, all, ask, close_reason, errors, serve_gateway, stream_of};
use capstan_agent::{Agent, Failure, Outcome, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, Settings, Timeouts};
use capstan_journal::{Journal, RunState};
use capstan_protocol::{ErrorSeverity, Fault, FaultKind};

/// Longer than the first back-off, so that the run may wait.
const SOON: Duration = Duration::from_millis(600);

/// Fails so that its run waits for its client, if it may wait this long.
struct Busy {
    wait: u32,
}

#[async_trait]
impl Agent for Busy {
    async fn run(&self, _turn: Turn, _out: &mut Writer) -> Outcome {
        Err(Failure::last(Fault::new(FaultKind::UpstreamError).with_retry_after(self.wait)))
    }

    fn max_attempts(&self) -> u32 {
        3
    }
}

async fn start(journal: Journal, wait: u32, waiting: Duration) -> Server {
    let timeouts = Timeouts { waiting, ..Timeouts::default() };
    let settings = Settings { timeouts, ..Settings::default() };
    serve_gateway(Gateway::new(journal).agent("busy", Busy { wait }).settings(settings)).await
}

#[tokio::test]
async fn a_run_that_cannot_be_ended_does_not_keep_the_others_from_it() {
    let (first, second) = (ask("first"), ask("second"));
    let store =
        OddStore { never_ends: first.context.session_id.to_string(), ..OddStore::new() }.shared();
    let server = start(store.journal(), 0, SOON).await;
    let (mut streams, mut scans) = (Vec::new(), 0);
    for request in [&first, &second] {
        let response = server.post(request).await;
        streams.push(stream_of(&response));
        scans = store.scans.load(Ordering::Relaxed);
        all(response).await;
    }
    let body = tokio::time::timeout(Duration::from_secs(8), async {
        all(server.get(&format!("/v1/streams/{}", streams[1])).await).await
    });
    let packets = body.await.expect("the second one is ended");
    assert_eq!(close_reason(&packets).as_deref(), Some("error"));
    let stubborn = store.store.run(streams[0].parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(stubborn.state, RunState::Waiting);
    assert_eq!(store.scans.load(Ordering::Relaxed), scans, "at the start, and never again");
}

#[tokio::test]
async fn a_wait_that_is_longer_than_a_run_may_wait_is_not_promised() {
    let server = start(crate::common::journal(), 3600, Duration::from_secs(300)).await;
    let packets = all(server.post(&ask("x")).await).await;
    let error = errors(&packets).pop().unwrap().clone();
    assert_eq!((error.code.as_str(), error.severity), ("upstream_error", ErrorSeverity::Fatal));
    assert_eq!(error.details.unwrap()["retry_after"], 3600, "a new request may succeed by then");
    assert_eq!(close_reason(&packets).as_deref(), Some("error"));
}

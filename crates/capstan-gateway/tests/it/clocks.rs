//! The clock may be set, forward and back: nobody waits longer or shorter for it, nothing is
//! forgotten, times do not go back.

use std::time::Duration;

use crate::common::{
    Server, all, ask, ask_in, close_reason, demo, disk, journal, serve_gateway, text,
};
use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, Settings, Timeouts};
use capstan_protocol::StreamPacket;
use uuid::Uuid;

const HOUR: i64 = 3600;

/// Seconds of real time that a test may take between two looks at the clock.
const MOMENT: f64 = 5.0;

fn assert_times_never_go_back(packets: &[StreamPacket]) {
    assert!(packets.is_sorted_by_key(|packet| packet.t), "{packets:?}");
}

/// The last wait that the gateway was to sleep through is about this long.
fn assert_waited(server: &Server, seconds: f64) {
    let waited = *server.waits().last().unwrap();
    assert!((seconds - MOMENT..=seconds).contains(&waited), "{waited} s instead of {seconds} s");
}

#[tokio::test]
async fn a_clock_that_is_set_changes_no_wait() {
    for seconds in [-60, -HOUR, HOUR] {
        let server = crate::common::start(Settings::default()).await;
        let request = ask("/flaky 1 --wait 60");
        assert_eq!(close_reason(&all(server.post(&request).await).await), None, "it waits");
        server.clock.set_by(seconds);
        let packets = all(server.post(&request).await).await;
        assert_eq!(close_reason(&packets).as_deref(), Some("completed"));
        assert_waited(&server, 60.0);
        assert_times_never_go_back(&packets);
        server.stop().await;
    }
}

#[tokio::test]
async fn a_clock_that_was_set_back_over_a_restart_prolongs_no_wait() {
    let folder = tempfile::tempdir().unwrap();
    let (waiting, running) = (ask("/flaky 1 --wait 60"), ask("/tokens 100000 --delay 1ms"));
    let timeouts = Timeouts { drain: Duration::ZERO, ..Timeouts::default() };
    let settings = Settings { timeouts, ..Settings::default() };
    let server = crate::common::start_on(disk(folder.path()), settings).await;
    all(server.post(&waiting).await).await;
    let response = server.post(&running).await;
    server.stop().await;
    let seen = all(response).await;

    let gateway = Gateway::new(disk(folder.path())).agent("demo", demo());
    let server = crate::common::serve_gateway_set_by(gateway, -HOUR).await;
    let packets = all(server.post(&waiting).await).await;
    assert_eq!(close_reason(&packets).as_deref(), Some("completed"));
    assert_waited(&server, 60.0);
    assert_times_never_go_back(&packets);
    // What ran is interrupted: its packets go on no earlier than the last one that was seen.
    let stopped = server.delete(&format!("/v1/streams/{}", seen[0].stream_id)).await;
    assert_eq!(stopped.status(), 200);
    let packets = all(server.get(&format!("/v1/streams/{}", seen[0].stream_id)).await).await;
    assert!(packets.starts_with(&seen));
    assert_times_never_go_back(&packets);
    server.stop().await;
}

/// Says how many messages it remembers.
struct Counts;

#[async_trait]
impl Agent for Counts {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        Ok(out.delta(turn.history.len().to_string()).await?)
    }
}

#[tokio::test]
async fn a_session_forgets_no_turn_when_the_clock_is_set() {
    let server = serve_gateway(Gateway::new(journal()).agent("counts", Counts)).await;
    let session = Uuid::now_v7();
    for (seconds, known) in [(0, "0"), (-HOUR, "2"), (2 * HOUR, "4"), (-HOUR, "6")] {
        server.clock.set_by(seconds);
        assert_eq!(text(&all(server.post(&ask_in(session, "x")).await).await), known);
    }
    server.stop().await;
}

//! The end of a schedule: everything comes to rest, and everything that was ever seen is looked at
//! again.

use std::time::Duration;

use capstan_journal::RunState;
use capstan_protocol::{ErrorSeverity, Payload, StreamPacket};
use uuid::Uuid;

use crate::model::client::{Place, Visit, packet};
use crate::model::life::Life;
use crate::model::run::Phase;
use crate::model::stream::Expected;

/// How long a run may take to come to rest: all attempts, their waits and time-outs.
const REST: u32 = 360;
const TICK: Duration = Duration::from_secs(10);

impl Life {
    /// Every stream ends; whoever reads it sees the same.
    pub(crate) async fn settle(&mut self) {
        self.stop_some();
        self.rest().await;
        self.check_waiting().await;
        self.ask_again().await;
        self.rest().await;
        self.late().await;
        self.finish_tasks().await;
        for run in self.open_runs().await {
            self.world.lock().fail(format!("{} is still {:?}", run.stream_id, run.state));
        }
        let runs = self.world.lock().runs.len();
        for run in 0..runs {
            self.check_run(run).await;
        }
    }

    /// Somebody may have had enough of it all.
    fn stop_some(&mut self) {
        let runs = self.world.lock().runs.len();
        for run in (0..runs).filter(|_| self.rng.u32(0..5) == 0) {
            if self.world.lock().runs[run].stream.is_some() {
                self.world.lock().note(format!("run {run} is stopped"));
                self.tasks.spawn(self.client.clone().stop(run));
            }
        }
    }

    /// Waits until nothing runs.
    async fn rest(&self) {
        for _ in 0..REST {
            // First of all, so that what was begun this moment is under way.
            tokio::time::sleep(TICK).await;
            if self.world.lock().has_failed() {
                return;
            }
            let is_running =
                self.open_runs().await.iter().any(|run| run.state == RunState::Running);
            if !is_running && self.world.lock().pending == 0 {
                return;
            }
        }
        let open = self.open_runs().await;
        let running: Vec<_> = open.iter().filter(|run| run.state == RunState::Running).collect();
        self.world.lock().fail(format!("an hour later, these still run: {running:?}"));
    }

    /// A run that waits has said so, with the last packet.
    async fn check_waiting(&self) {
        for run in self.open_runs().await {
            let packets = self.stored(run.stream_id).await;
            let last = packets.last().map(|packet| &packet.payload);
            if !matches!(last, Some(Payload::Error(e)) if e.severity == ErrorSeverity::Transient) {
                self.world.lock().fail(format!("{} waits after {last:?}", run.stream_id));
            }
            self.world.lock().count("waiting");
        }
    }

    /// Some clients come back, others never do.
    async fn ask_again(&mut self) {
        let runs = self.world.lock().runs.len();
        for run in 0..runs {
            let (phase, winner) = {
                let world = self.world.lock();
                (world.runs[run].phase, world.runs[run].winner)
            };
            if phase == Phase::Known && self.rng.bool() {
                self.world.lock().note(format!("run {run} is asked for again"));
                self.visit(Visit {
                    run,
                    post: winner,
                    place: Place::Start,
                    delay: Duration::ZERO,
                    frames: None,
                });
                self.rest_a_moment().await;
            }
        }
    }

    async fn rest_a_moment(&self) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    /// All runs are closed, so every body ends, and by itself.
    async fn finish_tasks(&mut self) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(Duration::from_secs(600), all).await.is_err() {
            self.world.lock().fail("all runs are closed, but some readers do not come to an end");
        }
    }

    async fn check_run(&mut self, index: usize) {
        let (phase, stream, winner) = {
            let world = self.world.lock();
            let run = &world.runs[index];
            (run.phase, run.stream, run.winner)
        };
        let (Phase::Known, Some(stream)) = (phase, stream) else { return };
        if self.world.lock().has_failed() {
            return;
        }
        let packets = self.stored(stream).await;
        self.check_stream(index, &packets);
        let tail = packets.last().map_or(0, |packet| packet.seq);
        if self.world.lock().tail(stream) > tail {
            self.world.lock().fail(format!("{stream} ends at {tail}, but somebody has seen more"));
        }
        let middle = self.rng.choice(&packets).map_or(0, |packet| packet.seq);
        for seq in [0, middle, tail] {
            for post in [None, winner] {
                self.visit(Visit {
                    run: index,
                    post,
                    place: Place::Cursor(seq),
                    delay: Duration::ZERO,
                    frames: None,
                });
            }
        }
        self.finish_tasks().await;
    }

    fn check_stream(&self, index: usize, packets: &[StreamPacket]) {
        let mut world = self.world.lock();
        let outcome = Expected::new(&world, &world.runs[index]).check(packets);
        match outcome {
            Ok(told) => world.count(Expected::outcome(&told)),
            Err(why) => {
                let lines = packets.iter().map(|packet| format!("\n    {}", packet.to_json()));
                let lines: String = lines.collect();
                world.fail(format!("run {index}: {why}{lines}"));
            }
        }
    }

    async fn stored(&self, stream: Uuid) -> Vec<StreamPacket> {
        let frames = self.truth.read(stream, 0, usize::MAX, usize::MAX).await.unwrap();
        frames.iter().filter_map(|frame| packet(&frame.bytes).ok()).collect()
    }
}

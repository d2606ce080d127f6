//! The end of a cluster's schedule: whoever was taken is back, everything comes to rest, and every
//! stream is looked at everywhere.

use std::time::Duration;

use capstan_journal::{Found, RunState};
use capstan_protocol::{Payload, StreamPacket};
use uuid::Uuid;

use super::schedule::Schedule;
use super::town::GATEWAYS;
use crate::model::client::{Place, Visit, packet};
use crate::model::observe::learn;
use crate::model::run::Phase;
use crate::model::stream::Expected;

/// How long a run may take to come to rest: attempts, their waits, taking over.
const REST: u32 = 60;
const TICK: Duration = Duration::from_secs(17);
/// How often a client that wants to know comes back.
const RETURNS: u32 = 5;

impl Schedule<'_> {
    pub(crate) async fn settle(&mut self) {
        if self.has_failed() {
            return;
        }
        self.town.note("it settles".into());
        for place in 0..GATEWAYS {
            self.town.wake(place);
        }
        self.town.fill().await;
        self.rest().await;
        self.observe().await;
        self.check_stops().await;
        for _ in 0..RETURNS {
            if !self.ask_again().await {
                break;
            }
            self.rest().await;
        }
        for run in self.town.open_runs().await {
            self.fail(format!("{} is still {:?}", run.stream_id, run.state));
        }
        self.look_everywhere().await;
        self.finish_clients().await;
    }

    fn fail(&self, why: String) {
        self.town.world.lock().fail(why);
    }

    /// Until nothing runs and nobody waits for an answer.
    async fn rest(&mut self) {
        for _ in 0..REST {
            self.town.pass(TICK).await;
            let is_running =
                self.town.open_runs().await.iter().any(|run| run.state == RunState::Running);
            if self.has_failed() || (!is_running && self.town.world.lock().pending == 0) {
                return;
            }
        }
        let (open, pending) = (self.town.open_runs().await, self.town.world.lock().pending);
        self.fail(format!(
            "after so long these are open, and {pending} requests without an answer: {open:?}"
        ));
    }

    /// Learns what became of every key, be it claimed unseen.
    async fn observe(&self) {
        let keys: Vec<Uuid> = self.town.world.lock().runs.iter().map(|run| run.key).collect();
        for (index, key) in keys.into_iter().enumerate() {
            let found = self.town.truth().find("local", &key.to_string()).await.unwrap();
            let body = match &found {
                Some(Found::Run(run)) => self.town.truth().body(run.stream_id).await.unwrap(),
                Some(Found::Expired) | None => None,
            };
            let mut world = self.town.world.lock();
            let outcome = learn(&mut world.runs[index], found, body.as_deref(), false);
            world.check(outcome);
        }
    }

    /// What was asked to stop has stopped, though nobody asked again.
    async fn check_stops(&self) {
        let owed: Vec<_> = {
            let world = self.town.world.lock();
            world.runs.iter().filter(|run| run.is_stop_owed).filter_map(|run| run.stream).collect()
        };
        for run in self.town.open_runs().await.iter().filter(|run| owed.contains(&run.stream_id)) {
            self.fail(format!("{} was asked to stop and is {:?}", run.stream_id, run.state));
        }
    }

    /// Clients come back for what waits; whether there was any.
    async fn ask_again(&mut self) -> bool {
        let open: Vec<_> = self.town.open_runs().await.iter().map(|run| run.stream_id).collect();
        let waiting: Vec<_> = {
            let world = self.town.world.lock();
            let of =
                |run: &crate::model::run::Run| run.stream.filter(|stream| open.contains(stream));
            world
                .runs
                .iter()
                .filter(|run| of(run).is_some())
                .map(|run| (run.name, run.winner))
                .collect()
        };
        for (run, post) in &waiting {
            let (run, post) = (*run, *post);
            self.visit(Visit {
                run,
                post,
                place: Place::Start,
                delay: Duration::ZERO,
                frames: None,
            });
        }
        !waiting.is_empty()
    }

    /// Each stream is right, and the same at each gateway.
    async fn look_everywhere(&mut self) {
        let runs: Vec<_> = {
            let world = self.town.world.lock();
            let known = world.runs.iter().filter(|run| run.phase == Phase::Known);
            known.filter_map(|run| Some((run.name, run.winner, run.stream?))).collect()
        };
        for (run, winner, stream) in runs {
            if self.has_failed() {
                return;
            }
            let packets = self.stored(stream).await;
            self.check_stream(run, stream, &packets);
            let middle = self.rng.choice(&packets).map_or(0, |packet| packet.seq);
            for place in 0..GATEWAYS {
                let seq = if place == 0 { 0 } else { middle };
                let post = winner.filter(|_| place == 1);
                let place_of = Place::Cursor(seq);
                self.visit_at(
                    place,
                    Visit { run, post, place: place_of, delay: Duration::ZERO, frames: None },
                );
                self.visit_at(
                    place,
                    Visit {
                        run,
                        post: None,
                        place: Place::Cursor(0),
                        delay: Duration::ZERO,
                        frames: None,
                    },
                );
            }
            self.town.world.lock().count("read elsewhere");
        }
    }

    async fn stored(&self, stream: Uuid) -> Vec<StreamPacket> {
        let frames = self.town.truth().read(stream, 0, usize::MAX, usize::MAX).await.unwrap();
        frames.iter().filter_map(|frame| packet(&frame.bytes).ok()).collect()
    }

    fn check_stream(&self, index: usize, stream: Uuid, packets: &[StreamPacket]) {
        let mut world = self.town.world.lock();
        let tail = packets.last().map_or(0, |packet| packet.seq);
        if world.tail(stream) > tail {
            world.fail(format!("{stream} ends at {tail}, but somebody has seen more"));
        }
        if packets.iter().any(
            |packet| matches!(&packet.payload, Payload::Error(e) if e.code == "run_interrupted"),
        ) {
            world.count("taken over");
        }
        let outcome = Expected::new(&world, &world.runs[index]).check(packets);
        match outcome {
            Ok(told) => world.count(Expected::outcome(&told)),
            Err(why) => {
                let lines: String =
                    packets.iter().map(|packet| format!("\n    {}", packet.to_json())).collect();
                world.fail(format!("run {index}: {why}{lines}"));
            }
        }
    }

    /// All runs are closed, so every body ends.
    async fn finish_clients(&mut self) {
        for _ in 0..REST {
            self.town.quiet().await;
            if self.has_failed() || self.town.work().await == 0 {
                return;
            }
            self.town.pass(TICK).await;
        }
        self.fail("all runs are closed, but some readers do not come to an end".into());
    }
}

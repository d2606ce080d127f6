//! What happens in a cluster: chosen by the seed, noted, done. What clients do is begun and not
//! waited for.

use std::time::Duration;

use fastrand::Rng;

use super::town::{GATEWAYS, TAKING_OVER, Town};
use crate::model::client::{Place, Visit};
use crate::model::run::{Phase, Run};
use crate::model::step;

/// Runs in one schedule: few, so that steps meet.
const RUNS: usize = 3;
/// A crash costs half a second of real time, so most schedules do without.
const CRASHES: u32 = 8;

pub(crate) struct Schedule<'a> {
    pub(crate) town: &'a mut Town,
    pub(crate) rng: Rng,
    /// Before which step the server crashes, if it does.
    crash_at: Option<usize>,
}

impl<'a> Schedule<'a> {
    pub(crate) fn new(town: &'a mut Town, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let crash_at = (rng.u32(0..CRASHES) == 0).then(|| rng.usize(2..6));
        Self { town, rng, crash_at }
    }

    pub(crate) async fn work(&mut self) {
        // Some towns are left in peace, so that what must not happen without a cause is seen.
        let is_peaceful = self.rng.u32(0..4) == 0;
        for n in 0..self.rng.usize(6..22) {
            if self.crash_at == Some(n) {
                self.town.crash().await;
            }
            if self.has_failed() {
                return;
            }
            let what = if is_peaceful { self.rng.u32(0..70) } else { self.rng.u32(0..100) };
            self.step(what).await;
            for _ in 0..self.rng.u32(0..3) {
                self.town.work().await;
            }
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.town.world.lock().has_failed()
    }

    async fn step(&mut self, what: u32) {
        let runs = self.town.world.lock().runs.len();
        if runs == 0 || (runs < RUNS && self.rng.u32(0..6) == 0) {
            return self.begin_run();
        }
        let (run, place) = (self.rng.usize(0..runs), self.rng.usize(0..GATEWAYS));
        match what {
            0..12 => self.post(run),
            12..18 => (0..self.rng.usize(2..5)).for_each(|_| self.post(run)),
            18..34 => self.resume(run),
            34..40 => self.each(|replica, n| replica.cut(n)),
            40..44 => self.stop(run),
            44..70 => self.pass().await,
            70..76 => {
                self.town.kill(place);
                self.miss().await;
            }
            76..83 => {
                self.town.freeze(place);
                self.miss().await;
            }
            83..86 => self.town.wake(place),
            86..89 => _ = self.town.begin(place).await,
            89..92 => self.town.drain(place).await,
            _ => self.town.pass(TAKING_OVER).await,
        }
    }

    /// Often long enough for others to take over.
    async fn miss(&mut self) {
        if self.rng.bool() {
            self.town.pass(TAKING_OVER).await;
        }
    }

    async fn pass(&mut self) {
        let time = match self.rng.u32(0..6) {
            0..2 => Duration::from_millis(self.rng.u64(1..100)),
            2..5 => Duration::from_millis(self.rng.u64(100..12_000)),
            _ => Duration::from_secs(self.rng.u64(12..60)),
        };
        self.town.note(format!("{time:?} pass"));
        self.town.pass(time).await;
    }

    fn begin_run(&mut self) {
        let accepts_reset = self.rng.u32(0..3) > 0;
        let run = {
            let mut world = self.town.world.lock();
            let name = world.runs.len();
            let mut run = Run::new(name, accepts_reset);
            run.is_anybodys = true;
            world.runs.push(run);
            name
        };
        self.visit(Visit {
            run,
            post: Some(0),
            place: Place::Start,
            delay: Duration::ZERO,
            frames: None,
        });
    }

    fn post(&mut self, run: usize) {
        let visit = step::post(&mut self.rng, run, &self.town.world.lock());
        self.visit(visit);
    }

    fn resume(&mut self, run: usize) {
        if self.is_known(run) {
            let visit = step::resume(&mut self.rng, run, &self.town.world.lock());
            self.visit(visit);
        }
    }

    fn is_known(&self, run: usize) -> bool {
        let world = self.town.world.lock();
        world.runs[run].phase != Phase::Fresh && world.runs[run].stream.is_some()
    }

    /// Somewhere, if anybody is there.
    pub(crate) fn visit(&mut self, visit: Visit) {
        let place = self.rng.usize(0..GATEWAYS);
        self.visit_at(place, visit);
    }

    pub(crate) fn visit_at(&mut self, place: usize, visit: Visit) {
        let rng = self.rng.fork();
        if let Some(replica) = &self.town.places[place] {
            self.town.note(format!("{visit:?} at life {}", replica.life));
            replica.visit(visit, rng);
        }
    }

    pub(crate) fn stop(&mut self, run: usize) {
        let place = self.rng.usize(0..GATEWAYS);
        if let Some(replica) = self.town.places[place].as_ref().filter(|_| self.is_known(run)) {
            self.town.note(format!("run {run} is stopped at life {}", replica.life));
            replica.stop(run);
        }
    }

    fn each(&mut self, act: impl Fn(&super::replica::Replica, usize)) {
        let which = self.rng.usize(0..100);
        self.town.places.iter().flatten().for_each(|replica| act(replica, which));
    }
}

//! The steps of a schedule: chosen by the seed, noted, done. Most are begun and not waited for, so
//! that they overlap.

use std::time::Duration;

use fastrand::Rng;

use crate::model::client::{Place, Visit};
use crate::model::run::Phase;
use crate::model::world::World;

/// Runs in one schedule: few, so that steps meet.
const RUNS: usize = 3;

#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A run that nobody has asked for yet.
    New,
    Visit(Visit),
    /// Several POSTs at once.
    Race(Vec<Visit>),
    /// A reader goes away.
    Cut(usize),
    Stop(usize),
    Collect(usize),
    Pass(Duration),
    /// Runs that wait have waited for too long.
    Late,
    /// A week passes: streams go, and claims whose streams went the week before.
    Expire,
    /// Something that must be refused.
    Probe(usize),
}

impl Step {
    pub(crate) fn choose(rng: &mut Rng, world: &World) -> Self {
        if world.runs.is_empty() || (world.runs.len() < RUNS && rng.u32(0..6) == 0) {
            return Self::New;
        }
        let run = rng.usize(0..world.runs.len());
        let is_known = world.runs[run].phase != Phase::Fresh && world.runs[run].stream.is_some();
        match rng.u32(0..100) {
            0..14 => Self::Visit(post(rng, run, world)),
            14..18 => Self::Race(hammer(rng, run, world)),
            18..24 => Self::Race((0..rng.usize(2..5)).map(|_| post(rng, run, world)).collect()),
            24..44 if is_known => Self::Visit(resume(rng, run, world)),
            44..54 => Self::Cut(rng.usize(0..100)),
            54..59 if is_known => Self::Stop(run),
            59..63 if is_known => Self::Collect(run),
            63..67 => Self::Probe(run),
            67..70 => Self::Late,
            70..73 => Self::Expire,
            _ => Self::Pass(pause(rng)),
        }
    }
}

fn pause(rng: &mut Rng) -> Duration {
    match rng.u32(0..8) {
        0..3 => Duration::from_millis(rng.u64(0..50)),
        3..6 => Duration::from_millis(rng.u64(0..10_000)),
        6 => Duration::from_secs(rng.u64(10..90)),
        _ => Duration::from_secs(rng.u64(90..300)),
    }
}

/// A POST from the start, now and then with the other body.
pub(crate) fn post(rng: &mut Rng, run: usize, world: &World) -> Visit {
    let is_other = rng.u32(0..5) == 0;
    let variant = world.runs[run].winner.unwrap_or(0);
    let post = Some(if is_other { 1 - variant } else { variant });
    Visit { run, post, place: Place::Start, delay: Duration::ZERO, frames: frames(rng) }
}

/// A client that does not wait until it may come back.
fn hammer(rng: &mut Rng, run: usize, world: &World) -> Vec<Visit> {
    let gap = Duration::from_millis(rng.u64(1..400));
    (0..8).map(|n| Visit { delay: gap * n, frames: Some(1), ..post(rng, run, world) }).collect()
}

/// A viewer that comes back by POST or GET with what somebody has seen.
pub(crate) fn resume(rng: &mut Rng, run: usize, world: &World) -> Visit {
    let model = &world.runs[run];
    let seqs = model.stream.map(|stream| world.seqs(stream)).unwrap_or_default();
    let seq = match rng.u32(0..3) {
        0 => seqs.last().copied().unwrap_or(0),
        1 => rng.choice(&seqs).copied().unwrap_or(0),
        _ => 0,
    };
    let place = match rng.u32(0..6) {
        0 => Place::Bare,
        1 => Place::Start,
        2 => Place::After(seq),
        _ => Place::Cursor(seq),
    };
    let post = model.winner.filter(|_| rng.bool());
    Visit { run, post, place, delay: Duration::ZERO, frames: frames(rng) }
}

fn frames(rng: &mut Rng) -> Option<usize> {
    (rng.u32(0..3) == 0).then(|| rng.usize(0..6))
}

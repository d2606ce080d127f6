//! Times several contenders on the same work, in turns, so that a slow moment of the machine hits
//! all of them.

use std::time::{Duration, Instant};

/// One way to do the work.
pub struct Contender<'a> {
    pub name: &'static str,
    pub work: Box<dyn FnMut() + 'a>,
}

impl<'a> Contender<'a> {
    pub fn new(name: &'static str, work: impl FnMut() + 'a) -> Self {
        Self { name, work: Box::new(work) }
    }
}

/// How long each round of a contender took, in nanoseconds.
pub struct Times {
    pub name: &'static str,
    pub nanos: Vec<u64>,
}

impl Times {
    pub fn median(&self) -> u64 {
        let mut sorted = self.nanos.clone();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    }

    pub fn fastest(&self) -> u64 {
        self.nanos.iter().copied().min().unwrap_or(0)
    }
}

/// A, B, C, A, B, C, …, after one round that does not count.
pub fn race(mut contenders: Vec<Contender<'_>>, rounds: usize) -> Vec<Times> {
    let mut times: Vec<Times> = contenders
        .iter()
        .map(|c| Times { name: c.name, nanos: Vec::with_capacity(rounds) })
        .collect();
    for contender in &mut contenders {
        (contender.work)();
    }
    for _ in 0..rounds {
        for (contender, times) in contenders.iter_mut().zip(&mut times) {
            times.nanos.push(clock(&mut contender.work).as_nanos() as u64);
        }
    }
    times
}

fn clock(work: &mut dyn FnMut()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

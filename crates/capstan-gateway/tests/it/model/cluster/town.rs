//! All gateways of a schedule and the one clock of them all.

use std::sync::Arc;
use std::time::Duration;

use capstan_journal::{Run, Store};
use fastrand::Rng;
use futures_util::future::join_all;
use tokio::runtime::Handle;

use super::replica::{Birth, Kind, LEASE, Replica, is_asking};
use super::server::Server;
use crate::model::truth::Truth;
use crate::model::world::Shared;

pub(crate) const GATEWAYS: usize = 3;
/// The longest step of the clock: nobody misses so many signs of life by it that others take over.
const STRIDE: Duration = Duration::from_secs(17);
/// After a gateway has said its last word its runs are somebody else's within this.
pub(crate) const TAKING_OVER: Duration = LEASE.saturating_add(Duration::from_secs(42));
/// So often in a row nobody may be at work before the clock moves.
const QUIET: u32 = 2;
/// Between two looks at whether anybody is at work, in real time.
const BREATH: Duration = Duration::from_micros(400);
/// Then it moves all the same: somebody asks the server in a loop.
const STORM: u32 = 100_000;

/// So many seeds in a row have gateways of the same kinds: those that nothing was done to live on
/// from one schedule to the next. To begin one costs the server ten connections, which is most of
/// what a schedule costs.
const GENERATION: u64 = 10;

pub(crate) struct Town {
    server: Server,
    pub(crate) world: Shared,
    /// A place each; empty where one has died.
    pub(crate) places: [Option<Replica>; GATEWAYS],
    kinds: [Kind; GATEWAYS],
    lives: u32,
    /// What has passed of this schedule's time.
    passed: Duration,
}

impl Town {
    /// `None` where there is no PostgreSQL.
    pub(crate) async fn start() -> Self {
        Self {
            server: Server::start().await,
            world: Shared::new(0),
            places: [None, None, None],
            kinds: kinds(0),
            lives: 0,
            passed: Duration::ZERO,
        }
    }

    /// Another schedule begins: whoever is here is of the kinds that its seed asks for.
    pub(crate) async fn renew(&mut self, seed: u64) {
        self.kinds = kinds(seed);
        for (place, kind) in self.places.iter_mut().zip(self.kinds) {
            place
                .take_if(|replica| replica.is_worn || replica.kind != kind)
                .into_iter()
                .for_each(Replica::die);
        }
        self.world.renew(seed);
        self.world.lock().begin_life();
        self.passed = Duration::ZERO;
        // Only who has been steady for a while takes over from others.
        if self.fill().await {
            self.pass(LEASE).await;
        }
    }

    /// A gateway at each place; whether there was room for any.
    pub(crate) async fn fill(&mut self) -> bool {
        let mut is_new = false;
        for place in 0..GATEWAYS {
            is_new |= self.begin(place).await;
        }
        is_new
    }

    pub(crate) fn truth(&self) -> &Arc<dyn Store> {
        &self.server.truth
    }

    pub(crate) async fn open_runs(&self) -> Vec<Run> {
        self.truth().open_runs().await.unwrap()
    }

    /// A gateway takes the place, if it is free; whether it was. Some hear no notices.
    pub(crate) async fn begin(&mut self, place: usize) -> bool {
        if self.places[place].is_some() {
            return false;
        }
        self.lives += 1;
        let kind = self.kinds[place];
        self.note(format!("place {place}: life {} begins, {kind:?}", self.lives));
        let birth = Birth {
            url: self.server.url(),
            listen_url: kind.is_deaf.then(|| self.server.deaf_url()),
            truth: Truth { store: Arc::clone(self.truth()), home: Some(Handle::current()) },
            world: self.world.clone(),
            life: self.lives,
            kind,
        };
        self.places[place] = Some(Replica::begin(birth).await);
        true
    }

    pub(crate) fn note(&self, what: String) {
        self.world.lock().note(format!("at {:?}: {what}", self.passed));
    }

    /// Something is done to a gateway: from here on runs may be interrupted.
    fn shake(&self, what: &'static str, place: usize, is_an_end: bool) {
        let mut world = self.world.lock();
        world.note(format!("at {:?}: place {place}: {what}", self.passed));
        world.count(what);
        world.interruptions += u32::from(is_an_end);
    }

    pub(crate) fn kill(&mut self, place: usize) {
        if let Some(replica) = self.places[place].take() {
            self.shake("a death", place, true);
            replica.die();
        }
    }

    pub(crate) fn freeze(&mut self, place: usize) {
        if let Some(replica) = self.places[place].as_mut().filter(|replica| !replica.is_frozen()) {
            replica.freeze();
            self.shake("a freeze", place, true);
        }
    }

    pub(crate) fn wake(&mut self, place: usize) {
        if let Some(replica) = self.places[place].as_mut().filter(|replica| replica.is_frozen()) {
            replica.wake();
            self.shake("wakes", place, false);
        }
    }

    /// Leaves in good order, to the end.
    pub(crate) async fn drain(&mut self, place: usize) {
        let Some(replica) = self.places[place].as_ref().filter(|replica| !replica.is_frozen())
        else {
            return;
        };
        let mut is_done = replica.drain();
        self.shake("a drain", place, true);
        self.world.lock().is_draining = true;
        for _ in 0..100 {
            if is_done.try_recv().is_ok() {
                if let Some(replica) = self.places[place].take() {
                    replica.die();
                }
                self.world.lock().is_draining = false;
                return;
            }
            self.pass(Duration::from_secs(1)).await;
        }
        self.world.lock().fail("draining does not end");
    }

    /// The server loses what it had not flushed.
    pub(crate) async fn crash(&mut self) {
        {
            let mut world = self.world.lock();
            world.note("the server crashes");
            world.count("a crash of the server");
            (world.power_cuts, world.interruptions) =
                (world.power_cuts + 1, world.interruptions + 1);
        }
        self.server.crash().await;
        // Whoever had a connection makes another, after a while.
        for _ in 0..24 {
            self.pass(Duration::from_millis(250)).await;
        }
    }

    /// Time passes for all, the database first, in strides. Before each everybody has done what
    /// there was to do.
    pub(crate) async fn pass(&mut self, time: Duration) {
        let mut left = time;
        loop {
            self.quiet().await;
            let stride = left.min(STRIDE);
            left -= stride;
            self.passed += stride;
            self.server.step(stride).await;
            join_all(self.places.iter_mut().flatten().map(|replica| replica.advance(stride))).await;
            if left.is_zero() {
                return self.quiet().await;
            }
        }
    }

    /// Until nobody has anything to do but to wait for the clock.
    pub(crate) async fn quiet(&self) {
        let mut quiet = 0;
        for _ in 0..STORM {
            if quiet == QUIET {
                return;
            }
            self.work().await;
            // Nothing tells when the server has answered, or a notice has come; to look all the
            // time would take the core that they need.
            tokio::time::sleep(BREATH).await;
            quiet = if self.is_asking() { 0 } else { quiet + 1 };
        }
        self.world.lock().fail("the server is asked in a loop without end");
    }

    /// Whether the server owes anybody an answer.
    fn is_asking(&self) -> bool {
        is_asking(&**self.truth()) || self.places.iter().flatten().any(Replica::is_asking)
    }

    /// Lets all gateways do what they can; how many clients they have left.
    pub(crate) async fn work(&self) -> usize {
        join_all(self.places.iter().flatten().map(Replica::work)).await.into_iter().sum()
    }

    /// Everybody goes.
    pub(crate) fn leave(mut self) {
        self.places.iter_mut().filter_map(Option::take).for_each(Replica::die);
    }
}

/// What the gateways of a generation are like.
fn kinds(seed: u64) -> [Kind; GATEWAYS] {
    let mut rng = Rng::with_seed(seed / GENERATION);
    std::array::from_fn(|_| Kind::choose(&mut rng))
}

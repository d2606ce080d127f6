//! One life of the gateway: a runtime with a paused clock over a store that outlives it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_gateway::{Gateway, Service, Settings};
use capstan_journal::{Journal, RunState, Store, TailLimits};
use fastrand::Rng;
use tokio::task::{AbortHandle, JoinSet};
use uuid::Uuid;

use crate::model::agent::Scripted;
use crate::model::client::{Client, Place, Visit, delete, get_with};
use crate::model::run::{Phase, Run};
use crate::model::step::Step;
use crate::model::store::{Calendar, Shaky};
use crate::model::truth::Truth;
use crate::model::world::Shared;

/// The sweeper comes every minute and looks every five seconds whether it has; a slow store may
/// hold it up.
const SWEEP: Duration = Duration::from_secs(68);
/// How long a run may wait: longer than anything but [`Life::late`] takes.
const WAITING: Duration = Duration::from_secs(3600);
/// After this every wait is over, since a client has as long again from when it may come back.
const TOO_LONG: Duration = Duration::from_secs(2 * 3600 + 60);

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fate {
    /// The process dies at this point of its dealings with the store, or after the last step if it
    /// gets there.
    Crash(i64),
    /// It is told to stop and drains.
    Drain,
    /// It is the last one: everything is brought to its end and looked at.
    Settle,
}

/// What outlives a process.
pub(crate) struct Land {
    pub(crate) world: Shared,
    pub(crate) truth: Arc<dyn Store>,
    pub(crate) calendar: Arc<Calendar>,
}

pub(crate) struct Life {
    pub(crate) world: Shared,
    pub(crate) truth: Arc<dyn Store>,
    pub(crate) calendar: Arc<Calendar>,
    pub(crate) client: Client,
    pub(crate) rng: Rng,
    pub(crate) tasks: JoinSet<()>,
    readers: Vec<AbortHandle>,
}

/// Lives one life to its fate.
pub(crate) fn live(land: &Land, rng: &mut Rng, fate: Fate) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    land.calendar.is_jumping.store(false, Ordering::Relaxed);
    let is_power_cut = land.world.lock().life > 0 && rng.u32(0..6) == 0;
    {
        let mut world = land.world.lock();
        world.begin_life();
        world.power_cuts += u32::from(is_power_cut);
        world.note(format!(
            "begins, will end by {fate:?}{}",
            if is_power_cut { ", after a power cut" } else { "" }
        ));
    }
    let (calendar, world) = (Arc::clone(&land.calendar), land.world.clone());
    let store =
        Arc::new(Shaky::new(Arc::clone(&land.truth), calendar, world, rng.fork(), !is_power_cut));
    if let Fate::Crash(points) = fate {
        store.light_fuse(points);
    }
    let crash = store.crash();
    runtime.block_on(async {
        tokio::select! {
            biased;
            () = crash.cancelled() => land.world.lock().note("the process dies"),
            () = Life::run(land, store, rng, fate) => {}
        }
    });
    // Every task is dropped where it stands: this is the death of the process.
    drop(runtime);
    land.world.lock().interruptions += 1;
}

impl Life {
    async fn run(land: &Land, store: Arc<Shaky>, rng: &mut Rng, fate: Fate) {
        let gateway = gateway(land, store, rng);
        let service = match Service::start(gateway).await {
            Ok(service) => service,
            Err(error) => {
                return land.world.lock().fail(format!("the gateway does not start: {error}"));
            }
        };
        let (world, truth) = (land.world.clone(), Arc::clone(&land.truth));
        let client = Client {
            router: service.router(),
            world: world.clone(),
            truth: Truth { store: Arc::clone(&truth), home: None },
            is_shared: false,
        };
        let mut life = Self {
            world,
            truth,
            calendar: Arc::clone(&land.calendar),
            client,
            rng: rng.fork(),
            tasks: JoinSet::new(),
            readers: Vec::new(),
        };
        life.check_recovered().await;
        life.observe().await;
        life.work().await;
        match fate {
            Fate::Crash(_) => {}
            Fate::Drain => life.drain(service).await,
            Fate::Settle => life.settle().await,
        }
    }

    async fn work(&mut self) {
        for _ in 0..self.rng.usize(3..18) {
            if self.world.lock().has_failed() {
                return;
            }
            let step = Step::choose(&mut self.rng, &self.world.lock());
            self.world.lock().note(format!("{step:?}"));
            self.perform(step).await;
            for _ in 0..self.rng.u32(0..6) {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn perform(&mut self, step: Step) {
        match step {
            Step::New => self.begin(),
            Step::Visit(visit) => self.visit(visit),
            Step::Race(visits) => visits.into_iter().for_each(|visit| self.visit(visit)),
            Step::Cut(which) => self.cut(which),
            Step::Stop(run) => drop(self.tasks.spawn(self.client.clone().stop(run))),
            Step::Collect(run) => self.collect(run),
            Step::Pass(time) => tokio::time::sleep(time).await,
            Step::Late => self.late().await,
            Step::Expire => self.expire().await,
            Step::Probe(run) => self.probe(run).await,
        }
    }

    fn begin(&mut self) {
        let accepts_reset = self.rng.u32(0..3) > 0;
        let run = {
            let mut world = self.world.lock();
            let name = world.runs.len();
            world.runs.push(Run::new(name, accepts_reset));
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

    pub(crate) fn visit(&mut self, visit: Visit) {
        let rng = self.rng.fork();
        self.readers.push(self.tasks.spawn(self.client.clone().visit(visit, rng)));
    }

    fn cut(&mut self, which: usize) {
        self.readers.retain(|reader| !reader.is_finished());
        if !self.readers.is_empty() {
            let which = which % self.readers.len();
            self.readers.swap_remove(which).abort();
        }
    }

    fn collect(&mut self, run: usize) {
        let winner = self.world.lock().runs[run].winner;
        if let Some(winner) = winner {
            self.tasks.spawn(self.client.clone().collect(run, winner));
        }
    }

    /// Whoever waits now has waited for too long, unless a client comes back first.
    pub(crate) async fn late(&mut self) {
        self.world.lock().sweeps += 1;
        let waiting = self.open_runs().await;
        tokio::time::sleep(TOO_LONG).await;
        for run in self.open_runs().await.iter().filter(|run| run.state == RunState::Waiting) {
            let was = waiting.iter().find(|was| was.stream_id == run.stream_id);
            if was.is_some_and(|was| (was.state, was.attempt) == (run.state, run.attempt)) {
                self.world
                    .lock()
                    .fail(format!("{} waited for too long and was not ended", run.stream_id));
            }
        }
    }

    /// A week passes. Requests under way are answered first, so that the model knows which week
    /// they met.
    async fn expire(&mut self) {
        self.answer_all().await;
        let mut closed = Vec::new();
        for stream in self.streams() {
            let run = self.truth.run(stream).await.ok().flatten();
            closed.extend(run.filter(|run| run.state == RunState::Closed).map(|_| stream));
        }
        self.world.lock().is_expiring = true;
        self.calendar.jumps.fetch_add(1, Ordering::Relaxed);
        self.calendar.is_jumping.store(true, Ordering::Relaxed);
        tokio::time::sleep(SWEEP).await;
        self.calendar.is_jumping.store(false, Ordering::Relaxed);
        self.observe().await;
        for stream in closed {
            if self.truth.run(stream).await.ok().flatten().is_some() {
                self.world.lock().fail(format!("{stream} has outlived its retention"));
            }
        }
    }

    async fn answer_all(&self) {
        // Whoever was to come a little later has come by then.
        tokio::time::sleep(Duration::from_secs(5)).await;
        for _ in 0..1000 {
            if self.world.lock().pending == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.world.lock().fail("requests are left without an answer");
    }

    fn streams(&self) -> Vec<Uuid> {
        self.world.lock().runs.iter().filter_map(|run| run.stream).collect()
    }

    pub(crate) async fn open_runs(&self) -> Vec<capstan_journal::Run> {
        self.truth.open_runs().await.unwrap()
    }

    /// Requests that must be refused, whatever goes on.
    async fn probe(&mut self, run: usize) {
        let (phase, stream, winner, past) = {
            let world = self.world.lock();
            let run = &world.runs[run];
            (run.phase, run.stream, run.winner, run.past.clone())
        };
        let (client, nobody) = (self.client.clone(), Uuid::now_v7());
        for gone in past.into_iter().chain([nobody]) {
            client
                .clone()
                .refused(get_with(gone, &gone.to_string()), 404, "stream_not_found")
                .await;
            client.clone().refused(delete(gone), 404, "stream_not_found").await;
        }
        let (Phase::Known, Some(stream), Some(winner)) = (phase, stream, winner) else { return };
        let Some(truth) = self.truth.run(stream).await.unwrap() else { return };
        let (above, foreign) =
            (format!("{stream}:{}", truth.last_seq + 1000), format!("{nobody}:1"));
        client.clone().refused(get_with(stream, &above), 410, "stream_lost").await;
        client.clone().refused(get_with(stream, &foreign), 400, "invalid_request").await;
        let request =
            client.post_with(run, winner, if self.rng.bool() { &above } else { &foreign });
        let is_above = request.headers().get("last-event-id").is_some_and(|id| *id == *above);
        let (status, code) = if is_above { (410, "stream_lost") } else { (400, "invalid_request") };
        client.refused(request, status, code).await;
        self.world.lock().runs[run].answered += 1;
    }

    async fn drain(&mut self, service: Service) {
        self.world.lock().is_draining = true;
        let drained = tokio::time::timeout(Duration::from_secs(60), service.drain()).await;
        if !matches!(drained, Ok(Ok(_))) {
            self.world.lock().fail("draining does not end");
        }
    }
}

fn gateway(land: &Land, store: Arc<Shaky>, rng: &mut Rng) -> Gateway {
    let mut settings = Settings::default();
    settings.timeouts.waiting = WAITING;
    if rng.u32(0..4) > 0 {
        // A heartbeat makes a reader look again, which would heal a lost wake-up.
        settings.timeouts.heartbeat = Duration::from_secs(1_000_000);
    }
    let limits = if rng.bool() {
        TailLimits::default()
    } else {
        // So little room that most readers have to ask the store.
        TailLimits { stream_bytes: 700, total_bytes: 1500 }
    };
    let life = land.world.lock().life;
    let agent = Scripted { world: land.world.clone(), life };
    Gateway::new(Journal::new(store, limits)).agent("scripted", agent).settings(settings)
}

//! One gateway of a cluster, as a process: a thread with a runtime of its own. Its clock moves when
//! it is told.

use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::thread::JoinHandle;
use std::time::Duration;

use capstan_gateway::{Gateway, Service, Settings};
use capstan_journal::{
    Claim, Frame, Journal, JournalError, Quota, Replica as Seat, Run, RunState, Store, TailLimits,
    Transition,
};
use capstan_protocol::Timestamp;
use capstan_stores::{Durability, Options, connect};
use fastrand::Rng;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use uuid::Uuid;

use crate::model::agent::Scripted;
use crate::model::client::{Client, Visit};
use crate::model::truth::Truth;
use crate::model::world::Shared;

/// Far longer than the longest step of the clock, so that whoever is not held up keeps it.
pub(crate) const LEASE: Duration = Duration::from_secs(60);
/// How often others get their turn before a gateway says that it has done what it could.
const TURNS: u32 = 8;

/// What a gateway is made with.
pub(crate) struct Birth {
    pub(crate) url: String,
    /// It hears no notices if these are told elsewhere.
    pub(crate) listen_url: Option<String>,
    pub(crate) truth: Truth,
    pub(crate) world: Shared,
    pub(crate) life: u32,
    pub(crate) kind: Kind,
}

/// In what gateways differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) is_deaf: bool,
    /// So little room that most readers have to ask the store.
    has_little_room: bool,
    /// In seconds.
    drain: u64,
}

impl Kind {
    pub(crate) fn choose(rng: &mut Rng) -> Self {
        Self { is_deaf: rng.u32(0..3) == 0, has_little_room: rng.bool(), drain: rng.u64(0..20) }
    }
}

enum Order {
    /// Time passes.
    Advance(Duration, oneshot::Sender<()>),
    /// Whatever can be done is done; how many clients are left.
    Work(oneshot::Sender<usize>),
    Visit(Visit, Rng),
    Stop(usize),
    Cut(usize),
    /// Nothing moves until this says how long it took.
    Freeze(blocking::Receiver<Duration>),
    /// It leaves in good order.
    Drain(oneshot::Sender<()>),
}

pub(crate) struct Replica {
    pub(crate) life: u32,
    pub(crate) kind: Kind,
    /// It was frozen once.
    pub(crate) is_worn: bool,
    orders: mpsc::UnboundedSender<Order>,
    thread: JoinHandle<()>,
    store: Arc<dyn Store>,
    frozen: Option<(blocking::Sender<Duration>, Duration)>,
}

impl Replica {
    pub(crate) async fn begin(birth: Birth) -> Self {
        let (life, kind) = (birth.life, birth.kind);
        let (orders, taken) = mpsc::unbounded_channel();
        let (ready, is_ready) = oneshot::channel();
        let thread = std::thread::spawn(move || live(birth, taken, ready));
        let store = is_ready.await.expect("the gateway starts");
        Self { life, kind, is_worn: false, orders, thread, store, frozen: None }
    }

    fn order(&self, order: Order) {
        // One that is gone does nothing more.
        let _ = self.orders.send(order);
    }

    pub(crate) const fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    pub(crate) fn visit(&self, visit: Visit, rng: Rng) {
        self.order(Order::Visit(visit, rng));
    }

    pub(crate) fn stop(&self, run: usize) {
        self.order(Order::Stop(run));
    }

    pub(crate) fn cut(&self, which: usize) {
        self.order(Order::Cut(which));
    }

    /// Time passes here as well; for one that is frozen when it wakes.
    pub(crate) async fn advance(&mut self, time: Duration) {
        if let Some((_, owed)) = &mut self.frozen {
            *owed += time;
            return;
        }
        let (done, is_done) = oneshot::channel();
        self.order(Order::Advance(time, done));
        let _ = is_done.await;
    }

    /// Lets it do what it can; how many clients it has left.
    pub(crate) async fn work(&self) -> usize {
        if self.is_frozen() {
            return 0;
        }
        let (done, left) = oneshot::channel();
        self.order(Order::Work(done));
        left.await.unwrap_or(0)
    }

    /// Whether it waits for the server.
    pub(crate) fn is_asking(&self) -> bool {
        !self.is_frozen() && is_asking(&*self.store)
    }

    /// As SIGSTOP.
    pub(crate) fn freeze(&mut self) {
        let (wake, woken) = blocking::channel();
        self.order(Order::Freeze(woken));
        self.frozen = Some((wake, Duration::ZERO));
        self.is_worn = true;
    }

    pub(crate) fn wake(&mut self) {
        if let Some((wake, owed)) = self.frozen.take() {
            let _ = wake.send(owed);
        }
    }

    /// Begins to leave; it has left when this is told.
    pub(crate) fn drain(&self) -> oneshot::Receiver<()> {
        let (done, is_done) = oneshot::channel();
        self.order(Order::Drain(done));
        is_done
    }

    /// As kill -9: every task ends where it stands.
    pub(crate) fn die(self) {
        drop((self.orders, self.frozen, self.store));
        self.thread.join().expect("a gateway does not panic");
    }
}

/// Whether the server owes a store an answer.
pub(crate) fn is_asking(store: &dyn Store) -> bool {
    store.stats().shared.is_some_and(|shared| shared.unanswered > 0)
}

fn live(
    birth: Birth,
    orders: mpsc::UnboundedReceiver<Order>,
    ready: oneshot::Sender<Arc<dyn Store>>,
) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    let (release, held) = blocking::channel::<()>();
    runtime.block_on(async {
        // A clock that stands would run ahead whenever everybody waits for the server; while
        // something blocks it does not.
        tokio::task::spawn_blocking(move || {
            let _ = held.recv();
        });
        match Process::start(birth).await {
            Ok(process) => {
                let _ = ready.send(Arc::clone(&process.store));
                process.obey(orders).await;
            }
            Err((world, why)) => world.lock().fail(format!("a gateway does not start: {why}")),
        }
    });
    drop(release);
}

struct Process {
    store: Arc<dyn Store>,
    service: Option<Service>,
    client: Client,
    tasks: JoinSet<()>,
    readers: Vec<AbortHandle>,
}

impl Process {
    async fn start(birth: Birth) -> Result<Self, (Shared, String)> {
        let Birth { url, listen_url, truth, world, life, kind } = birth;
        let seat = Seat { name: format!("gateway-{life}"), url: None, lease: LEASE, listen_url };
        let options = Options { durability: Durability::Process, ..Options::default() };
        let failed = |why: String| (world.clone(), why);
        let store =
            connect(&url, options, seat).await.map_err(|error| failed(error.to_string()))?;
        warm_up(&*store).await.map_err(|error| failed(error.to_string()))?;
        let agent = Scripted { world: world.clone(), life };
        let journal = Journal::new(Arc::clone(&store), limits(kind));
        let gateway = Gateway::new(journal).agent("scripted", agent).settings(settings(kind));
        let service = Service::start(gateway).await.map_err(|error| failed(error.to_string()))?;
        let client = Client { router: service.router(), world, truth, is_shared: true };
        Ok(Self {
            store,
            service: Some(service),
            client,
            tasks: JoinSet::new(),
            readers: Vec::new(),
        })
    }

    async fn obey(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        while let Some(order) = orders.recv().await {
            match order {
                Order::Advance(time, done) => {
                    tokio::time::advance(time).await;
                    let _ = done.send(());
                }
                Order::Work(done) => drop(done.send(self.work().await)),
                Order::Visit(visit, rng) => {
                    self.readers.push(self.tasks.spawn(self.client.clone().visit(visit, rng)));
                }
                Order::Stop(run) => drop(self.tasks.spawn(self.client.clone().stop(run))),
                Order::Cut(which) => self.cut(which),
                Order::Freeze(woken) => {
                    // The only thread: nothing here moves.
                    let Ok(time) = woken.recv() else { return };
                    tokio::time::advance(time).await;
                }
                Order::Drain(done) => self.drain(done),
            }
        }
    }

    async fn work(&mut self) -> usize {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        while self.tasks.try_join_next().is_some() {}
        self.tasks.len()
    }

    fn cut(&mut self, which: usize) {
        self.readers.retain(|reader| !reader.is_finished());
        if !self.readers.is_empty() {
            let which = which % self.readers.len();
            self.readers.swap_remove(which).abort();
        }
    }

    fn drain(&mut self, done: oneshot::Sender<()>) {
        let Some(service) = self.service.take() else { return };
        tokio::spawn(async move {
            let _ = service.drain().await;
            let _ = done.send(());
        });
    }
}

/// Every connection for writing is made before anything happens to the process.
async fn warm_up(store: &dyn Store) -> Result<(), JournalError> {
    let claim = Claim::new("nobody", Uuid::now_v7().to_string(), Uuid::now_v7(), Timestamp::now());
    let run = store.claim(claim, &Quota::UNLIMITED).await?.run;
    let frame = |seq| vec![Frame::new(seq, "data: 1\n\n")];
    store.append(run.stream_id, 1, frame(1)).await?;
    let closed = Run { state: RunState::Closed, closed_at: Some(Timestamp::now()), ..run };
    store
        .transition(Transition::new((RunState::Running, 1), closed, frame(2), None))
        .await
        .map(drop)
}

fn settings(kind: Kind) -> Settings {
    let mut settings = Settings::default();
    settings.timeouts.waiting = Duration::from_secs(1_000_000);
    settings.timeouts.idle = Duration::from_secs(40);
    settings.timeouts.drain = Duration::from_secs(kind.drain);
    // A heartbeat makes a reader look again, which would heal a lost wake-up.
    settings.timeouts.heartbeat = Duration::from_secs(1_000_000);
    settings.timeouts.stalled_reader = Duration::ZERO;
    settings
}

fn limits(kind: Kind) -> TailLimits {
    if kind.has_little_room {
        TailLimits { stream_bytes: 700, total_bytes: 1500 }
    } else {
        TailLimits::default()
    }
}

//! `postgres://…`: one journal for many processes. Whoever works on a run owns it; the database
//! sees to it that nobody else writes to it, and that a process whose lease has ended cannot.
//! ARCHITECTURE.md says why it is made so.
//!
//! Writes go through lanes, one connection and one statement in flight each: [`frames`],
//! [`claims`], [`changes`]. The [`herald`] tells others what was written, the [`listener`] hears
//! them, the [`pulse`] keeps the lease, [`readers`] who reads.

mod block;
mod breakers;
mod browse;
mod changes;
mod claims;
mod cluster;
mod failure;
mod followers;
mod frames;
mod herald;
mod homes;
mod import;
mod link;
mod listener;
mod notice;
mod own;
mod poll;
mod pulse;
mod readers;
mod reads;
mod rollups;
mod rows;
mod schema;
mod store;
mod sweep;
mod target;
mod tls;
mod unanswered;
mod wire;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_journal::{ErrorKind, Health, JournalError, Load, Replica};
use capstan_journal::{News, Watched};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::Instant;
use uuid::Uuid;

use self::changes::Change;
use self::claims::ClaimJob;
use self::frames::Append;
use self::link::{Failure, Link, Task};
use self::notice::Notice;
use self::own::Own;
use self::readers::Mark;
use self::reads::Reads;
pub use self::schema::Schema;
use self::target::Target;
use crate::{Durability, Options};

/// Callers wait for their answers, so this many write at the same time; the others wait to be
/// queued.
const QUEUE: usize = 4096;
/// News that nobody takes are dropped: looking tells as well.
const NEWS: usize = 4096;

/// How many look through runs at once; a quarter of all reads.
const BROWSERS: usize = 2;

/// The share of the lease after which a server that answers no sign of life is said to be away.
const AWAY: f64 = 0.5;
/// How long a database may take to be prepared, by this process or by the one that it waits for.
const MIGRATION: Duration = Duration::from_secs(600);

pub(crate) struct PostgresStore {
    shared: Arc<Shared>,
    news: Mutex<Option<mpsc::Receiver<News>>>,
    stops: Mutex<Option<mpsc::Receiver<Uuid>>>,
    _tasks: Vec<Task>,
}

/// The process's place among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seat {
    id: Uuid,
    is_held: bool,
}

/// What all parts of the store use.
struct Shared {
    target: Target,
    listen: Target,
    replica: Replica,
    /// Whether an acknowledged append survives a crash of the server.
    is_synced: bool,
    seat: Mutex<Seat>,
    tenure: watch::Sender<u64>,
    own: Own,
    watched: Arc<Watched>,
    reads: Reads,
    /// Those who look through runs: few of the reads at once.
    browsers: Semaphore,
    appends: mpsc::Sender<Append>,
    claims: mpsc::Sender<ClaimJob>,
    changes: mpsc::Sender<Change>,
    notices: mpsc::Sender<Notice>,
    /// As many as there are readers that come and go.
    marks: mpsc::UnboundedSender<Mark>,
    news: mpsc::Sender<News>,
    stops: mpsc::Sender<Uuid>,
    health: watch::Sender<Health>,
    /// The frames lane has to look what the server still has.
    unsettled: Notify,
    /// What is watched has to be looked at now.
    behind: Notify,
    /// Other processes that live.
    peers: AtomicUsize,
    /// Other processes are heard.
    hears: AtomicBool,
    /// When the last sign of life was sent that arrived.
    pulsed: Mutex<Instant>,
    /// What this process has to do, once that was said.
    load: Mutex<Option<Load>>,
    is_draining: AtomicBool,
    is_closed: AtomicBool,
    /// The database asks for a build that knows more than this one.
    outdated: watch::Sender<bool>,
}

impl PostgresStore {
    /// Connects, prepares the database if need be, and takes a seat.
    pub(crate) async fn open(
        url: &str,
        options: Options,
        replica: Replica,
    ) -> Result<Self, JournalError> {
        let target = Target::parse(url)?;
        let listen =
            replica.listen_url.as_deref().map_or_else(|| Ok(target.clone()), Target::parse)?;
        let link = Link::open_with(&target, MIGRATION, None).await.map_err(unreachable)?;
        schema::prepare(&link).await?;
        let seat = Seat { id: Uuid::new_v4(), is_held: true };
        pulse::join(&link, seat.id, None, &replica).await.map_err(Failure::into_error)?;
        Ok(Self::start(target, listen, options, replica, seat))
    }

    fn start(
        target: Target,
        listen: Target,
        options: Options,
        replica: Replica,
        seat: Seat,
    ) -> Self {
        let (appends, append_jobs) = mpsc::channel(QUEUE);
        let (claims, claim_jobs) = mpsc::channel(QUEUE);
        let (changes, change_jobs) = mpsc::channel(QUEUE);
        let (notices, to_tell) = mpsc::channel(QUEUE);
        let (marks, to_mark) = mpsc::unbounded_channel();
        let (news, heard) = mpsc::channel(NEWS);
        let (stops, asked) = mpsc::channel(NEWS);
        let shared = Arc::new(Shared {
            reads: Reads::new(target.clone()),
            browsers: Semaphore::new(BROWSERS),
            target,
            listen,
            replica,
            is_synced: options.durability == Durability::Power,
            seat: Mutex::new(seat),
            tenure: watch::Sender::new(1),
            own: Own::default(),
            watched: Arc::default(),
            appends,
            claims,
            changes,
            notices,
            marks,
            news,
            stops,
            health: watch::Sender::new(Health::Well),
            unsettled: Notify::new(),
            behind: Notify::new(),
            peers: AtomicUsize::new(0),
            hears: AtomicBool::new(false),
            pulsed: Mutex::new(Instant::now()),
            load: Mutex::default(),
            is_draining: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            outdated: watch::Sender::new(false),
        });
        let here = || Arc::clone(&shared);
        let tasks = vec![
            Task::spawn(frames::run(here(), append_jobs)),
            Task::spawn(claims::run(here(), claim_jobs)),
            Task::spawn(changes::run(here(), change_jobs)),
            Task::spawn(herald::run(here(), to_tell)),
            Task::spawn(readers::run(here(), to_mark)),
            Task::spawn(listener::run(here())),
            Task::spawn(followers::run(here())),
            Task::spawn(poll::run(here())),
            Task::spawn(pulse::run(here())),
        ];
        Self {
            shared,
            news: Mutex::new(Some(heard)),
            stops: Mutex::new(Some(asked)),
            _tasks: tasks,
        }
    }
}

impl Shared {
    fn lock_seat(&self) -> MutexGuard<'_, Seat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Under which this process writes.
    fn me(&self) -> Uuid {
        self.lock_seat().id
    }

    fn is_seated(&self) -> bool {
        self.lock_seat().is_held
    }

    /// The lease is over: nothing that runs is this process's any more. The pulse takes a new seat.
    fn lose_seat(&self, why: &str) {
        if !std::mem::replace(&mut self.lock_seat().is_held, false) {
            return;
        }
        tracing::warn!(why, runs = self.own.count(), "this process's lease on its runs has ended");
        self.own.clear();
        self.health.send_replace(Health::Unavailable(why.to_owned()));
        self.tenure.send_modify(|tenure| *tenure += 1);
        let _ = self.news.try_send(News::Fenced);
    }

    fn take_seat(&self, id: Uuid) {
        *self.lock_seat() = Seat { id, is_held: true };
        self.well();
    }

    fn well(&self) {
        if self.is_seated() && !self.is_closed() {
            self.health
                .send_if_modified(|health| std::mem::replace(health, Health::Well) != Health::Well);
        }
    }

    /// Something failed. One connection that is lost is made anew before anybody needs to know;
    /// without signs of life for a while the server is away.
    fn unwell(&self, failure: &Failure) {
        if self.lock_pulsed().elapsed() < self.part_of_lease(AWAY) {
            return;
        }
        let why = format!("PostgreSQL: {failure}");
        self.health.send_if_modified(|health| {
            let is_new = *health == Health::Well;
            if is_new {
                tracing::warn!(%failure, "the journal's database cannot be used for now");
                *health = Health::Unavailable(why);
            }
            is_new
        });
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn check_open(&self) -> Result<(), JournalError> {
        if self.is_closed() { Err(closed()) } else { Ok(()) }
    }

    /// Tells the other processes, if there are any.
    fn tell(&self, notice: Notice) {
        if self.peers.load(Ordering::Relaxed) > 0 {
            let _ = self.notices.try_send(notice);
        }
    }

    fn lock_pulsed(&self) -> MutexGuard<'_, Instant> {
        self.pulsed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_load(&self) -> MutexGuard<'_, Option<Load>> {
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A share of the lease.
    fn part_of_lease(&self, part: f64) -> Duration {
        self.replica.lease.mul_f64(part)
    }
}

fn closed() -> JournalError {
    JournalError::new(ErrorKind::Unavailable, "the journal is closed")
}

fn unreachable(failure: Failure) -> JournalError {
    JournalError::new(
        ErrorKind::Unavailable,
        format!("the journal's database cannot be reached: {failure}"),
    )
}

/// Brings a database to the tables that this build needs; how far it has come.
pub async fn migrate(url: &str) -> Result<Schema, JournalError> {
    let link = Link::open_with(&Target::parse(url)?, MIGRATION, None).await.map_err(unreachable)?;
    schema::migrate(&link).await
}

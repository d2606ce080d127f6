//! `postgres://…`: one journal for several processes. Each running run has one owner. The database
//! prevents writes by other processes, and by a process whose lease has ended. Decisions 0016 to
//! 0018 in docs/decisions say why.
//!
//! Three tasks write, each with one connection and one statement in flight: [`frames`], [`claims`]
//! and [`changes`]. The [`notifier`] notifies other processes, and the [`listener`] receives their
//! notifications. [`heartbeat`] keeps the lease, and [`readers`] records which runs have readers.

mod awaited_streams;
mod block;
mod breakers;
mod browse;
mod changes;
mod claims;
mod cluster;
mod connection;
mod failure;
mod frames;
mod heartbeat;
mod import;
mod listener;
mod notifier;
mod owned_runs;
mod peer_message;
mod poll;
mod readers;
mod reads;
mod rollups;
mod rows;
mod schema;
mod store;
mod sweep;
mod target;
mod tenant_hosts;
mod tls;
mod unanswered;
mod writer_connection;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_journal::{ErrorKind, Health, JournalError, Load, Replica};
use capstan_journal::{Notification, Watched};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::Instant;
use uuid::Uuid;

use self::changes::Change;
use self::claims::ClaimJob;
use self::connection::{Connection, Failure, Task};
use self::frames::Append;
use self::owned_runs::OwnedRuns;
use self::peer_message::PeerMessage;
use self::readers::ReaderUpdate;
use self::reads::Reads;
pub use self::schema::Schema;
use self::target::Target;
use crate::{Durability, Options};

/// The most writes in a queue. Callers wait for their answers, so others wait for a place.
const QUEUE: usize = 4096;
/// The most notifications in a queue. Others are dropped, and polling replaces them.
const NOTIFICATIONS: usize = 4096;

/// The most concurrent searches for runs: a quarter of all reads.
const BROWSERS: usize = 2;

/// The share of the lease after which a server without successful heartbeats counts as down.
const DOWN_AFTER: f64 = 0.5;
/// The timeout of a migration, by this process or by one that it waits for.
const MIGRATION: Duration = Duration::from_secs(600);

pub(crate) struct PostgresStore {
    shared: Arc<Shared>,
    notifications: Mutex<Option<mpsc::Receiver<Notification>>>,
    stop_requests: Mutex<Option<mpsc::Receiver<Uuid>>>,
    _tasks: Vec<Task>,
}

/// This process's right to write its runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lease {
    id: Uuid,
    is_held: bool,
}

/// The state that all tasks of the store share.
struct Shared {
    target: Target,
    listen: Target,
    replica: Replica,
    /// Whether an acknowledged append survives a crash of the server.
    is_synced: bool,
    lease: Mutex<Lease>,
    /// Increases when the lease ends.
    lease_epoch: watch::Sender<u64>,
    owned: OwnedRuns,
    watched: Arc<Watched>,
    reads: Reads,
    /// Permits for searches.
    browsers: Semaphore,
    appends: mpsc::Sender<Append>,
    claims: mpsc::Sender<ClaimJob>,
    changes: mpsc::Sender<Change>,
    messages: mpsc::Sender<PeerMessage>,
    /// Unbounded, because its callers cannot wait. Its length is limited by the number of readers.
    reader_updates: mpsc::UnboundedSender<ReaderUpdate>,
    notifications: mpsc::Sender<Notification>,
    stop_requests: mpsc::Sender<Uuid>,
    health: watch::Sender<Health>,
    /// Makes the frames task compare what this process has acknowledged with what the server has.
    reconcile: Notify,
    /// Makes the poll task poll now.
    poll_now: Notify,
    /// The number of other live processes.
    peers: AtomicUsize,
    /// Whether notifications of other processes are received.
    is_listening: AtomicBool,
    /// When the last successful heartbeat was sent.
    last_heartbeat: Mutex<Instant>,
    /// The load that the next heartbeat reports; `None` before the first report.
    load: Mutex<Option<Load>>,
    is_draining: AtomicBool,
    is_closed: AtomicBool,
    /// Whether the database requires a newer build.
    outdated: watch::Sender<bool>,
}

impl PostgresStore {
    /// Connects, prepares the database if necessary, and begins a lease.
    pub(crate) async fn open(
        url: &str,
        options: Options,
        replica: Replica,
    ) -> Result<Self, JournalError> {
        let target = Target::parse(url)?;
        let listen =
            replica.listen_url.as_deref().map_or_else(|| Ok(target.clone()), Target::parse)?;
        let connection =
            Connection::open_with(&target, MIGRATION, None).await.map_err(unreachable)?;
        schema::prepare(&connection).await?;
        let lease = Lease { id: Uuid::new_v4(), is_held: true };
        heartbeat::begin_lease(&connection, lease.id, None, &replica)
            .await
            .map_err(Failure::into_error)?;
        Ok(Self::start(target, listen, options, replica, lease))
    }

    fn start(
        target: Target,
        listen: Target,
        options: Options,
        replica: Replica,
        lease: Lease,
    ) -> Self {
        let (appends, append_jobs) = mpsc::channel(QUEUE);
        let (claims, claim_jobs) = mpsc::channel(QUEUE);
        let (changes, change_jobs) = mpsc::channel(QUEUE);
        let (messages, to_send) = mpsc::channel(QUEUE);
        let (reader_updates, updates) = mpsc::unbounded_channel();
        let (notifications, received) = mpsc::channel(NOTIFICATIONS);
        let (stop_requests, requested) = mpsc::channel(NOTIFICATIONS);
        let shared = Arc::new(Shared {
            reads: Reads::new(target.clone()),
            browsers: Semaphore::new(BROWSERS),
            target,
            listen,
            replica,
            is_synced: options.durability == Durability::Power,
            lease: Mutex::new(lease),
            lease_epoch: watch::Sender::new(1),
            owned: OwnedRuns::default(),
            watched: Arc::default(),
            appends,
            claims,
            changes,
            messages,
            reader_updates,
            notifications,
            stop_requests,
            health: watch::Sender::new(Health::Well),
            reconcile: Notify::new(),
            poll_now: Notify::new(),
            peers: AtomicUsize::new(0),
            is_listening: AtomicBool::new(false),
            last_heartbeat: Mutex::new(Instant::now()),
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
            Task::spawn(notifier::run(here(), to_send)),
            Task::spawn(readers::run(here(), updates)),
            Task::spawn(listener::run(here())),
            Task::spawn(awaited_streams::run(here())),
            Task::spawn(poll::run(here())),
            Task::spawn(heartbeat::run(here())),
        ];
        Self {
            shared,
            notifications: Mutex::new(Some(received)),
            stop_requests: Mutex::new(Some(requested)),
            _tasks: tasks,
        }
    }
}

impl Shared {
    fn lock_lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of this process's lease.
    fn me(&self) -> Uuid {
        self.lock_lease().id
    }

    fn has_lease(&self) -> bool {
        self.lock_lease().is_held
    }

    /// Ends the lease: this process owns no run any more. The heartbeat task begins a new lease.
    fn lose_lease(&self, why: &str) {
        if !std::mem::replace(&mut self.lock_lease().is_held, false) {
            return;
        }
        tracing::warn!(
            why,
            runs = self.owned.count(),
            "this process's lease on its runs has ended"
        );
        self.owned.clear();
        self.health.send_replace(Health::Unavailable(why.to_owned()));
        self.lease_epoch.send_modify(|lease_epoch| *lease_epoch += 1);
        let _ = self.notifications.try_send(Notification::LeaseLost);
    }

    /// A new lease has begun.
    fn begin_lease(&self, id: Uuid) {
        *self.lock_lease() = Lease { id, is_held: true };
        self.report_healthy();
    }

    /// Reports the store as healthy, if it has a lease and is open.
    fn report_healthy(&self) {
        if self.has_lease() && !self.is_closed() {
            self.health
                .send_if_modified(|health| std::mem::replace(health, Health::Well) != Health::Well);
        }
    }

    /// Reports a failure. A single lost connection is replaced before anyone needs to know. Without
    /// a successful heartbeat for a while, the store is reported as unavailable.
    fn report_failure(&self, failure: &Failure) {
        if self.lock_last_heartbeat().elapsed() < self.part_of_lease(DOWN_AFTER) {
            return;
        }
        let why = format!("PostgreSQL: {failure}");
        self.health.send_if_modified(|health| {
            let is_new = *health == Health::Well;
            if is_new {
                tracing::warn!(%failure, "the journal's database does not work at the moment");
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

    /// Notifies the other processes, if there are any.
    fn notify(&self, message: PeerMessage) {
        if self.peers.load(Ordering::Relaxed) > 0 {
            let _ = self.messages.try_send(message);
        }
    }

    fn lock_last_heartbeat(&self) -> MutexGuard<'_, Instant> {
        self.last_heartbeat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_load(&self) -> MutexGuard<'_, Option<Load>> {
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A share of the lease's duration.
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

/// Migrates a database to the schema of this build. Returns the schema that it has then.
pub async fn migrate(url: &str) -> Result<Schema, JournalError> {
    let connection =
        Connection::open_with(&Target::parse(url)?, MIGRATION, None).await.map_err(unreachable)?;
    schema::migrate(&connection).await
}

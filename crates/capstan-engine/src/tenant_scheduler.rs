//! A scheduler queue per tenant in front of the runtime's run queue. The runtime has one queue for
//! all tasks: if one tenant wakes a thousand tasks at once, all others wait behind them. So only a
//! few tasks of a tenant are in the runtime's queue at a time, and the next one follows when one
//! has had its turn. While other tenants are active as well, the time of a tenant's tasks counts
//! against its share of the processors. A queue that has used its share pauses.

mod slot;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

pub use slot::{ScheduledTask, TaskSlot};

/// The burst that a queue may use at once: opening a page causes about twenty requests.
const AT_ONCE: Duration = Duration::from_millis(20);
/// How long a tenant counts as active after a request.
const LATELY: Duration = Duration::from_secs(1);
/// The most time that a queue can owe.
const LONGEST_DEBT: Duration = Duration::from_secs(1);
/// The longest pause of a queue. Then a few of its tasks run, however much it owes: a stream
/// without packets for longer would look stuck.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// The time that a packet takes in the journal and in the kernel on its way to a viewer, and the
/// time for each of its bytes.
const PACKET: Duration = Duration::from_nanos(1_000);
const BYTE: Duration = Duration::from_nanos(1);

/// The time that packets take outside of the tenant's own tasks, where it cannot be measured per
/// tenant.
pub(crate) fn work_of(packets: usize, bytes: usize) -> Duration {
    let times = |each: Duration, count: usize| {
        each.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
    };
    times(PACKET, packets) + times(BYTE, bytes)
}

/// The number of processors for this process. Computed once, because the query is slow.
static PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| available_parallelism().map_or(1, usize::from));

/// How many tasks of a tenant may be awake while no other tenant is active: two per processor, so
/// that none idles between two tasks.
static WIDE: LazyLock<usize> = LazyLock::new(|| 2 * *PROCESSORS);

/// The queues of all active tenants.
pub(crate) struct TenantScheduler {
    by_tenant: Mutex<HashMap<String, Arc<TenantQueue>>>,
    active: Arc<ActiveTenants>,
    /// The share of each tenant, in processors; 0 for no limit.
    share: f64,
}

impl TenantScheduler {
    /// `percent` is each tenant's share of all processors.
    pub(crate) fn new(percent: u32) -> Self {
        let share = f64::from(percent) / 100.0 * *PROCESSORS as f64;
        Self { by_tenant: Mutex::default(), active: Arc::default(), share }
    }

    /// Records a request of a tenant. The present task and its connection continue in the tenant's
    /// queue. Returns false if the task is not a scheduled one.
    pub(crate) fn enter(&self, tenant: &str) -> bool {
        self.active.note(tenant, Instant::now());
        let slot = TaskSlot::current();
        slot.inspect(|slot| slot.enter(&self.of(tenant))).is_some()
    }

    /// A background task, which is in its tenant's queue from the start.
    pub(crate) fn task<F>(&self, tenant: &str, work: F) -> ScheduledTask<F> {
        ScheduledTask::new(Some(TaskSlot::new(Some(self.of(tenant)), None)), work)
    }

    /// Adds time that was used for a tenant outside of its tasks.
    pub(crate) fn pay(&self, tenant: &str, took: Duration) {
        let queue = self.of(tenant);
        queue.pay(&mut queue.line(), took, Instant::now());
    }

    fn of(&self, tenant: &str) -> Arc<TenantQueue> {
        let mut scheduler = self.by_tenant.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = scheduler.get(tenant) {
            return Arc::clone(queue);
        }
        let now = Instant::now();
        // Keeps queues with tasks, and those that have exceeded their share.
        scheduler.retain(|_, queue| Arc::strong_count(queue) > 1 || queue.line().is_behind(now));
        let payer = Payer {
            tenant: tenant.to_owned(),
            active: Arc::clone(&self.active),
            share: self.share,
        };
        let queue = TenantQueue::new(*WIDE, Some(payer));
        scheduler.insert(tenant.to_owned(), Arc::clone(&queue));
        queue
    }
}

/// The last two active tenants, and when they were active.
#[derive(Default)]
struct ActiveTenants(Mutex<[Option<(String, Instant)>; 2]>);

impl ActiveTenants {
    fn note(&self, tenant: &str, now: Instant) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [last, other] = &mut *latest;
        match last {
            Some((name, then)) if name == tenant => *then = now,
            Some(_) | None => {
                std::mem::swap(last, other);
                *last = Some((tenant.to_owned(), now));
            }
        }
    }

    fn has_other_tenants(&self, tenant: &str, now: Instant) -> bool {
        let latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_other =
            |(name, then): &(String, Instant)| name != tenant && now.duration_since(*then) < LATELY;
        latest.iter().flatten().any(is_other)
    }
}

struct TenantQueue {
    payer: Option<Payer>,
    line: Mutex<QueueState>,
}

/// The tenant of a queue.
struct Payer {
    tenant: String,
    active: Arc<ActiveTenants>,
    share: f64,
}

impl Payer {
    /// How many tasks may be awake beside other tenants' tasks: as many as can run at once.
    fn narrow(&self) -> usize {
        (self.share.ceil() as usize).max(1)
    }
}

struct QueueState {
    /// The most tasks that may be awake.
    room: usize,
    awake: usize,
    waiting: VecDeque<Arc<TaskSlot>>,
    /// The time until which the used processor time is covered by the share.
    paid_until: Option<Instant>,
    is_resting: bool,
}

impl QueueState {
    fn is_behind(&self, now: Instant) -> bool {
        self.paid_until.is_some_and(|due| due > now)
    }
}

impl TenantQueue {
    fn new(room: usize, payer: Option<Payer>) -> Arc<Self> {
        let line = QueueState {
            room,
            awake: 0,
            waiting: VecDeque::new(),
            paid_until: None,
            is_resting: false,
        };
        Arc::new(Self { payer, line: Mutex::new(line) })
    }

    /// The queue of requests whose tenant is not known yet.
    fn of_unknown_tenant() -> Arc<Self> {
        Self::new(1, None)
    }

    fn line(&self) -> MutexGuard<'_, QueueState> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another task may be awake. If not, it waits.
    fn admits(&self, slot: &Arc<TaskSlot>) -> bool {
        let mut line = self.line();
        let is_free = line.awake < line.room && !line.is_resting;
        if is_free {
            line.awake += 1;
        } else {
            line.waiting.push_back(Arc::clone(slot));
        }
        is_free
    }

    /// Ends the turn of a task, which took this long. The next task follows, unless the queue has
    /// used its share.
    fn end_turn(self: &Arc<Self>, took: Duration, now: Instant) {
        let mut line = self.line();
        line.awake -= 1;
        self.pay(&mut line, took, now);
        if !line.is_resting && line.is_behind(now) {
            line.is_resting = self.pause(line.paid_until.unwrap_or(now).min(now + LONGEST_PAUSE));
        }
        drop(line);
        self.wake_next();
    }

    fn pay(&self, line: &mut QueueState, took: Duration, now: Instant) {
        let Some(payer) = self.payer.as_ref().filter(|payer| payer.share > 0.0) else { return };
        if !payer.active.has_other_tenants(&payer.tenant, now) {
            line.room = *WIDE;
            return;
        }
        line.room = payer.narrow();
        let earliest = now.checked_sub(AT_ONCE).unwrap_or(now);
        let began = line.paid_until.map_or(earliest, |then| then.max(earliest));
        line.paid_until = Some((began + took.div_f64(payer.share)).min(now + LONGEST_DEBT));
    }

    /// Starts a pause. Returns false without a runtime, whose timer ends the pause.
    fn pause(self: &Arc<Self>, until: Instant) -> bool {
        let (queue, runtime) = (Arc::clone(self), Handle::try_current());
        let awakened = async move {
            sleep_until(until).await;
            queue.line().is_resting = false;
            queue.wake_next();
        };
        runtime.map(|runtime| runtime.spawn(awakened)).is_ok()
    }

    /// Wakes as many tasks as may be awake.
    fn wake_next(self: &Arc<Self>) {
        loop {
            let next = {
                let mut line = self.line();
                if line.is_resting || line.awake >= line.room {
                    return;
                }
                let Some(next) = line.waiting.pop_front() else { return };
                line.awake += 1;
                next
            };
            if !next.is_called(self) {
                self.line().awake -= 1;
            }
        }
    }
}

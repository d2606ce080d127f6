//! A tenant's lane to the runtime's threads. The runtime has one line for all who are woken:
//! whoever wakes a thousand tasks at once has everybody else's wait behind them. So few of a
//! tenant's stand in that line at a time, and the next is called when one of them has had its turn.
//! And while others ask as well, what its tasks take is paid for in time: a lane that has had its
//! share of the processors rests.

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

/// As much as is had in this time is had at once: a page that is opened asks for twenty things.
const AT_ONCE: Duration = Duration::from_millis(20);
/// For how long somebody who has asked counts as one who asks.
const LATELY: Duration = Duration::from_secs(1);
/// The most that a lane is ever behind.
const LONGEST_DEBT: Duration = Duration::from_secs(1);
/// After this a few tasks have their turn, however far behind: a stream that gets nothing for
/// longer would look stuck.
const LONGEST_REST: Duration = Duration::from_millis(50);
/// What a packet takes in the journal and in the kernel on its way from its agent to whoever
/// watches, and a byte of it beside that.
const PACKET: Duration = Duration::from_nanos(1_000);
const BYTE: Duration = Duration::from_nanos(1);

/// What so many packets of so many bytes take elsewhere, where it cannot be seen whose they are.
pub(crate) fn work_of(packets: usize, bytes: usize) -> Duration {
    let times = |each: Duration, count: usize| {
        each.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
    };
    times(PACKET, packets) + times(BYTE, bytes)
}

/// How many this process may use. To ask for it takes a while.
static PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| available_parallelism().map_or(1, usize::from));

/// How many of a tenant's may be awake while nobody else asks: two for each processor, so that none
/// idles between one and the next.
static WIDE: LazyLock<usize> = LazyLock::new(|| 2 * *PROCESSORS);

/// The lanes of all tenants that are here.
pub(crate) struct TenantScheduler {
    by_tenant: Mutex<HashMap<String, Arc<TenantQueue>>>,
    asking: Arc<Asking>,
    /// What each may have, of one processor; no limit if zero.
    share: f64,
}

impl TenantScheduler {
    /// With a share of all processors for each, in hundredths.
    pub(crate) fn new(percent: u32) -> Self {
        let share = f64::from(percent) / 100.0 * *PROCESSORS as f64;
        Self { by_tenant: Mutex::default(), asking: Arc::default(), share }
    }

    /// A tenant asks: the present task, and the connection that it answers, go on in its lane.
    /// False if the task is none that can wait in a lane.
    pub(crate) fn enter(&self, tenant: &str) -> bool {
        self.asking.note(tenant, Instant::now());
        let seat = TaskSlot::current();
        seat.inspect(|seat| seat.enter(&self.of(tenant))).is_some()
    }

    /// What goes on by itself, in its tenant's lane from its beginning.
    pub(crate) fn task<F>(&self, tenant: &str, work: F) -> ScheduledTask<F> {
        ScheduledTask::new(Some(TaskSlot::new(Some(self.of(tenant)), None)), work)
    }

    /// So much was done for a tenant where nobody could see it.
    pub(crate) fn pay(&self, tenant: &str, took: Duration) {
        let lane = self.of(tenant);
        lane.pay(&mut lane.line(), took, Instant::now());
    }

    fn of(&self, tenant: &str) -> Arc<TenantQueue> {
        let mut scheduler = self.by_tenant.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = scheduler.get(tenant) {
            return Arc::clone(lane);
        }
        let now = Instant::now();
        // Only those remain that some task is in, and those that have had more than their share.
        scheduler.retain(|_, lane| Arc::strong_count(lane) > 1 || lane.line().is_behind(now));
        let payer = Payer {
            tenant: tenant.to_owned(),
            asking: Arc::clone(&self.asking),
            share: self.share,
        };
        let lane = TenantQueue::new(*WIDE, Some(payer));
        scheduler.insert(tenant.to_owned(), Arc::clone(&lane));
        lane
    }
}

/// The last two that have asked, and when.
#[derive(Default)]
struct Asking(Mutex<[Option<(String, Instant)>; 2]>);

impl Asking {
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

    fn has_others(&self, tenant: &str, now: Instant) -> bool {
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

/// Whose lane it is.
struct Payer {
    tenant: String,
    asking: Arc<Asking>,
    share: f64,
}

impl Payer {
    /// How many may be awake beside others': as many as may be at work.
    fn narrow(&self) -> usize {
        (self.share.ceil() as usize).max(1)
    }
}

struct QueueState {
    /// How many may be awake.
    room: usize,
    awake: usize,
    waiting: VecDeque<Arc<TaskSlot>>,
    /// Until when its share would have lasted for what it has had.
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

    /// Where requests wait of which it is not known yet whose they are.
    fn of_strangers() -> Arc<Self> {
        Self::new(1, None)
    }

    fn line(&self) -> MutexGuard<'_, QueueState> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is room for one more; if not, it waits.
    fn admits(&self, seat: &Arc<TaskSlot>) -> bool {
        let mut line = self.line();
        let is_free = line.awake < line.room && !line.is_resting;
        if is_free {
            line.awake += 1;
        } else {
            line.waiting.push_back(Arc::clone(seat));
        }
        is_free
    }

    /// One has had its turn, which took so long. It is the next one's, unless the lane has had its
    /// share.
    fn pass_on(self: &Arc<Self>, took: Duration, now: Instant) {
        let mut line = self.line();
        line.awake -= 1;
        self.pay(&mut line, took, now);
        if !line.is_resting && line.is_behind(now) {
            line.is_resting = self.rests(line.paid_until.unwrap_or(now).min(now + LONGEST_REST));
        }
        drop(line);
        self.call_on();
    }

    fn pay(&self, line: &mut QueueState, took: Duration, now: Instant) {
        let Some(payer) = self.payer.as_ref().filter(|payer| payer.share > 0.0) else { return };
        if !payer.asking.has_others(&payer.tenant, now) {
            line.room = *WIDE;
            return;
        }
        line.room = payer.narrow();
        let earliest = now.checked_sub(AT_ONCE).unwrap_or(now);
        let began = line.paid_until.map_or(earliest, |then| then.max(earliest));
        line.paid_until = Some((began + took.div_f64(payer.share)).min(now + LONGEST_DEBT));
    }

    /// Whether it can rest, which only a runtime's timer can end.
    fn rests(self: &Arc<Self>, until: Instant) -> bool {
        let (lane, runtime) = (Arc::clone(self), Handle::try_current());
        let awakened = async move {
            sleep_until(until).await;
            lane.line().is_resting = false;
            lane.call_on();
        };
        runtime.map(|runtime| runtime.spawn(awakened)).is_ok()
    }

    /// Calls as many as there is room for.
    fn call_on(self: &Arc<Self>) {
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

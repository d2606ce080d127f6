//! A tenant's share of this process's threads. While others ask as well, what a tenant's requests take of them is paid for in
//! time, and whoever has had its share waits in its own line: nobody else's packets wait behind a flood of requests.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

/// What a request takes beside what its handler is seen to: its connection reads and parses it, and writes its answer.
const LEAST: Duration = Duration::from_micros(50);
/// As much as is had in this time is had at once: a page that is opened asks for twenty things.
const AT_ONCE: Duration = Duration::from_millis(20);
/// For how long somebody who has asked counts as one who asks.
const LATELY: Duration = Duration::from_secs(1);
/// The most that what goes on by itself is ever behind: a run that waits for longer would look like one that is stuck.
const LONGEST_DEBT: Duration = Duration::from_secs(1);
/// What a packet takes from its agent to whoever watches, and a byte of it beside that.
const PACKET: Duration = Duration::from_nanos(2_000);
const BYTE: Duration = Duration::from_nanos(1);

/// What so many packets of so many bytes take. It is not measured: most of it happens elsewhere, in the journal and the kernel.
pub(crate) fn work_of(packets: usize, bytes: usize) -> Duration {
    let times = |each: Duration, count: usize| each.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
    times(PACKET, packets) + times(BYTE, bytes)
}

/// Who asks, and what each has had.
#[derive(Default)]
pub(crate) struct Shares(Mutex<Asking>);

#[derive(Default)]
struct Asking {
    tenants: HashMap<String, Arc<Account>>,
    /// The last two that have asked, and when.
    latest: [Option<(String, Instant)>; 2],
}

impl Asking {
    /// Whether anybody else asks as well.
    fn note(&mut self, tenant: &str, now: Instant) -> bool {
        let [last, other] = &mut self.latest;
        match last {
            Some((name, then)) if name == tenant => *then = now,
            Some(_) | None => {
                std::mem::swap(last, other);
                *last = Some((tenant.to_owned(), now));
            }
        }
        other.as_ref().is_some_and(|(_, then)| now.duration_since(*then) < LATELY)
    }

    /// Whether anybody else asks, whoever asked last.
    fn has_others(&self, tenant: &str, now: Instant) -> bool {
        let is_other =
            |(name, then): &(String, Instant)| name != tenant && now.duration_since(*then) < LATELY;
        self.latest.iter().flatten().any(is_other)
    }

    fn account(&mut self, tenant: &str, now: Instant) -> Arc<Account> {
        if let Some(account) = self.tenants.get(tenant) {
            return Arc::clone(account);
        }
        // Only those remain that somebody waits for or pays into, and those that have had more than their share.
        self.tenants.retain(|_, account| Arc::strong_count(account) > 1 || *account.paid_until() > now);
        let account = Arc::new(Account::new(now));
        self.tenants.insert(tenant.to_owned(), Arc::clone(&account));
        account
    }
}

/// What one tenant has had.
struct Account {
    line: Semaphore,
    /// Until when its share would have lasted for what it has had.
    paid_until: Mutex<Instant>,
}

impl Account {
    fn new(now: Instant) -> Self {
        Self { line: Semaphore::new(1), paid_until: Mutex::new(now) }
    }

    fn paid_until(&self) -> MutexGuard<'_, Instant> {
        self.paid_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that was let through; what it takes is paid for.
pub(crate) struct Turn {
    account: Arc<Account>,
    /// Of one processor; nothing is paid for if zero.
    share: f64,
}

impl Shares {
    /// Waits in the tenant's line until it has not had more than so much of all processors, in hundredths. Without anybody else,
    /// and if zero, nobody waits.
    pub(crate) async fn wait(&self, tenant: &str, percent: u32) -> Turn {
        let now = Instant::now();
        let (account, has_others) = {
            let mut asking = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            (asking.account(tenant, now), asking.note(tenant, now))
        };
        let share = if has_others { f64::from(percent) / 100.0 * *PROCESSORS } else { 0.0 };
        let turn = Turn { account, share };
        if share > 0.0 {
            // One after the other, so that each finds what the one before has paid.
            let _first = turn.account.line.acquire().await;
            let due = *turn.account.paid_until();
            tokio::time::sleep_until(due).await;
            turn.pay(LEAST);
        }
        turn
    }
}

impl Shares {
    /// Pays for work that was done without a request, such as that of a run, or of a stream that is replayed; when to go on with it, if
    /// not at once. Nobody stands in a line for it: whoever pays later goes on later.
    pub(crate) fn owe(&self, tenant: &str, percent: u32, took: Duration) -> Option<Instant> {
        let now = Instant::now();
        let account = {
            let mut asking = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if percent == 0 || !asking.has_others(tenant, now) {
                return None;
            }
            asking.account(tenant, now)
        };
        let turn = Turn { account, share: f64::from(percent) / 100.0 * *PROCESSORS };
        turn.pay(took);
        let mut paid_until = turn.account.paid_until();
        *paid_until = (*paid_until).min(now + LONGEST_DEBT);
        Some(*paid_until).filter(|due| *due > now)
    }
}

/// How many this process may use. To ask for it takes a while.
static PROCESSORS: LazyLock<f64> =
    LazyLock::new(|| available_parallelism().map_or(1.0, |count| count.get() as f64));

impl Turn {
    fn pay(&self, took: Duration) {
        if self.share > 0.0 {
            let mut paid_until = self.account.paid_until();
            let now = Instant::now();
            let began = now.checked_sub(AT_ONCE).map_or(*paid_until, |then| then.max(*paid_until));
            *paid_until = began + took.div_f64(self.share);
        }
    }

    /// Does the work of a request, and pays for the time in which it keeps a thread.
    pub(crate) async fn measure<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        std::future::poll_fn(|context| {
            let began = Instant::now();
            let polled: Poll<T> = work.as_mut().poll(context);
            self.pay(began.elapsed());
            polled
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use futures_util::future::join_all;

    use super::*;

    /// A share of half a processor, however many there are.
    fn half() -> u32 {
        (50.0 / *PROCESSORS).round() as u32
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_asks_alone_waits_for_nobody() {
        let (shares, began) = (Shares::default(), Instant::now());
        for _ in 0..100_000 {
            shares.wait("a", half()).await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        shares.wait("b", half()).await;
        tokio::time::sleep(LATELY).await;
        let later = Instant::now();
        for _ in 0..100_000 {
            shares.wait("a", half()).await;
        }
        assert_eq!(later.elapsed(), Duration::ZERO, "the other is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn while_others_ask_a_flood_waits_in_its_own_line_and_nobody_else_does() {
        let (shares, began) = (Arc::new(Shares::default()), Instant::now());
        shares.wait("quiet", half()).await;
        let one = |_| shares.wait("loud", half());
        let flood = async {
            // 50 microseconds each, of half a processor.
            join_all((0..10_000).map(one)).await;
            began.elapsed()
        };
        let quiet = async {
            let mut longest = Duration::ZERO;
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(45)).await;
                let asked = Instant::now();
                shares.wait("quiet", half()).await;
                longest = longest.max(asked.elapsed());
            }
            longest
        };
        let (flood, longest) = tokio::join!(flood, quiet);
        let work = flood.as_secs_f64() * f64::from(half()) / 100.0 * *PROCESSORS;
        assert!((0.45..0.6).contains(&work), "half a second's: {work}");
        assert_eq!(longest, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_request_takes_is_paid_for_by_its_tenants_next() {
        let shares = Shares::default();
        shares.wait("quiet", half()).await;
        let turn = shares.wait("loud", half()).await;
        turn.measure(async { tokio::time::advance(Duration::from_millis(500)).await }).await;
        assert!(shares.wait("loud", half()).now_or_never().is_none());
        assert!(shares.wait("quiet", half()).now_or_never().is_some());
        assert!(shares.wait("loud", 0).now_or_never().is_some(), "zero is no limit");
    }

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_by_itself_has_its_share_and_is_never_far_behind() {
        let (shares, began) = (Shares::default(), Instant::now());
        let owe = |took| shares.owe("loud", half(), took);
        assert_eq!(owe(LATELY), None, "nobody else is there");
        shares.wait("quiet", half()).await;
        let mut packets = 0;
        while began.elapsed() < Duration::from_millis(500) {
            packets += 1000;
            if let Some(due) = owe(work_of(1000, 0)) {
                tokio::time::sleep_until(due).await;
            }
        }
        let work = work_of(packets, 0).as_secs_f64();
        assert!((0.24..0.27).contains(&work), "half a processor's for half a second: {work}");
        assert_eq!(owe(Duration::from_secs(60)), Some(Instant::now() + LONGEST_DEBT));
        assert_eq!(shares.owe("loud", 0, LATELY), None, "zero is no limit");
        assert!(shares.wait("quiet", half()).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_remembered_for_longer_than_needed() {
        let shares = Shares::default();
        for n in 0..100 {
            shares.wait(&n.to_string(), half()).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(shares.0.lock().unwrap().tenants.len() <= 2);
    }
}

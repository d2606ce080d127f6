//! Moves long CPU work away from the async workers, for example decoding a body of megabytes or
//! building a list. Each tenant has one such task at a time. A tenant's bodies are read at a
//! limited rate, because all tenants share threads, caches and the kernel.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tracing::Span;

/// Smaller bodies are processed in place.
const SMALL_BODY: usize = 64 * 1024;
/// How long a body may keep its slot while its next piece is missing. Then another body gets the
/// slot.
const PIECE_TIMEOUT: Duration = Duration::from_millis(5);
/// The sum of such waits after which a body loses its slot. Without this limit, a client that sends
/// a byte now and then would block the tenant's other bodies.
const MAX_SLOT_WAIT: Duration = Duration::from_millis(100);
/// The burst: a tenant may send what its rate allows for this time without a wait. Clients often
/// send two or three pictures together.
const BURST: Duration = Duration::from_millis(250);

/// The nice value of the threads that do long work, so that the kernel prefers all other threads.
const NICE: i32 = 10;

/// Runs CPU work for a body of this size. For a large body, the other tasks of this worker move to
/// another worker first, and the work runs on a low-priority thread.
pub fn run<T: Send>(bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    match Handle::try_current() {
        Ok(here) if bytes > SMALL_BODY && here.runtime_flavor() == RuntimeFlavor::MultiThread => {
            tokio::task::block_in_place(|| run_at_low_priority(&here, work))
        }
        Ok(_) | Err(_) => work(),
    }
}

/// Runs the work on a new thread, because a process without privileges cannot lower the nice value
/// of a thread again.
fn run_at_low_priority<T: Send>(here: &Handle, work: impl FnOnce() -> T + Send) -> T {
    let (mut work, span) = (Some(work), Span::current());
    let mut run = || {
        let _here = here.enter();
        span.in_scope(|| work.take().map(|work| work()))
    };
    let begun = thread::scope(|threads| {
        let lower_priority_and_run = || {
            // If the system refuses a nice value, the work runs at normal priority.
            let _ = rustix::process::nice(NICE);
            run()
        };
        let offload = thread::Builder::new().name("cpu-offload".into());
        offload.spawn_scoped(threads, lower_priority_and_run).map(thread::ScopedJoinHandle::join)
    });
    let done = match begun {
        Ok(Ok(done)) => done,
        Ok(Err(panic)) => resume_unwind(panic),
        // The system cannot create another thread, so the work runs on this one.
        Err(_) => run(),
    };
    done.unwrap_or_else(|| unreachable!("work is taken once"))
}

/// The long work of each tenant that is running or waiting.
#[derive(Default)]
pub struct CpuOffload(Mutex<HashMap<String, Arc<TenantWork>>>);

/// The long work of one tenant.
struct TenantWork {
    slot: Arc<Semaphore>,
    /// A separate slot for answers: a tenant whose uploads fill the other slot must still be able
    /// to list its runs.
    answer: Arc<Semaphore>,
    /// The time at which the bytes that were read would have arrived at the allowed rate.
    paid_until: Mutex<Instant>,
}

impl TenantWork {
    fn new() -> Self {
        let now = Instant::now();
        let paid_until = Mutex::new(now.checked_sub(BURST).unwrap_or(now));
        let semaphore = || Arc::new(Semaphore::new(1));
        Self { slot: semaphore(), answer: semaphore(), paid_until }
    }

    fn paid_until(&self) -> MutexGuard<'_, Instant> {
        self.paid_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a task has a slot or waits for one. Those tasks hold the semaphores, not this
    /// struct.
    fn is_under_way(&self) -> bool {
        [&self.slot, &self.answer].iter().any(|slot| Arc::strong_count(slot) > 1)
    }

    fn is_ahead(&self) -> bool {
        *self.paid_until() > Instant::now()
    }

    /// Charges for bytes that were read. Up to a burst of idle time in the past counts as credit.
    fn charge(&self, bytes: usize, per_second: usize) {
        if per_second == 0 {
            return;
        }
        let mut paid_until = self.paid_until();
        let began =
            Instant::now().checked_sub(BURST).map_or(*paid_until, |then| then.max(*paid_until));
        *paid_until = began + Duration::from_secs_f64(bytes as f64 / per_second as f64);
    }
}

impl CpuOffload {
    /// Waits until the tenant has no other long work. Small bodies do not wait.
    pub async fn begin(&self, tenant: &str, bytes: usize) -> Option<OwnedSemaphorePermit> {
        if bytes <= SMALL_BODY {
            return None;
        }
        Arc::clone(&self.of(tenant).slot).acquire_owned().await.ok()
    }

    /// Waits until the tenant has no other large answer in progress: a list, or a page of packets
    /// or turns. The caller holds the permit from its first read until the answer is encoded.
    pub async fn answer(&self, tenant: &str) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.of(tenant).answer).acquire_owned().await.ok()
    }

    /// Reads a body at the tenant's rate in bytes per second. All bodies of the tenant share this
    /// rate. Zero means no limit.
    pub fn intake<B>(&self, tenant: &str, body: B, per_second: usize) -> Intake<B> {
        Intake {
            work: self.of(tenant),
            body,
            per_second,
            read: 0,
            permit: None,
            waited: Duration::ZERO,
        }
    }

    fn of(&self, tenant: &str) -> Arc<TenantWork> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(work) = known.get(tenant) {
            return Arc::clone(work);
        }
        // Keep only tenants with running or waiting work, and those that are ahead of their rate.
        known.retain(|_, work| {
            Arc::strong_count(work) > 1 || work.is_under_way() || work.is_ahead()
        });
        let work = Arc::new(TenantWork::new());
        known.insert(tenant.to_owned(), Arc::clone(&work));
        work
    }
}

/// A request body that is being read.
pub struct Intake<B> {
    work: Arc<TenantWork>,
    body: B,
    per_second: usize,
    read: usize,
    permit: Option<OwnedSemaphorePermit>,
    /// How long this slot has waited for missing pieces.
    waited: Duration,
}

impl<B, E> Intake<B>
where
    B: Stream<Item = Result<Bytes, E>> + Unpin,
{
    /// Returns the next piece. A body keeps its slot until its end, as long as its pieces arrive in
    /// time: if many bodies were read in turns, all of them would fill memory and none would be
    /// complete. A slow body releases the slot.
    /// The gateway does not read ahead of the rate, so TCP backpressure slows the sender.
    pub async fn next(&mut self) -> Option<Result<Bytes, E>> {
        if self.waited >= MAX_SLOT_WAIT {
            self.permit = None;
        }
        if self.permit.is_none() && (self.read > SMALL_BODY || self.work.is_ahead()) {
            self.permit = Arc::clone(&self.work.slot).acquire_owned().await.ok();
            self.waited = Duration::ZERO;
        }
        let piece = self.piece().await?;
        if let Ok(piece) = &piece {
            self.read = self.read.saturating_add(piece.len());
            self.work.charge(piece.len(), self.per_second);
        }
        Some(piece)
    }

    async fn piece(&mut self) -> Option<Result<Bytes, E>> {
        if self.permit.is_some() {
            let due = *self.work.paid_until();
            tokio::time::sleep_until(due).await;
            let started = Instant::now();
            if let Ok(piece) = tokio::time::timeout(PIECE_TIMEOUT, self.body.next()).await {
                self.waited += started.elapsed();
                // While pieces are ready the loop never blocks, so it must yield to other tasks.
                tokio::task::yield_now().await;
                return piece;
            }
            self.permit = None;
        }
        self.body.next().await
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::FutureExt as _;
    use futures_util::stream;

    use super::*;

    const MIB: usize = 1024 * 1024;

    /// A body of which all pieces are available.
    fn ready(pieces: usize, size: usize) -> impl Stream<Item = Result<Bytes, Infallible>> + Unpin {
        let piece = Bytes::from(vec![0; size]);
        stream::iter(std::iter::repeat_n(piece, pieces).map(Ok))
    }

    fn never() -> impl Stream<Item = Result<Bytes, Infallible>> + Unpin {
        stream::pending()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn heavy_work_steps_back_and_nothing_else_does() {
        let own = || rustix::process::getpriority_process(None).unwrap();
        let (here, lighter) = (own(), run(SMALL_BODY, own));
        assert_eq!(lighter, here);
        assert_eq!(run(SMALL_BODY + 1, own), (here + NICE).min(19));
        assert_eq!(own(), here, "afterwards");
        assert!(
            run(SMALL_BODY + 1, || Handle::try_current().is_ok()),
            "it may use what the runtime has"
        );
        let broken =
            std::panic::catch_unwind(|| run(SMALL_BODY + 1, || resume_unwind(Box::new(7_u8))));
        assert_eq!(
            broken.unwrap_err().downcast_ref(),
            Some(&7_u8),
            "a panic comes out where it would have"
        );
    }

    #[tokio::test]
    async fn a_tenants_heavy_work_waits_for_its_own_alone() {
        let heavy = CpuOffload::default();
        let first = heavy.begin("a", SMALL_BODY + 1).await;
        assert!(heavy.begin("a", SMALL_BODY + 1).now_or_never().is_none(), "one at a time");
        assert!(heavy.begin("b", SMALL_BODY + 1).now_or_never().is_some(), "another tenant's");
        assert!(heavy.begin("a", SMALL_BODY).now_or_never().is_some(), "light work");
        drop(first);
        assert!(heavy.begin("a", SMALL_BODY + 1).now_or_never().is_some());
        assert!(heavy.begin("c", SMALL_BODY + 1).now_or_never().is_some());
        assert_eq!(heavy.0.lock().unwrap().len(), 1, "nobody is remembered for longer");
    }

    #[tokio::test]
    async fn of_a_tenants_answers_one_is_made_at_a_time_whatever_it_sends() {
        let heavy = CpuOffload::default();
        let _body = heavy.begin("a", SMALL_BODY + 1).await;
        let first = heavy.answer("a").now_or_never();
        assert!(first.is_some(), "it is not held up by what comes in");
        assert!(heavy.answer("a").now_or_never().is_none());
        assert!(heavy.answer("b").now_or_never().is_some());
        assert!(heavy.answer("a").now_or_never().is_none(), "nor after another tenant came");
        drop(first);
        assert!(heavy.answer("a").now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_slowly_holds_up_no_other() {
        let heavy = CpuOffload::default();
        let mut silent = Intake { read: SMALL_BODY + 1, ..heavy.intake("a", never(), 0) };
        let mut coming = Intake { read: SMALL_BODY + 1, ..heavy.intake("a", ready(9, 5), 0) };
        let waiting = silent.next();
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        let piece = tokio::select! {
            biased;
            _ = waiting => unreachable!("it never comes"),
            piece = coming.next() => piece,
        };
        assert_eq!(piece.unwrap().unwrap().len(), 5);
        assert!(coming.permit.is_some(), "it goes on as long as it comes");
        let waiter = heavy.begin("a", SMALL_BODY + 1);
        tokio::pin!(waiter);
        assert!(waiter.as_mut().now_or_never().is_none());
        coming.waited = MAX_SLOT_WAIT;
        assert!(coming.next().now_or_never().is_none(), "it waits again");
        assert!(waiter.now_or_never().is_some(), "others have their turn");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenants_bodies_are_read_at_its_pace_however_many_there_are() {
        let (heavy, began) = (CpuOffload::default(), Instant::now());
        let read = |tenant: &'static str, pieces: usize, size: usize| {
            let mut intake = heavy.intake(tenant, ready(pieces, size), 8 * MIB);
            async move { while intake.next().await.is_some() {} }
        };
        // A burst does not wait.
        read("a", 32, 64 * 1024).await;
        assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
        let many = futures_util::future::join_all((0..10).map(|_| read("a", 64, 64 * 1024)));
        let (many, others) = tokio::join!(
            async {
                many.await;
                began.elapsed()
            },
            async {
                read("b", 16, 64 * 1024).await;
                began.elapsed()
            },
        );
        // 40 MiB at 8 MiB a second. The first 64 KiB of each body need no slot.
        assert!((4.5..5.1).contains(&many.as_secs_f64()), "{many:?}");
        assert!(
            others < Duration::from_millis(10),
            "another tenant waits for none of it: {others:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn small_bodies_keep_the_pace_as_well() {
        let (heavy, began) = (CpuOffload::default(), Instant::now());
        for _ in 0..4096 {
            let mut intake = heavy.intake("a", ready(1, 4096), 8 * MIB);
            while intake.next().await.is_some() {}
        }
        let took = began.elapsed().as_secs_f64();
        assert!((1.7..1.8).contains(&took), "16 MiB, 2 of them at once: {took}");
    }
}

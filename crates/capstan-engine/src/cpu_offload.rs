//! Heavy work: what keeps a thread busy for longer than other people's packets may wait, such as
//! reading and decoding a body of megabytes, or making a list. Of each tenant's one is worked on at
//! a time, however many have come, and bodies are read no faster than a tenant may send them:
//! threads, caches and the kernel are everybody's.

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

/// What is not larger takes no time worth waiting for.
const LIGHT: usize = 64 * 1024;
/// How long the next piece of a body is waited for before another body is read instead.
const PATIENCE: Duration = Duration::from_millis(5);
/// How long one body is waited for in all before the others have their turn: whoever sends a byte
/// now and then is not let in the way.
const LONGEST: Duration = Duration::from_millis(100);
/// As much as may be sent in this time is read as fast as it comes: pictures come in twos and
/// threes.
const AT_ONCE: Duration = Duration::from_millis(250);

/// By how much the kernel puts heavy work behind the rest: whoever wakes up beside it runs at once.
const NICE: i32 = 10;

/// Does work on so many bytes. If they are many, everything else that waits for this thread goes to
/// another one first: it would wait for longer than anybody should. And it is done by a thread that
/// steps back for all others.
pub fn run<T: Send>(bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    match Handle::try_current() {
        Ok(here) if bytes > LIGHT && here.runtime_flavor() == RuntimeFlavor::MultiThread => {
            tokio::task::block_in_place(|| stepping_back(&here, work))
        }
        Ok(_) | Err(_) => work(),
    }
}

/// In a thread of its own, for no thread that has stepped back may step forward again.
fn stepping_back<T: Send>(here: &Handle, work: impl FnOnce() -> T + Send) -> T {
    let (mut work, span) = (Some(work), Span::current());
    let mut run = || {
        let _here = here.enter();
        span.in_scope(|| work.take().map(|work| work()))
    };
    let begun = thread::scope(|threads| {
        let step_back_and_run = || {
            // Where it is not allowed, everybody waits a little longer.
            let _ = rustix::process::nice(NICE);
            run()
        };
        let heavy = thread::Builder::new().name("heavy".into());
        heavy.spawn_scoped(threads, step_back_and_run).map(thread::ScopedJoinHandle::join)
    });
    let done = match begun {
        Ok(Ok(done)) => done,
        Ok(Err(panic)) => resume_unwind(panic),
        // There is no room for one more thread.
        Err(_) => run(),
    };
    done.unwrap_or_else(|| unreachable!("work is taken once"))
}

/// Whose heavy work is under way, or waits.
#[derive(Default)]
pub struct CpuOffload(Mutex<HashMap<String, Arc<Work>>>);

/// One tenant's.
struct Work {
    one: Arc<Semaphore>,
    /// Apart from it: whoever sends too much has to see what to stop.
    answer: Arc<Semaphore>,
    /// When what has been read would have come, had it come at the pace that is allowed.
    paid_until: Mutex<Instant>,
}

impl Work {
    fn new() -> Self {
        let now = Instant::now();
        let paid_until = Mutex::new(now.checked_sub(AT_ONCE).unwrap_or(now));
        let one = || Arc::new(Semaphore::new(1));
        Self { one: one(), answer: one(), paid_until }
    }

    fn paid_until(&self) -> MutexGuard<'_, Instant> {
        self.paid_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anybody has a turn, or waits for one: whoever does holds the semaphore, not all of
    /// this.
    fn is_under_way(&self) -> bool {
        [&self.one, &self.answer].iter().any(|turns| Arc::strong_count(turns) > 1)
    }

    fn is_ahead(&self) -> bool {
        *self.paid_until() > Instant::now()
    }

    /// So much was read. At this pace it takes a while, some of which may lie in the past.
    fn pay(&self, bytes: usize, per_second: usize) {
        if per_second == 0 {
            return;
        }
        let mut paid_until = self.paid_until();
        let began =
            Instant::now().checked_sub(AT_ONCE).map_or(*paid_until, |then| then.max(*paid_until));
        *paid_until = began + Duration::from_secs_f64(bytes as f64 / per_second as f64);
    }
}

impl CpuOffload {
    /// Waits until the tenant has no other heavy work under way; what is light waits for nobody.
    pub async fn begin(&self, tenant: &str, bytes: usize) -> Option<OwnedSemaphorePermit> {
        if bytes <= LIGHT {
            return None;
        }
        Arc::clone(&self.of(tenant).one).acquire_owned().await.ok()
    }

    /// Waits until the tenant has no other answer under way that is made of much: a list, a page of
    /// packets or turns. To be held from before its first read until it is written down.
    pub async fn answer(&self, tenant: &str) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.of(tenant).answer).acquire_owned().await.ok()
    }

    /// A body that is to be read, at so many bytes a second for all of the tenant's; as fast as it
    /// comes if zero.
    pub fn intake<B>(&self, tenant: &str, body: B, per_second: usize) -> Intake<B> {
        Intake {
            work: self.of(tenant),
            body,
            per_second,
            read: 0,
            turn: None,
            waited: Duration::ZERO,
        }
    }

    fn of(&self, tenant: &str) -> Arc<Work> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(work) = known.get(tenant) {
            return Arc::clone(work);
        }
        // Only those remain that somebody works with or waits for, and those that have read ahead.
        known.retain(|_, work| {
            Arc::strong_count(work) > 1 || work.is_under_way() || work.is_ahead()
        });
        let work = Arc::new(Work::new());
        known.insert(tenant.to_owned(), Arc::clone(&work));
        work
    }
}

/// A body on its way in.
pub struct Intake<B> {
    work: Arc<Work>,
    body: B,
    per_second: usize,
    read: usize,
    turn: Option<OwnedSemaphorePermit>,
    /// In this turn, for pieces to come.
    waited: Duration,
}

impl<B, E> Intake<B>
where
    B: Stream<Item = Result<Bytes, E>> + Unpin,
{
    /// The next piece. A body that has begun is read to its end as long as it comes: many that are
    /// read a little each would all be held, and none would ever be whole. One that comes slowly
    /// holds up no other.
    ///
    /// What is not read yet stays with its sender, who has to wait: that is how a pace is kept.
    pub async fn next(&mut self) -> Option<Result<Bytes, E>> {
        if self.waited >= LONGEST {
            self.turn = None;
        }
        if self.turn.is_none() && (self.read > LIGHT || self.work.is_ahead()) {
            self.turn = Arc::clone(&self.work.one).acquire_owned().await.ok();
            self.waited = Duration::ZERO;
        }
        let piece = self.piece().await?;
        if let Ok(piece) = &piece {
            self.read = self.read.saturating_add(piece.len());
            self.work.pay(piece.len(), self.per_second);
        }
        Some(piece)
    }

    async fn piece(&mut self) -> Option<Result<Bytes, E>> {
        if self.turn.is_some() {
            let due = *self.work.paid_until();
            tokio::time::sleep_until(due).await;
            let asked = Instant::now();
            if let Ok(piece) = tokio::time::timeout(PATIENCE, self.body.next()).await {
                self.waited += asked.elapsed();
                // As long as pieces are there nothing else would get this thread.
                tokio::task::yield_now().await;
                return piece;
            }
            self.turn = None;
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

    /// A body of so many pieces, all of them there.
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
        let (here, lighter) = (own(), run(LIGHT, own));
        assert_eq!(lighter, here);
        assert_eq!(run(LIGHT + 1, own), (here + NICE).min(19));
        assert_eq!(own(), here, "afterwards");
        assert!(
            run(LIGHT + 1, || Handle::try_current().is_ok()),
            "it may use what the runtime has"
        );
        let broken = std::panic::catch_unwind(|| run(LIGHT + 1, || resume_unwind(Box::new(7_u8))));
        assert_eq!(
            broken.unwrap_err().downcast_ref(),
            Some(&7_u8),
            "a panic comes out where it would have"
        );
    }

    #[tokio::test]
    async fn a_tenants_heavy_work_waits_for_its_own_alone() {
        let heavy = CpuOffload::default();
        let first = heavy.begin("a", LIGHT + 1).await;
        assert!(heavy.begin("a", LIGHT + 1).now_or_never().is_none(), "one at a time");
        assert!(heavy.begin("b", LIGHT + 1).now_or_never().is_some(), "another tenant's");
        assert!(heavy.begin("a", LIGHT).now_or_never().is_some(), "light work");
        drop(first);
        assert!(heavy.begin("a", LIGHT + 1).now_or_never().is_some());
        assert!(heavy.begin("c", LIGHT + 1).now_or_never().is_some());
        assert_eq!(heavy.0.lock().unwrap().len(), 1, "nobody is remembered for longer");
    }

    #[tokio::test]
    async fn of_a_tenants_answers_one_is_made_at_a_time_whatever_it_sends() {
        let heavy = CpuOffload::default();
        let _body = heavy.begin("a", LIGHT + 1).await;
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
        let mut silent = Intake { read: LIGHT + 1, ..heavy.intake("a", never(), 0) };
        let mut coming = Intake { read: LIGHT + 1, ..heavy.intake("a", ready(9, 5), 0) };
        let waiting = silent.next();
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        let piece = tokio::select! {
            biased;
            _ = waiting => unreachable!("it never comes"),
            piece = coming.next() => piece,
        };
        assert_eq!(piece.unwrap().unwrap().len(), 5);
        assert!(coming.turn.is_some(), "it goes on as long as it comes");
        let waiter = heavy.begin("a", LIGHT + 1);
        tokio::pin!(waiter);
        assert!(waiter.as_mut().now_or_never().is_none());
        coming.waited = LONGEST;
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
        // As much as may come at once is not waited for.
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
        // 40 MiB at 8 MiB a second; pieces of the first 64 KiB of each go before their turn.
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

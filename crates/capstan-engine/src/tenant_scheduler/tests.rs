use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tokio::task::{JoinSet, yield_now};

use super::*;

const MS: Duration = Duration::from_millis(1);

/// Each tenant may use half of a processor, whatever their number.
fn half() -> Arc<TenantScheduler> {
    Arc::new(TenantScheduler { share: 0.5, ..TenantScheduler::new(0) })
}

/// Waits until all tasks that can run now have run.
async fn settle() {
    for _ in 0..100 {
        yield_now().await;
    }
}

/// Tasks of a tenant that each have one turn when the bell rings. Counts those that had it.
fn crowd(
    scheduler: &TenantScheduler,
    tenant: &str,
    bell: &Arc<Notify>,
) -> (JoinSet<()>, Arc<AtomicUsize>) {
    let (mut crowd, turns) = (JoinSet::new(), Arc::<AtomicUsize>::default());
    for _ in 0..1000 {
        let (bell, turns) = (Arc::clone(bell), Arc::clone(&turns));
        let one = async move {
            bell.notified().await;
            turns.fetch_add(1, Ordering::Relaxed);
        };
        crowd.spawn(scheduler.task(tenant, one));
    }
    (crowd, turns)
}

#[tokio::test]
async fn of_a_crowd_that_is_woken_at_once_few_go_before_somebody_else() {
    let (scheduler, bell) = (half(), Arc::<Notify>::default());
    let (crowd, turns) = crowd(&scheduler, "loud", &bell);
    settle().await;
    let seen = Arc::clone(&turns);
    bell.notify_waiters();
    // Behind all tasks in the runtime's queue.
    let before = tokio::spawn(async move { seen.load(Ordering::Relaxed) }).await.unwrap();
    assert!((1..=4 * *PROCESSORS).contains(&before), "{before} of them went before");
    crowd.join_all().await;
    assert_eq!(turns.load(Ordering::Relaxed), 1000, "each has its turn");
    assert_eq!(scheduler.of("loud").line().awake, 0);
}

#[tokio::test]
async fn a_task_that_ends_in_whatever_way_leaves_its_place_to_the_next() {
    let (scheduler, bell) = (half(), Arc::<Notify>::default());
    let (mut crowd, _) = crowd(&scheduler, "loud", &bell);
    settle().await;
    bell.notify_waiters();
    // Some are awake, and the others wait.
    crowd.abort_all();
    while crowd.join_next().await.is_some() {}
    let broken = tokio::spawn(scheduler.task("loud", async { panic!("as it is meant to") }));
    assert!(broken.await.unwrap_err().is_panic());
    assert_eq!(scheduler.of("loud").line().awake, 0);
    tokio::spawn(scheduler.task("loud", yield_now())).await.unwrap();
}

/// Work of a tenant: some turns of a millisecond each.
async fn work(scheduler: Arc<TenantScheduler>, tenant: &'static str, turns: u32) -> Duration {
    let began = Instant::now();
    let work = async {
        for _ in 0..turns {
            scheduler.pay(tenant, MS);
            yield_now().await;
        }
    };
    scheduler.task(tenant, work).await;
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn while_others_ask_a_lane_has_its_share_and_alone_it_has_all() {
    let scheduler = half();
    scheduler.enter("loud");
    assert_eq!(work(Arc::clone(&scheduler), "loud", 1000).await, Duration::ZERO, "it is alone");
    scheduler.enter("quiet");
    let (loud, quiet) = tokio::join!(
        work(Arc::clone(&scheduler), "loud", 100),
        work(Arc::clone(&scheduler), "quiet", 5)
    );
    assert!(
        (150..=220).contains(&loud.as_millis()),
        "100 ms of work at half a processor: {loud:?}"
    );
    assert_eq!(quiet, Duration::ZERO, "it waits for nobody");
    tokio::time::sleep(LATELY).await;
    assert_eq!(
        work(Arc::clone(&scheduler), "loud", 1000).await,
        Duration::ZERO,
        "the other is gone"
    );
}

#[tokio::test(start_paused = true)]
async fn beside_others_no_more_are_awake_than_may_be_at_work() {
    let scheduler = half();
    let queue = scheduler.of("a");
    assert_eq!(queue.line().room, *WIDE);
    scheduler.enter("other");
    scheduler.pay("a", Duration::ZERO);
    assert_eq!(queue.line().room, 1);
    tokio::time::sleep(LATELY).await;
    scheduler.pay("a", Duration::ZERO);
    assert_eq!(queue.line().room, *WIDE);
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_is_far_behind_still_has_a_turn_now_and_then_and_catches_up() {
    let scheduler = half();
    scheduler.enter("quiet");
    scheduler.pay("loud", Duration::from_secs(60));
    let began = Instant::now();
    let turns = work(Arc::clone(&scheduler), "loud", 3).await;
    assert!(turns <= 3 * LONGEST_PAUSE + 3 * MS, "{turns:?}");
    tokio::time::sleep_until(began + LONGEST_DEBT + 10 * MS).await;
    assert!(!scheduler.of("loud").line().is_behind(Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn requests_wait_in_their_tenants_lane_as_soon_as_one_of_their_connection_is_known() {
    let scheduler = half();
    scheduler.enter("quiet");
    scheduler.pay("loud", Duration::from_secs(60));
    let (connection, here) = (TaskSlot::new(None, None), Arc::clone(&scheduler));
    let turns = Arc::<AtomicUsize>::default();
    let mut requests = JoinSet::new();
    for _ in 0..50 {
        let (scheduler, turns) = (Arc::clone(&here), Arc::clone(&turns));
        requests.spawn(ScheduledTask::request(Some(&connection), async move {
            turns.fetch_add(1, Ordering::Relaxed);
            assert!(scheduler.enter("loud"));
        }));
    }
    // A pause can end at once. All its tasks belong to one tenant, which has no turn left.
    settle().await;
    let turns = turns.load(Ordering::Relaxed);
    assert!(
        (1..=1 + 2 * *PROCESSORS).contains(&turns),
        "{turns} went before it was known whose they are"
    );
    requests.join_all().await;
}

#[tokio::test]
async fn a_connection_that_brings_several_tenants_requests_is_nobodys() {
    let (scheduler, connection) = (half(), TaskSlot::new(None, None));
    let ask = |tenant| {
        let scheduler = Arc::clone(&scheduler);
        ScheduledTask::request(Some(&connection), async move { scheduler.enter(tenant) })
    };
    assert!(ask("a").await);
    assert!(connection.is_in(&scheduler.of("a")));
    assert!(ask("b").await);
    assert!(!connection.is_in(&scheduler.of("a")) && !connection.is_in(&scheduler.of("b")));
    assert!(ask("b").await);
    assert!(!connection.is_in(&scheduler.of("b")));
}

#[tokio::test(start_paused = true)]
async fn a_request_does_not_wait_behind_whoever_used_its_connection_before() {
    let scheduler = half();
    scheduler.enter("quiet");
    let (here, began) = (Arc::clone(&scheduler), Instant::now());
    let connection = async move {
        here.enter("loud");
        here.pay("loud", Duration::from_secs(60));
        // The queue pauses after the turn of a task.
        here.task("loud", async {}).await;
        TaskSlot::free_connection();
        // The next request comes over the same connection.
        TaskSlot::next_turn().await;
        assert!(here.enter("quiet"));
        TaskSlot::next_turn().await;
        began.elapsed()
    };
    assert_eq!(ScheduledTask::connection(connection).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_request_goes_on_in_its_lane_as_soon_as_it_is_known_whose_it_is() {
    let scheduler = half();
    scheduler.enter("quiet");
    scheduler.pay("loud", Duration::from_secs(60));
    // The queue pauses after the turn of a task.
    scheduler.task("loud", async {}).await;
    let (here, began) = (Arc::clone(&scheduler), Instant::now());
    let connection = async move {
        here.enter("loud");
        TaskSlot::next_turn().await;
        began.elapsed()
    };
    assert!(ScheduledTask::connection(connection).await >= LONGEST_PAUSE);
}

#[tokio::test]
async fn a_task_without_a_lane_is_an_ordinary_one() {
    let scheduler = half();
    assert!(!scheduler.enter("a"), "this one");
    assert!(ScheduledTask::without(async {}).now_or_never().is_some());
    assert!(ScheduledTask::connection(async { scheduler.enter("a") }).await);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_remembered_for_longer_than_needed() {
    let scheduler = half();
    for n in 0..100 {
        scheduler.enter(&n.to_string());
        scheduler.pay(&n.to_string(), MS);
        tokio::time::sleep(50 * MS).await;
    }
    assert!(scheduler.by_tenant.lock().unwrap().len() <= 2);
}

//! What is known of a task that waits in a lane, and the task itself.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::TenantQueue;

tokio::task_local! {
    static CURRENT: Arc<TaskSlot>;
}

/// A task's place in a lane.
pub struct TaskSlot {
    /// Of the connection whose request it answers.
    connection: Option<Arc<Self>>,
    state: Mutex<State>,
}

struct State {
    /// None if it is not known whose it is: then it waits for nobody.
    lane: Option<Arc<TenantQueue>>,
    /// Where requests of a connection wait until it is known whose they are.
    strangers: Option<Arc<TenantQueue>>,
    /// A connection that brings several tenants' requests, as one of a proxy does, is nobody's.
    is_shared: bool,
    task: Option<Waker>,
    stage: Stage,
}

enum Stage {
    Asleep,
    /// In its lane's line.
    Waiting,
    /// In the runtime's line, with room in this lane.
    Awake(Option<Arc<TenantQueue>>),
    /// Being polled.
    AtWork(Option<Arc<TenantQueue>>, IsWoken),
    Gone,
}

/// Whether it was woken while it was at work.
type IsWoken = bool;

impl TaskSlot {
    pub(super) fn new(lane: Option<Arc<TenantQueue>>, connection: Option<Arc<Self>>) -> Arc<Self> {
        let state =
            State { lane, strangers: None, is_shared: false, task: None, stage: Stage::Asleep };
        Arc::new(Self { connection, state: Mutex::new(state) })
    }

    /// That of the present task, if it has one.
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From its next turn on it is this lane's, and so is its connection.
    pub(super) fn enter(&self, lane: &Arc<TenantQueue>) {
        self.state().lane = Some(Arc::clone(lane));
        if let Some(connection) = &self.connection {
            let mut state = connection.state();
            state.is_shared |= state.lane.as_ref().is_some_and(|known| !Arc::ptr_eq(known, lane));
            state.lane = (!state.is_shared).then(|| Arc::clone(lane));
        }
    }

    /// Nothing is under way on the present task's connection any more: nobody knows whose the next
    /// request is, and it must not wait behind those of whoever was the last.
    pub fn free_connection() {
        let _ =
            CURRENT.try_with(|seat| seat.connection.as_ref().unwrap_or(seat).state().lane = None);
    }

    /// The present task goes on in its next turn, which is in the lane that it has just entered.
    pub async fn next_turn() {
        let mut is_next = false;
        poll_fn(|context| {
            if std::mem::replace(&mut is_next, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    #[cfg(test)]
    pub(super) fn is_in(&self, lane: &Arc<TenantQueue>) -> bool {
        self.state().lane.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, lane))
    }

    /// Where to wait. A request waits where its connection does until it is known whose it is.
    fn lane(&self, state: &State) -> Option<Arc<TenantQueue>> {
        let of_connection = |connection: &Arc<Self>| {
            let mut state = connection.state();
            let known = state.lane.clone();
            known.unwrap_or_else(|| {
                Arc::clone(state.strangers.get_or_insert_with(TenantQueue::of_strangers))
            })
        };
        state.lane.clone().or_else(|| self.connection.as_ref().map(of_connection))
    }

    /// Goes to the runtime's line, or waits in its lane's.
    fn line_up(self: &Arc<Self>, state: &mut State) {
        let lane = self.lane(state);
        let is_free = lane.as_ref().is_none_or(|lane| lane.admits(self));
        state.stage = if is_free { Stage::Awake(lane) } else { Stage::Waiting };
    }

    /// Somebody has woken it.
    fn rise(self: &Arc<Self>) {
        let mut state = self.state();
        match &mut state.stage {
            Stage::Asleep => {
                self.line_up(&mut state);
                state.go();
            }
            Stage::AtWork(_, is_woken) => *is_woken = true,
            Stage::Waiting | Stage::Awake(_) | Stage::Gone => {}
        }
    }

    /// Whether it takes the room that has become free in a lane in which it waits.
    pub(super) fn is_called(self: &Arc<Self>, lane: &Arc<TenantQueue>) -> bool {
        let mut state = self.state();
        if !matches!(state.stage, Stage::Waiting) {
            return false;
        }
        let is_still_here = self.lane(&state).is_some_and(|now| Arc::ptr_eq(&now, lane));
        if is_still_here {
            state.stage = Stage::Awake(Some(Arc::clone(lane)));
        } else {
            // It has become known whose it is.
            self.line_up(&mut state);
        }
        state.go();
        is_still_here
    }

    /// Whether it is its turn.
    fn begins(self: &Arc<Self>, context: &Context<'_>) -> bool {
        let mut state = self.state();
        if !state.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
            state.task = Some(context.waker().clone());
        }
        // The runtime polls a task once before anybody has woken it.
        if matches!(state.stage, Stage::Asleep) {
            self.line_up(&mut state);
        }
        let Stage::Awake(lane) = &mut state.stage else { return false };
        state.stage = Stage::AtWork(lane.take(), false);
        true
    }

    /// Its turn is over, and took so long.
    fn ends(self: &Arc<Self>, next: Stage, took: Duration, now: Instant) {
        let mut state = self.state();
        let before = std::mem::replace(&mut state.stage, next);
        if matches!(state.stage, Stage::Gone) {
            state.task = None;
        }
        drop(state);
        let (lane, is_woken) = match before {
            Stage::Awake(lane) => (lane, false),
            Stage::AtWork(lane, is_woken) => (lane, is_woken),
            Stage::Asleep | Stage::Waiting | Stage::Gone => (None, false),
        };
        if let Some(lane) = lane {
            lane.pass_on(took, now);
        }
        // Behind all that have waited meanwhile.
        if is_woken {
            self.rise();
        }
    }
}

impl State {
    /// Tells the runtime, if it is its turn.
    fn go(&self) {
        if let (Stage::Awake(_), Some(task)) = (&self.stage, &self.task) {
            task.wake_by_ref();
        }
    }
}

impl Wake for TaskSlot {
    fn wake(self: Arc<Self>) {
        self.rise();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rise();
    }
}

/// A task's own hold on its place: when it is gone, the place is free.
struct Seated {
    seat: Arc<TaskSlot>,
    waker: Waker,
}

impl Seated {
    fn new(seat: Arc<TaskSlot>) -> Self {
        Self { waker: Waker::from(Arc::clone(&seat)), seat }
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.seat.ends(Stage::Gone, Duration::ZERO, Instant::now());
    }
}

pin_project! {
    /// A task that waits in its tenant's lane whenever it is woken; an ordinary one if it has no
    /// place in any.
    pub struct ScheduledTask<F> {
        #[pin]
        work: F,
        seated: Option<Seated>,
    }
}

impl<F> ScheduledTask<F> {
    pub(super) fn new(seat: Option<Arc<TaskSlot>>, work: F) -> Self {
        Self { work, seated: seat.map(Seated::new) }
    }

    /// A task that waits for nobody.
    pub fn without(work: F) -> Self {
        Self::new(None, work)
    }

    /// A connection, of which it is not known yet whose it is.
    pub fn connection(work: F) -> Self {
        Self::new(Some(TaskSlot::new(None, None)), work)
    }

    /// A request that came over a connection, beside others.
    pub fn request(connection: Option<&Arc<TaskSlot>>, work: F) -> Self {
        Self::new(
            connection.map(|connection| TaskSlot::new(None, Some(Arc::clone(connection)))),
            work,
        )
    }
}

impl<F: Future> Future for ScheduledTask<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let Some(Seated { seat, waker }) = this.seated else { return this.work.poll(context) };
        if !seat.begins(context) {
            return Poll::Pending;
        }
        let began = Instant::now();
        let polled = CURRENT
            .sync_scope(Arc::clone(seat), || this.work.poll(&mut Context::from_waker(waker)));
        let now = Instant::now();
        seat.ends(Stage::Asleep, now - began, now);
        polled
    }
}

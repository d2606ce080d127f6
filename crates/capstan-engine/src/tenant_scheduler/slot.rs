//! A task in a tenant's queue, and its state.

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

/// A task's slot in a queue.
pub struct TaskSlot {
    /// The slot of the connection whose request the task answers.
    connection: Option<Arc<Self>>,
    state: Mutex<State>,
}

struct State {
    /// None if the tenant is not known. The task then does not wait.
    queue: Option<Arc<TenantQueue>>,
    /// The queue of the connection's requests until their tenant is known.
    unassigned: Option<Arc<TenantQueue>>,
    /// A connection with requests of several tenants, like that of a proxy, belongs to no queue.
    is_shared: bool,
    task: Option<Waker>,
    stage: Stage,
}

enum Stage {
    Asleep,
    /// In its tenant's queue.
    Waiting,
    /// In the runtime's queue. Holds a place of this tenant's queue.
    Awake(Option<Arc<TenantQueue>>),
    /// Running.
    AtWork(Option<Arc<TenantQueue>>, IsWoken),
    Gone,
}

/// Whether the task was woken while it was running.
type IsWoken = bool;

impl TaskSlot {
    pub(super) fn new(queue: Option<Arc<TenantQueue>>, connection: Option<Arc<Self>>) -> Arc<Self> {
        let state =
            State { queue, unassigned: None, is_shared: false, task: None, stage: Stage::Asleep };
        Arc::new(Self { connection, state: Mutex::new(state) })
    }

    /// The slot of the present task, if it has one.
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the task and its connection to this queue, from the next turn on.
    pub(super) fn enter(&self, queue: &Arc<TenantQueue>) {
        self.state().queue = Some(Arc::clone(queue));
        if let Some(connection) = &self.connection {
            let mut state = connection.state();
            state.is_shared |= state.queue.as_ref().is_some_and(|known| !Arc::ptr_eq(known, queue));
            state.queue = (!state.is_shared).then(|| Arc::clone(queue));
        }
    }

    /// The connection of the present task has no open request any more. The tenant of its next
    /// request is unknown, so that request must not wait in the last tenant's queue.
    pub fn free_connection() {
        let _ =
            CURRENT.try_with(|slot| slot.connection.as_ref().unwrap_or(slot).state().queue = None);
    }

    /// Ends the turn. The task continues in the queue that it has just entered.
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
    pub(super) fn is_in(&self, queue: &Arc<TenantQueue>) -> bool {
        self.state().queue.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, queue))
    }

    /// The queue to wait in. A request waits in its connection's queue until its tenant is known.
    fn queue(&self, state: &State) -> Option<Arc<TenantQueue>> {
        let of_connection = |connection: &Arc<Self>| {
            let mut state = connection.state();
            let known = state.queue.clone();
            known.unwrap_or_else(|| {
                Arc::clone(state.unassigned.get_or_insert_with(TenantQueue::of_unknown_tenant))
            })
        };
        state.queue.clone().or_else(|| self.connection.as_ref().map(of_connection))
    }

    /// Enters the runtime's queue, or waits in the tenant's.
    fn enqueue(self: &Arc<Self>, state: &mut State) {
        let queue = self.queue(state);
        let is_free = queue.as_ref().is_none_or(|queue| queue.admits(self));
        state.stage = if is_free { Stage::Awake(queue) } else { Stage::Waiting };
    }

    /// The task was woken.
    fn note_wake(self: &Arc<Self>) {
        let mut state = self.state();
        match &mut state.stage {
            Stage::Asleep => {
                self.enqueue(&mut state);
                state.go();
            }
            Stage::AtWork(_, is_woken) => *is_woken = true,
            Stage::Waiting | Stage::Awake(_) | Stage::Gone => {}
        }
    }

    /// Whether it takes the free place of a queue in which it waits.
    pub(super) fn is_called(self: &Arc<Self>, queue: &Arc<TenantQueue>) -> bool {
        let mut state = self.state();
        if !matches!(state.stage, Stage::Waiting) {
            return false;
        }
        let is_still_here = self.queue(&state).is_some_and(|now| Arc::ptr_eq(&now, queue));
        if is_still_here {
            state.stage = Stage::Awake(Some(Arc::clone(queue)));
        } else {
            // Its tenant has become known.
            self.enqueue(&mut state);
        }
        state.go();
        is_still_here
    }

    /// Whether it may run now.
    fn begins(self: &Arc<Self>, context: &Context<'_>) -> bool {
        let mut state = self.state();
        if !state.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
            state.task = Some(context.waker().clone());
        }
        // The runtime polls a task once before its first wake-up.
        if matches!(state.stage, Stage::Asleep) {
            self.enqueue(&mut state);
        }
        let Stage::Awake(queue) = &mut state.stage else { return false };
        state.stage = Stage::AtWork(queue.take(), false);
        true
    }

    /// Ends a turn, which took this long.
    fn ends(self: &Arc<Self>, next: Stage, took: Duration, now: Instant) {
        let mut state = self.state();
        let before = std::mem::replace(&mut state.stage, next);
        if matches!(state.stage, Stage::Gone) {
            state.task = None;
        }
        drop(state);
        let (queue, is_woken) = match before {
            Stage::Awake(queue) => (queue, false),
            Stage::AtWork(queue, is_woken) => (queue, is_woken),
            Stage::Asleep | Stage::Waiting | Stage::Gone => (None, false),
        };
        if let Some(queue) = queue {
            queue.end_turn(took, now);
        }
        // Behind all tasks that have waited meanwhile.
        if is_woken {
            self.note_wake();
        }
    }
}

impl State {
    /// Wakes the task in the runtime, if it may run.
    fn go(&self) {
        if let (Stage::Awake(_), Some(task)) = (&self.stage, &self.task) {
            task.wake_by_ref();
        }
    }
}

impl Wake for TaskSlot {
    fn wake(self: Arc<Self>) {
        self.note_wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.note_wake();
    }
}

/// A task's handle on its slot. Dropping it frees the slot.
struct SlotHandle {
    slot: Arc<TaskSlot>,
    waker: Waker,
}

impl SlotHandle {
    fn new(slot: Arc<TaskSlot>) -> Self {
        Self { waker: Waker::from(Arc::clone(&slot)), slot }
    }
}

impl Drop for SlotHandle {
    fn drop(&mut self) {
        self.slot.ends(Stage::Gone, Duration::ZERO, Instant::now());
    }
}

pin_project! {
    /// A task that waits in its tenant's queue whenever it is woken. Without a slot it is an
    /// ordinary task.
    pub struct ScheduledTask<F> {
        #[pin]
        work: F,
        seated: Option<SlotHandle>,
    }
}

impl<F> ScheduledTask<F> {
    pub(super) fn new(slot: Option<Arc<TaskSlot>>, work: F) -> Self {
        Self { work, seated: slot.map(SlotHandle::new) }
    }

    /// A task that does not wait.
    pub fn without(work: F) -> Self {
        Self::new(None, work)
    }

    /// A connection whose tenant is not known yet.
    pub fn connection(work: F) -> Self {
        Self::new(Some(TaskSlot::new(None, None)), work)
    }

    /// A request of a connection, beside others.
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
        let Some(SlotHandle { slot, waker }) = this.seated else { return this.work.poll(context) };
        if !slot.begins(context) {
            return Poll::Pending;
        }
        let began = Instant::now();
        let polled = CURRENT
            .sync_scope(Arc::clone(slot), || this.work.poll(&mut Context::from_waker(waker)));
        let now = Instant::now();
        slot.ends(Stage::Asleep, now - began, now);
        polled
    }
}

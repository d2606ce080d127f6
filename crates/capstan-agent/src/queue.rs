//! The queue between an agent and its reader: outputs in order, taken all at once.
//!
//! A fast writer wakes the reader once for many outputs. A writer that is faster than the reader
//! waits. There is one writer and one reader.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::output::{Output, Stopped};

struct Shared {
    state: Mutex<State>,
    /// From this many outputs on a writer waits.
    capacity: usize,
    /// There is something to take, or nothing more will come.
    filled: Notify,
    /// There is room again, or the reader has left.
    emptied: Notify,
}

#[derive(Default)]
struct State {
    outputs: Vec<Output>,
    /// The agent works at something that cannot be shown yet.
    is_alive: bool,
    is_ended: bool,
    is_stopped: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end that is written to.
pub(crate) struct Outbox(Arc<Shared>);

/// The reading end of a run. Dropping it tells the agent that nobody reads its outputs.
pub struct Inbox {
    shared: Arc<Shared>,
    /// Taken and not yet handed out by [`Inbox::recv`], the next one last.
    ready: Vec<Output>,
}

pub(crate) fn queue(capacity: usize) -> (Outbox, Inbox) {
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        capacity: capacity.max(1),
        filled: Notify::new(),
        emptied: Notify::new(),
    });
    (Outbox(Arc::clone(&shared)), Inbox { shared, ready: Vec::new() })
}

impl Outbox {
    /// Writes as soon as there is room. A batch is never split, so the queue holds one of them too
    /// many at most.
    pub(crate) async fn send(
        &mut self,
        outputs: impl FnOnce(&mut Vec<Output>),
    ) -> Result<(), Stopped> {
        loop {
            {
                let mut state = self.0.state();
                if state.is_stopped {
                    return Err(Stopped);
                }
                if state.outputs.len() < self.0.capacity {
                    let is_first = state.outputs.is_empty();
                    outputs(&mut state.outputs);
                    if is_first {
                        self.0.filled.notify_one();
                    }
                    return Ok(());
                }
            }
            self.0.emptied.notified().await;
        }
    }

    /// Shows that there is work, though nothing to take.
    pub(crate) fn alive(&mut self) -> Result<(), Stopped> {
        let mut state = self.0.state();
        if state.is_stopped {
            return Err(Stopped);
        }
        if state.outputs.is_empty() && !mem::replace(&mut state.is_alive, true) {
            self.0.filled.notify_one();
        }
        Ok(())
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.0.state().is_ended = true;
        self.0.filled.notify_one();
    }
}

impl Inbox {
    /// Waits for outputs, and appends all of them. There may be none, if the agent only reported
    /// that it is alive. Returns false if the agent is done and everything was taken. A cancelled
    /// wait loses nothing.
    pub async fn take(&mut self, into: &mut Vec<Output>) -> bool {
        loop {
            {
                let mut state = self.shared.state();
                let is_alive = mem::take(&mut state.is_alive);
                if !self.ready.is_empty() || !state.outputs.is_empty() || is_alive {
                    let was_full = state.outputs.len() >= self.shared.capacity;
                    into.extend(self.ready.drain(..).rev());
                    into.append(&mut state.outputs);
                    if was_full {
                        self.shared.emptied.notify_one();
                    }
                    return true;
                }
                if state.is_ended {
                    return false;
                }
            }
            self.shared.filled.notified().await;
        }
    }

    /// The next output, or nothing if the agent is done.
    pub async fn recv(&mut self) -> Option<Output> {
        while self.ready.is_empty() {
            let mut taken = Vec::new();
            if !self.take(&mut taken).await {
                return None;
            }
            taken.reverse();
            self.ready = taken;
        }
        self.ready.pop()
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.shared.state().is_stopped = true;
        self.shared.emptied.notify_one();
    }
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outbox")
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inbox")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(text: &str) -> Output {
        Output::Delta(text.into())
    }

    async fn send(outbox: &mut Outbox, text: &str) -> Result<(), Stopped> {
        let output = delta(text);
        outbox.send(|queue| queue.push(output)).await
    }

    #[tokio::test]
    async fn a_reader_takes_all_written_items_at_once() {
        let (mut outbox, mut inbox) = queue(8);
        outbox.send(|queue| queue.extend(["a", "b"].map(delta))).await.unwrap();
        send(&mut outbox, "c").await.unwrap();
        let mut taken = Vec::new();
        assert!(inbox.take(&mut taken).await);
        assert_eq!(taken, ["a", "b", "c"].map(delta));
        drop(outbox);
        assert!(!inbox.take(&mut taken).await);
    }

    #[tokio::test]
    async fn one_by_one_they_come_in_order_and_none_is_lost() {
        let (mut outbox, mut inbox) = queue(2);
        let writing = tokio::spawn(async move {
            for n in 0..100 {
                send(&mut outbox, &n.to_string()).await.unwrap();
            }
        });
        for n in 0..100 {
            assert_eq!(inbox.recv().await, Some(delta(&n.to_string())));
        }
        assert_eq!(inbox.recv().await, None);
        writing.await.unwrap();
    }

    #[tokio::test]
    async fn writers_wait_for_a_full_queue_only_if_it_has_a_reader() {
        let (mut outbox, mut inbox) = queue(1);
        send(&mut outbox, "a").await.unwrap();
        let waiting = tokio::spawn(async move {
            let sent = send(&mut outbox, "b").await;
            (outbox, sent)
        });
        assert_eq!(inbox.recv().await, Some(delta("a")));
        let (mut outbox, sent) = waiting.await.unwrap();
        assert_eq!(sent, Ok(()));
        drop(inbox);
        assert_eq!(send(&mut outbox, "c").await, Err(Stopped));
        assert_eq!(outbox.alive(), Err(Stopped));
    }

    #[tokio::test]
    async fn a_sign_of_life_wakes_the_reader_with_nothing() {
        let (mut outbox, mut inbox) = queue(1);
        outbox.alive().unwrap();
        let mut taken = Vec::new();
        assert!(inbox.take(&mut taken).await);
        assert_eq!(taken, []);
        outbox.alive().unwrap();
        send(&mut outbox, "a").await.unwrap();
        assert_eq!(inbox.recv().await, Some(delta("a")), "nobody who reads outputs sees it");
    }
}

//! A lane's connection, made anew whenever it is lost.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::link::{Failure, FailureKind, Link};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long an answer is waited for: half a lease, at first.
const PATIENCE: f64 = 0.5;
const LONGEST_FIRST_PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_PATIENCE: Duration = Duration::from_secs(600);

fn first_patience(shared: &Shared) -> Duration {
    shared.part_of_lease(PATIENCE).min(LONGEST_FIRST_PATIENCE)
}

/// A connection with a task.
pub(super) struct Wire {
    pub(super) shared: Arc<Shared>,
    link: Option<Link>,
    set_up: &'static str,
    pause: Duration,
    /// How long an answer is waited for. A server that waits for its standby answers late, and goes
    /// on after it is left alone; so whoever asks again does so ever more slowly.
    patience: Duration,
}

impl Wire {
    pub(super) fn new(shared: Arc<Shared>, set_up: &'static str) -> Self {
        let patience = first_patience(&shared);
        Self { shared, link: None, set_up, pause: FIRST_PAUSE, patience }
    }

    /// Whether the next use makes a new connection.
    pub(super) fn is_down(&self) -> bool {
        self.link.as_ref().is_none_or(Link::is_closed)
    }

    /// The connection; one try is made to get a new one.
    pub(super) async fn link(&mut self) -> Result<&Link, Failure> {
        if self.is_down() {
            self.link = None;
            let link = Link::open_with(&self.shared.target, self.patience, None).await?;
            if !self.set_up.is_empty() {
                link.batch(self.set_up).await?;
            }
            self.link = Some(link);
        }
        self.link.as_ref().ok_or_else(|| Failure::odd("there is no connection"))
    }

    /// It worked.
    pub(super) fn rest(&mut self) {
        (self.pause, self.patience) = (FIRST_PAUSE, first_patience(&self.shared));
    }

    /// It did not: a while to wait before it is tried again.
    pub(super) async fn failed(&mut self, failure: &Failure) {
        if failure.kind.is_unsure() {
            self.link = None;
        }
        if failure.kind == FailureKind::Silent {
            self.patience = (self.patience * 2).min(LONGEST_PATIENCE);
        }
        self.shared.unwell(failure);
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

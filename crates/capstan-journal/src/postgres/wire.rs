//! A lane's connection, made anew whenever it is lost.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::link::{Failure, FailureKind, Link};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A connection with a task.
pub(super) struct Wire {
    pub(super) shared: Arc<Shared>,
    link: Option<Link>,
    set_up: &'static str,
    pause: Duration,
}

impl Wire {
    pub(super) fn new(shared: Arc<Shared>, set_up: &'static str) -> Self {
        Self { shared, link: None, set_up, pause: FIRST_PAUSE }
    }

    /// Whether the next use makes a new connection.
    pub(super) fn is_down(&self) -> bool {
        self.link.as_ref().is_none_or(Link::is_closed)
    }

    /// The connection; one try is made to get a new one.
    pub(super) async fn link(&mut self) -> Result<&Link, Failure> {
        if self.is_down() {
            self.link = None;
            let link = Link::open(&self.shared.target).await?;
            if !self.set_up.is_empty() {
                link.batch(self.set_up).await?;
            }
            self.link = Some(link);
        }
        self.link.as_ref().ok_or_else(|| Failure::odd("there is no connection"))
    }

    /// It worked.
    pub(super) fn rest(&mut self) {
        self.pause = FIRST_PAUSE;
    }

    /// It did not: a while to wait before it is tried again.
    pub(super) async fn failed(&mut self, failure: &Failure) {
        if failure.kind == FailureKind::Unknown {
            self.link = None;
        }
        self.shared.unwell(failure);
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

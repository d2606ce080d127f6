//! An agent's reports of its calls: the member, the result, and earlier calls.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use crate::about::About;

/// A call begins. It counts from now on, even if it fails.
#[derive(Debug, Clone, PartialEq)]
pub struct CallBegan {
    /// The member of a route that is called; nothing for an agent that calls one upstream.
    pub member: Option<Arc<str>>,
    /// The kind of call.
    pub about: About,
    /// Given once the call is recorded, for agents that must wait for that.
    pub receipt: Option<Receipt>,
}

/// A call of a route's member is over.
#[derive(Debug, Clone, PartialEq)]
pub struct CallEnded {
    /// The member.
    pub member: Arc<str>,
    /// The result.
    pub outcome: CallOutcome,
    /// The time from its start to the first piece of an answer.
    pub first_token: Option<Duration>,
    /// The time from its start to its end.
    pub took: Duration,
    /// Pieces of the answer, for a rate if the provider counts no tokens.
    pub pieces: u64,
    /// Its usage, if it ended before its answer began. Otherwise
    /// [`Output::Usage`](crate::Output::Usage) has reported it.
    pub usage: Option<Map<String, Value>>,
    /// Another member is called in its place.
    pub is_left: bool,
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallOutcome {
    /// With a complete answer.
    Answered,
    /// It was hung up, since another one answered sooner.
    Stopped,
    /// In a fault.
    Failed {
        /// Its code.
        code: String,
        /// Whether the call may have reached the member and begun there.
        has_reached: bool,
    },
}

impl CallOutcome {
    /// The label for metrics.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Answered => "answered",
            Self::Stopped => "stopped",
            Self::Failed { code, .. } => code,
        }
    }
}

/// A signal that a call is recorded. Clones share it.
#[derive(Debug, Clone)]
pub struct Receipt(Arc<Semaphore>);

impl Default for Receipt {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl PartialEq for Receipt {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Receipt {
    /// The call is on record.
    pub fn give(&self) {
        self.0.add_permits(1);
    }

    /// Returns when it is.
    pub async fn given(&self) {
        // It is never closed.
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }
}

/// The calls that earlier attempts of a run have made, as its record has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallsMade {
    /// The number of calls. An attempt without a record counts as one.
    pub calls: u32,
    /// The members of a route that were called, oldest first.
    pub members: Vec<MemberCalls>,
}

/// An attempt's calls of one member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberCalls {
    /// The member.
    pub name: String,
    /// The number of calls.
    pub calls: u32,
    /// The fault of the last call; none if its end is unknown.
    pub fault: Option<String>,
    /// Whether a call may have reached it.
    pub has_reached: bool,
}

/// The current state of a route's member, for observers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberState {
    /// Its name.
    pub name: Arc<str>,
    /// The state of its breaker.
    pub breaker: BreakerState,
}

/// Whether the route calls an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// It is.
    Closed,
    /// One call at a time, to find out whether it works again.
    HalfOpen,
    /// No calls for a while, because it failed too often.
    Open,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_receipt_is_given_once_and_may_be_given_before_it_is_waited_for() {
        let receipt = Receipt::default();
        receipt.clone().give();
        receipt.given().await;
        assert_ne!(receipt, Receipt::default());
        assert_eq!(receipt, receipt.clone());
    }
}

//! What an agent says of the calls that it makes: who is called, how it went, and what was called
//! before.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use crate::about::About;

/// A call begins. It counts from here on, whatever becomes of it.
#[derive(Debug, Clone, PartialEq)]
pub struct CallBegan {
    /// The member of a route that is called; nothing for an agent that calls one upstream.
    pub member: Option<Arc<str>>,
    /// What it is.
    pub about: About,
    /// Given once the call is on record, for those who wait for that.
    pub receipt: Option<Receipt>,
}

/// A call of a route's member is over.
#[derive(Debug, Clone, PartialEq)]
pub struct CallEnded {
    /// Who was called.
    pub member: Arc<str>,
    /// How it ended.
    pub outcome: CallOutcome,
    /// From its beginning to the first piece of an answer.
    pub first_token: Option<Duration>,
    /// From its beginning to its end.
    pub took: Duration,
    /// Pieces of the answer, for a rate if nobody counts tokens.
    pub pieces: u64,
    /// What it took, if it ended before its answer began; otherwise
    /// [`Output::Usage`](crate::Output::Usage) has said so.
    pub usage: Option<Map<String, Value>>,
    /// Another member is called in its place.
    pub is_left: bool,
}

/// How a call ended.
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
    /// A word for it, as metrics have it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Answered => "answered",
            Self::Stopped => "stopped",
            Self::Failed { code, .. } => code,
        }
    }
}

/// What waits until a call is on record. Clones are the same one.
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
    /// How many. An attempt of which no more is known counts as one.
    pub calls: u32,
    /// Which members of a route were called, oldest first.
    pub members: Vec<MemberCalls>,
}

/// What an attempt made of one member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberCalls {
    /// The member.
    pub name: String,
    /// How often it was called.
    pub calls: u32,
    /// The fault that it was left with; nothing if nobody saw the end.
    pub fault: Option<String>,
    /// Whether a call may have reached it.
    pub has_reached: bool,
}

/// A member of a route as it stands, for whoever watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberState {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it is called.
    pub breaker: BreakerState,
}

/// Whether an upstream is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// It is.
    Closed,
    /// One call at a time, to see whether it is well again.
    HalfOpen,
    /// Not for a while: it has failed too often.
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

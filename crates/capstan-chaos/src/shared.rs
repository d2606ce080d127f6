//! What the connections have in common.

use crate::fate::{Fate, Refusal};
use crate::faults::{Faults, When};
use crate::head::Request;
use crate::ledger::Ledger;
use crate::memory::Memory;
use crate::upstream::Upstream;

/// The upstream, the faults, and what happened so far.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) upstream: Upstream,
    pub(crate) faults: Faults,
    pub(crate) seed: u64,
    pub(crate) ledger: Ledger,
    pub(crate) memory: Memory,
}

impl Shared {
    /// Whether faults may strike this request.
    pub(crate) fn covers(&self, request: &Request) -> bool {
        self.faults.all || request.wants_stream()
    }

    /// The next stream's fate.
    pub(crate) fn draw(&self) -> Fate {
        Fate::draw(&self.faults, self.seed, self.ledger.number())
    }

    /// The refusal of a request, if its fate has one and the budget allows it.
    pub(crate) fn refusal(&self, request: &Request, fate: &Fate) -> Option<Refusal> {
        let may_refuse = match self.faults.refuse.when {
            When::Any => true,
            When::Resuming => request.get("last-event-id").is_some(),
        };
        fate.refuse.filter(|_| may_refuse && self.ledger.spend(|tally| &mut tally.refusals))
    }
}

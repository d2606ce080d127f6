//! What a session has said before a run, as its agent is told: the turns that were closed before it
//! began.

use std::sync::Arc;

use capstan_journal::{JournalError, Run, StoredTurn, TurnRange};
use capstan_protocol::Fault;

use crate::Engine;
use crate::conversation::PastTurn;
use crate::cpu_offload;
use crate::limits::MemoryReservation;

/// Bytes of a session's turns that are read at once.
const PAGE: usize = 1024 * 1024;
/// How often they are there while a run is at work: as messages, and as what the agent makes of
/// them.
const COPIES: usize = 2;

/// Why a run cannot be told what it is about.
pub(super) enum Untold {
    /// It ends in this.
    Fault(Fault),
    /// The journal does not say.
    Journal(JournalError),
}

impl From<Fault> for Untold {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<JournalError> for Untold {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

/// The turns before a run. Those that this process remembers are not read again, but for the last
/// of them.
pub(super) async fn before(
    engine: &Engine,
    run: &Run,
    load: &mut MemoryReservation,
) -> Result<Vec<Arc<PastTurn>>, Untold> {
    if run.turns_before == 0 {
        return Ok(Vec::new());
    }
    let mut reader = Reader { engine, run, held: load.held(), load };
    let known = engine.histories.get(&run.tenant, &run.session).unwrap_or_default();
    let mut turns = match reader.go_on(&known).await? {
        Some(turns) => turns,
        None => reader.anew().await?,
    };
    // By their numbers: what clocks say may step.
    turns.retain(|turn| turn.number <= run.turns_before);
    Ok(turns)
}

/// Reads turns page by page, each within what the tenant's requests may take.
struct Reader<'a> {
    engine: &'a Engine,
    run: &'a Run,
    load: &'a mut MemoryReservation,
    /// What the run took before.
    held: usize,
}

impl Reader<'_> {
    /// What is known and what came since; nothing if that is not what the store has.
    ///
    /// Another process may have erased something, or all of it, and the session may have begun anew
    /// under its old name. So the last turn that is known must still be there, and in all there
    /// must be as many as the store counted before: it never changes a turn, nor puts one between
    /// others.
    async fn go_on(
        &mut self,
        known: &[Arc<PastTurn>],
    ) -> Result<Option<Vec<Arc<PastTurn>>>, Untold> {
        let Some((last, before)) = known.split_last() else { return Ok(None) };
        let (since, count) = (self.engine.histories.erasures(), self.count().await?);
        let bytes: usize = before.iter().map(|turn| turn.bytes).sum();
        self.load.grow(bytes.saturating_mul(COPIES), &self.engine.settings.limits)?;
        let mut turns = before.to_vec();
        self.read(&mut turns, last.number).await?;
        let is_there = turns.get(before.len()).is_some_and(|turn| turn.is(last));
        if !is_there || turns.len() as u64 != count {
            self.load.shrink_to(self.held);
            return Ok(None);
        }
        if turns.len() > known.len() {
            self.engine.histories.keep(&self.run.tenant, &self.run.session, &turns, since);
        }
        Ok(Some(turns))
    }

    async fn anew(&mut self) -> Result<Vec<Arc<PastTurn>>, Untold> {
        let (since, count) = (self.engine.histories.erasures(), self.count().await?);
        let mut turns = Vec::new();
        self.read(&mut turns, 1).await?;
        if turns.len() as u64 == count {
            self.engine.histories.keep(&self.run.tenant, &self.run.session, &turns, since);
        }
        Ok(turns)
    }

    async fn count(&self) -> Result<u64, JournalError> {
        self.engine.journal.store().turn_count(&self.run.tenant, &self.run.session).await
    }

    /// Reads all turns from a number on.
    async fn read(&mut self, turns: &mut Vec<Arc<PastTurn>>, from: u64) -> Result<(), Untold> {
        let (store, Run { tenant, session, .. }) = (self.engine.journal.store(), self.run);
        let mut from = from;
        loop {
            // What comes is a page at most, or one turn.
            let held = self.load.held();
            self.load.grow(PAGE * COPIES, &self.engine.settings.limits)?;
            let page = store
                .turns(TurnRange { from, max_bytes: PAGE, ..TurnRange::all(tenant, session) })
                .await?;
            let bytes = page.iter().map(StoredTurn::said_bytes).sum::<usize>();
            self.load.shrink_to(held);
            self.load.grow_anyway(bytes.saturating_mul(COPIES));
            let Some(last) = page.last().map(|turn| turn.number) else { return Ok(()) };
            from = last.saturating_add(1);
            let _begun = self.engine.limiter.cpu_offload.begin(tenant, bytes).await;
            cpu_offload::run(bytes, || {
                turns.extend(page.into_iter().map(PastTurn::of).map(Arc::new))
            });
        }
    }
}

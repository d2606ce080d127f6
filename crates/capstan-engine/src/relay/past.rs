//! Reads the history of a session for a run: the turns that were closed before the run began.

use std::sync::Arc;

use capstan_journal::{ErrorKind, JournalError, Run, StoredTurn, TurnRange};
use capstan_protocol::Fault;

use crate::Engine;
use crate::conversation::PastTurn;
use crate::cpu_offload;
use crate::limits::MemoryReservation;

/// How many bytes of turns are read at once.
const PAGE: usize = 1024 * 1024;
/// How many copies exist while a run is at work: the messages, and the agent's request made of
/// them.
const COPIES: usize = 2;

/// Why a run's history cannot be read.
pub(super) enum PastError {
    /// The run ends with this fault.
    Fault(Fault),
    /// The journal failed.
    Journal(JournalError),
}

impl From<Fault> for PastError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<JournalError> for PastError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

/// Reads the turns before a run. Of the cached turns, only the last is read again.
pub(super) async fn before(
    engine: &Engine,
    run: &Run,
    load: &mut MemoryReservation,
) -> Result<Vec<Arc<PastTurn>>, PastError> {
    if run.turns_before == 0 {
        return Ok(Vec::new());
    }
    let mut reader = Reader { engine, run, held: load.held(), load };
    let known = engine.histories.get(&run.tenant, &run.session).unwrap_or_default();
    let mut turns = match reader.extend(&known).await? {
        Some(turns) => turns,
        None => reader.read_all().await?,
    };
    // Compare numbers, not times: the system clock may have been set.
    turns.retain(|turn| turn.number <= run.turns_before);
    Ok(turns)
}

/// Reads turns page by page, within the tenant's memory limit.
struct Reader<'a> {
    engine: &'a Engine,
    run: &'a Run,
    load: &'a mut MemoryReservation,
    /// The run's memory reservation before the read.
    held: usize,
}

impl Reader<'_> {
    /// Extends the cached turns by newer ones. Returns `None` if the cache does not match the
    /// store.
    ///
    /// Another process may have erased turns, or the whole session, and a new session may have the
    /// same name. So the last cached turn must still exist, and the count must match the store's
    /// count from before the read. That is enough, because the store never changes a turn or
    /// inserts one.
    /// others.
    async fn extend(
        &mut self,
        known: &[Arc<PastTurn>],
    ) -> Result<Option<Vec<Arc<PastTurn>>>, PastError> {
        let Some((last, before)) = known.split_last() else { return Ok(None) };
        let (since, count) = (self.engine.histories.erasures(), self.count().await?);
        let bytes: usize = before.iter().map(|turn| turn.bytes).sum();
        self.load.grow(bytes.saturating_mul(COPIES))?;
        let mut turns = before.to_vec();
        self.read(&mut turns, last.number).await?;
        let is_same = turns.get(before.len()).is_some_and(|turn| turn.is(last));
        if !is_same || turns.len() as u64 != count {
            self.load.shrink_to(self.held);
            return Ok(None);
        }
        if turns.len() > known.len() {
            self.engine.histories.keep(&self.run.tenant, &self.run.session, &turns, since);
        }
        Ok(Some(turns))
    }

    async fn read_all(&mut self) -> Result<Vec<Arc<PastTurn>>, PastError> {
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

    /// Reads all turns from this number on.
    async fn read(&mut self, turns: &mut Vec<Arc<PastTurn>>, from: u64) -> Result<(), PastError> {
        let (store, Run { tenant, session, .. }) = (self.engine.journal.store(), self.run);
        let mut from = from;
        loop {
            // Reserve a whole page. The store returns at most a page, or one turn.
            let held = self.load.held();
            self.load.grow(PAGE * COPIES)?;
            let page = store
                .turns(TurnRange { from, max_bytes: PAGE, ..TurnRange::all(tenant, session) })
                .await?;
            let bytes = page.iter().map(StoredTurn::said_bytes).sum::<usize>();
            self.load.shrink_to(held);
            self.load.grow_anyway(bytes.saturating_mul(COPIES));
            let Some(last) = page.last().map(|turn| turn.number) else { return Ok(()) };
            from = last.saturating_add(1);
            let _begun = self.engine.limiter.cpu_offload.begin(tenant, bytes).await;
            let decode = || page.into_iter().map(PastTurn::of).collect::<Vec<_>>();
            for mut turn in cpu_offload::run(bytes, decode) {
                if turn.is_abridged() {
                    self.unabridge(&mut turn).await?;
                }
                turns.push(Arc::new(turn));
            }
        }
    }

    /// Reads what the messages of a turn leave out from the body of its run. Retention may have
    /// removed it: then the messages have to do.
    async fn unabridge(&mut self, turn: &mut PastTurn) -> Result<(), PastError> {
        let store = self.engine.journal.store();
        let Some(run) = store.run(turn.stream).await? else { return Ok(()) };
        let body = match store.body(turn.stream).await {
            Err(error) if error.kind() == ErrorKind::Corrupt => None,
            body => body?,
        };
        let Some(body) = body else { return Ok(()) };
        self.load.grow(body.len().saturating_mul(COPIES))?;
        let decode = || self.engine.protocols.native_messages(&run.face, &body);
        if let Some(messages) = cpu_offload::run(body.len(), decode) {
            turn.unabridge(messages, body.len());
        }
        Ok(())
    }
}

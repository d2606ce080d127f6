//! A cache of transcripts of streams that had a reset or a late joiner, so that each is read once.
//!
//! A missing transcript is read from the journal again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_journal::JournalError;
use tokio::sync::Mutex as AsyncMutex;
use uuid::Uuid;

use super::facts::Facts;
use super::transcript::AguiTranscript;
use crate::face::FaceContext;

/// The most streams. The least recently used one is dropped first.
const STREAMS: usize = 8;
/// The longest transcript in the cache.
const BYTES: usize = 8 * 1024 * 1024;

/// Locked while it is read, so that only one of many joiners reads.
type Shared = Arc<AsyncMutex<Option<AguiTranscript>>>;

#[derive(Default)]
pub(super) struct Transcripts(Mutex<VecDeque<(Uuid, Shared)>>);

impl Transcripts {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Uuid, Shared)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, stream: Uuid) -> Shared {
        let mut kept = self.lock();
        let known =
            kept.iter().position(|(known, _)| *known == stream).and_then(|at| kept.remove(at));
        let (_, shared) = known.unwrap_or_default();
        kept.push_back((stream, Arc::clone(&shared)));
        if kept.len() > STREAMS {
            kept.pop_front();
        }
        shared
    }

    /// Calls `look` with the transcript of a stream up to a packet.
    pub(super) async fn at<T>(
        &self,
        cx: &FaceContext,
        facts: &Arc<Facts>,
        seq: u64,
        look: impl FnOnce(&AguiTranscript) -> T,
    ) -> Result<T, JournalError> {
        let shared = self.of(facts.stream);
        let mut kept = shared.lock().await;
        if kept.as_ref().is_some_and(|told| told.seq() > seq) {
            // A reader is far behind the cached transcript.
            drop(kept);
            return Ok(look(&AguiTranscript::load(cx, facts, seq).await?));
        }
        let mut told = match kept.take() {
            Some(told) => told,
            None => AguiTranscript::load(cx, facts, 0).await?,
        };
        told.read_on(cx, seq).await?;
        let seen = look(&told);
        *kept = Some(told).filter(|told| told.size() <= BYTES);
        Ok(seen)
    }

    /// Forgets a stream that was erased.
    pub(super) fn forget(&self, stream: Uuid) {
        self.lock().retain(|(known, _)| *known != stream);
    }
}

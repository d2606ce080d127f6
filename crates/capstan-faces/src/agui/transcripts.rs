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
        let mut cached = self.lock();
        let known =
            cached.iter().position(|(known, _)| *known == stream).and_then(|at| cached.remove(at));
        let (_, shared) = known.unwrap_or_default();
        cached.push_back((stream, Arc::clone(&shared)));
        if cached.len() > STREAMS {
            cached.pop_front();
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
        let mut cached = shared.lock().await;
        if cached.as_ref().is_some_and(|transcript| transcript.seq() > seq) {
            // A reader is far behind the cached transcript.
            drop(cached);
            return Ok(look(&AguiTranscript::load(cx, facts, seq).await?));
        }
        let mut transcript = match cached.take() {
            Some(transcript) => transcript,
            None => AguiTranscript::load(cx, facts, 0).await?,
        };
        transcript.read_on(cx, seq).await?;
        let result = look(&transcript);
        *cached = Some(transcript).filter(|transcript| transcript.size() <= BYTES);
        Ok(result)
    }

    /// Forgets a stream that was erased.
    pub(super) fn forget(&self, stream: Uuid) {
        self.lock().retain(|(known, _)| *known != stream);
    }
}

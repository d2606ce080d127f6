//! A store whose appends wait for permits, and which counts reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use capstan_journal::{Catalog, Frame, Layer, Records, Result, Sessions, Store};
use tokio::sync::Semaphore;
use uuid::Uuid;

pub(crate) struct Gated {
    store: Arc<dyn Store>,
    /// Each append takes a permit.
    pub(crate) gate: Semaphore,
    pub(crate) reads: AtomicUsize,
}

impl Gated {
    pub(crate) fn new(store: Arc<dyn Store>, permits: usize) -> Arc<Self> {
        Arc::new(Self { store, gate: Semaphore::new(permits), reads: AtomicUsize::new(0) })
    }
}

impl Layer for Gated {
    fn below(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }
}

#[async_trait]
impl Records for Gated {
    async fn append(&self, stream: Uuid, attempt: u32, frames: Vec<Frame>) -> Result<()> {
        self.gate.acquire().await.unwrap().forget();
        self.store.append(stream, attempt, frames).await
    }

    async fn read(&self, id: Uuid, after: u64, most: usize, bytes: usize) -> Result<Vec<Frame>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.store.read(id, after, most, bytes).await
    }
}

impl Sessions for Gated {}
impl Catalog for Gated {}
impl Store for Gated {}

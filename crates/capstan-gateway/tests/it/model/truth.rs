//! What the store itself says, for whoever checks an answer.

use std::sync::Arc;

use capstan_journal::{Frame, JournalError, Run, Store};
use tokio::runtime::Handle;
use uuid::Uuid;

#[derive(Clone)]
pub(crate) struct Truth {
    pub(crate) store: Arc<dyn Store>,
    /// Where it is asked: a gateway that is frozen must not hold up whoever asks elsewhere.
    pub(crate) home: Option<Handle>,
}

impl Truth {
    async fn ask<T: Send + 'static>(
        &self,
        asked: impl Future<Output = Result<T, JournalError>> + Send + 'static,
    ) -> Result<T, String> {
        let answer = match &self.home {
            Some(home) => home.spawn(asked).await.map_err(|e| e.to_string())?,
            None => asked.await,
        };
        answer.map_err(|error| error.to_string())
    }

    pub(crate) async fn run(&self, stream: Uuid) -> Result<Option<Run>, String> {
        let store = Arc::clone(&self.store);
        self.ask(async move { store.run(stream).await }).await
    }

    pub(crate) async fn read(
        &self,
        stream: Uuid,
        after: u64,
        packets: usize,
    ) -> Result<Vec<Frame>, String> {
        let store = Arc::clone(&self.store);
        self.ask(async move { store.read(stream, after, packets, usize::MAX).await }).await
    }

    pub(crate) async fn is_stop_asked(&self, stream: Uuid) -> Result<bool, String> {
        let store = Arc::clone(&self.store);
        self.ask(async move {
            match store.cluster_of(stream) {
                Some(cluster) => cluster.has_stop_request(stream).await,
                None => Ok(false),
            }
        })
        .await
    }
}

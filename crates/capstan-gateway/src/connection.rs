//! What the answers of one connection are told of it once they are on their way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::response::Response;

use crate::progress::Progress;

/// Whether the peer of a connection, or the reader of one answer on it, took nothing for so long that it was cut off.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stalled(Arc<AtomicBool>);

impl Stalled {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Lets whoever made the answer know by which connection it goes, and of its own reader, if answers have one each.
    pub(crate) fn tell(&self, mut response: Response) -> Response {
        if let Some(Departure(place)) = response.extensions_mut().remove::<Departure>() {
            let reader = Progress::current().map(|progress| progress.stalled());
            let _ = place.set([self.clone(), reader.unwrap_or_default()]);
        }
        response
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// By which connection an answer goes; nobody knows when it is made. It travels with the answer, as an extension.
#[derive(Debug, Clone, Default)]
pub(crate) struct Departure(Arc<OnceLock<[Stalled; 2]>>);

impl Departure {
    pub(crate) fn has_stalled(&self) -> bool {
        self.0.get().is_some_and(|either| either.iter().any(Stalled::is_set))
    }
}

//! What the answers of one connection are told of it once they are on their way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::response::Response;

/// Whether the peer of a connection took nothing for so long that it was cut off.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stalled(Arc<AtomicBool>);

impl Stalled {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Lets whoever made the answer know by which connection it goes.
    pub(crate) fn tell(&self, mut response: Response) -> Response {
        if let Some(Departure(place)) = response.extensions_mut().remove::<Departure>() {
            let _ = place.set(self.clone());
        }
        response
    }
}

/// By which connection an answer goes; nobody knows when it is made. It travels with the answer, as an extension.
#[derive(Debug, Clone, Default)]
pub(crate) struct Departure(Arc<OnceLock<Stalled>>);

impl Departure {
    pub(crate) fn has_stalled(&self) -> bool {
        self.0.get().is_some_and(|stalled| stalled.0.load(Ordering::Relaxed))
    }
}

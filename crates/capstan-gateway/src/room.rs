//! Connections: as many as there may be at once, and a few more on which the server only tells how it feels. Whoever
//! restarts it when it does not answer must not do so because it has many viewers.

use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use capstan_protocol::{Fault, FaultKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::refusal::Refusal;

/// For questions about health when there are as many connections as there may be.
const SPARE: usize = 16;
/// How soon whoever is refused may try again, in seconds.
const RETRY: f64 = 2.0;
/// What is answered beyond the limit.
const HEALTH: [&str; 4] = ["/livez", "/readyz", "/health", "/metrics"];

/// Marks requests of connections beyond the limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beyond;

/// Shared by all listeners.
#[derive(Clone)]
pub(crate) struct Room {
    places: Arc<Semaphore>,
    spare: Arc<Semaphore>,
}

/// Room for one connection, given back when dropped.
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    pub(crate) is_spare: bool,
}

impl Room {
    pub(crate) fn new(connections: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(connections)), spare: Arc::new(Semaphore::new(SPARE)) }
    }

    /// A place, once there is one; `None` if there never will be.
    pub(crate) async fn place(&self) -> Option<Place> {
        let (permit, is_spare) = tokio::select! {
            biased;
            permit = self.places.clone().acquire_owned() => (permit, false),
            permit = self.spare.clone().acquire_owned() => (permit, true),
        };
        Some(Place { _permit: permit.ok()?, is_spare })
    }

    /// A better place than a spare one, if there is one by now.
    pub(crate) fn better(&self, place: Place) -> Place {
        match self.places.clone().try_acquire_owned() {
            Ok(permit) if place.is_spare => Place { _permit: permit, is_spare: false },
            _ => place,
        }
    }
}

/// Refuses what is not about health on a connection beyond the limit.
pub(crate) async fn refuse_beyond(request: Request, next: Next) -> Result<Response, Refusal> {
    let is_beyond = request.extensions().get::<Beyond>().is_some();
    if is_beyond && !HEALTH.contains(&request.uri().path()) {
        let fault = Fault::new(FaultKind::ServiceUnavailable).with_retry_after(RETRY);
        return Err(fault.with_message("There are as many connections as there may be.").into());
    }
    Ok(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn spare_places_are_for_when_there_is_no_other() {
        let room = Room::new(1);
        let first = room.place().await.unwrap();
        let spare = room.place().await.unwrap();
        assert!(!first.is_spare && spare.is_spare);
        let spare = room.better(spare);
        assert!(spare.is_spare);
        drop(first);
        assert!(!room.better(spare).is_spare);
        assert!(!room.place().await.unwrap().is_spare, "what was not needed was given back");
    }
}

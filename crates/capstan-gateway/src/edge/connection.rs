//! Lets whoever made an answer know by which connection it goes.

use axum::response::Response;

use crate::edge::progress::Progress;
use capstan_engine::live::{Departure, Stalled};

/// An answer goes by this connection, and to a reader of its own, if answers have one each.
pub(crate) fn goes_by(connection: &Stalled, mut response: Response) -> Response {
    if let Some(departure) = response.extensions_mut().remove::<Departure>() {
        let reader = Progress::current().map(|progress| progress.stalled());
        departure.is_by(connection, reader.unwrap_or_default());
    }
    response
}

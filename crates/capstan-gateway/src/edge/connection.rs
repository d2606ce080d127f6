//! Lets the code that made a response know which connection it is sent on.

use axum::response::Response;

use crate::edge::progress::Progress;
use capstan_engine::live::{Departure, Stalled};

/// Binds the response to this connection and, on HTTP/2, to the reader of this response.
pub(crate) fn goes_by(connection: &Stalled, mut response: Response) -> Response {
    if let Some(departure) = response.extensions_mut().remove::<Departure>() {
        let reader = Progress::current().map(|progress| progress.stalled());
        departure.is_by(connection, reader.unwrap_or_default());
    }
    response
}

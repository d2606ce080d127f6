//! Headers that pages of other origins may send and read.

use http::HeaderValue;

use crate::face::{Face, Faces};

/// Headers that pages of other origins may send and read with every face.
const ALLOWED: &str = "authorization, content-type, last-event-id, x-request-id, x-tenant-id, \
 x-run-id, \
     x-cap-accept, traceparent, tracestate";
const EXPOSED: &str = "x-request-id, x-stream-id, x-stream-ticket, retry-after";

/// The CORS headers, with those that the faces add.
pub struct CorsHeaders {
    pub allowed: HeaderValue,
    pub exposed: HeaderValue,
}

impl CorsHeaders {
    pub fn new(faces: &Faces) -> Self {
        let list = |known: &'static str, more: &dyn Fn(&dyn Face) -> &'static [&'static str]| {
            let more = faces.iter().flat_map(|face| more(&**face)).copied();
            let names: Vec<&str> = std::iter::once(known).chain(more).collect();
            HeaderValue::try_from(names.join(", ")).unwrap_or(HeaderValue::from_static(known))
        };
        Self {
            allowed: list(ALLOWED, &|face| face.request_headers()),
            exposed: list(EXPOSED, &|face| face.response_headers()),
        }
    }
}

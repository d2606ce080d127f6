//! The reader: whoever looks at a stream, live or replayed, is one of these at a cursor over the journal.

mod collect;

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use capstan_journal::{Reader, Run, RunState, Step};
use capstan_protocol::{Cursor, sse};
use futures_util::stream;
use http::{HeaderValue, header};

use crate::app::App;
use crate::face::Cap;
use crate::limits::Slot;
pub(crate) use collect::collect;

/// How a viewer came, which decides what happens when the run waits for its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// By POST: it is the client, so the body ends and it comes back.
    Post,
    /// By GET: it only watches, so the body stays open.
    Get,
}

/// An open response.
struct Open {
    app: App,
    reader: Reader,
    face: Cap,
    view: View,
    opening: Option<Bytes>,
    _slot: Slot,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.app.metrics.active_readers.dec();
    }
}

/// The SSE response of a viewer that has everything up to `after`.
pub(crate) fn respond(app: &App, run: &Run, after: u64, face: Cap, view: View, slot: Slot) -> Response {
    app.metrics.active_readers.inc();
    let cursor = Cursor::new(run.stream_id, after);
    // At the end a client gets the CLOSE again, so that it knows. (A viewer by GET is answered 204 instead.)
    let is_over = run.state == RunState::Closed && after >= run.last_seq;
    let from = if is_over { run.last_seq.saturating_sub(1) } else { after };
    let reader = app.journal.reader_of(run, from);
    let open =
        Open { app: app.clone(), reader, face, view, opening: Some(face.opening(&cursor)), _slot: slot };
    let body = Body::from_stream(stream::unfold(open, next_chunk));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    if let Ok(id) = HeaderValue::from_str(&run.stream_id.to_string()) {
        headers.insert("x-stream-id", id);
    }
    response
}

/// The next bytes of a body; `None` ends it cleanly at a frame boundary, an error cuts it.
async fn next_chunk(mut open: Open) -> Option<(io::Result<Bytes>, Open)> {
    if let Some(opening) = open.opening.take() {
        return Some((Ok(opening), open));
    }
    let heartbeat = open.app.settings.timeouts.heartbeat;
    match open.wait(heartbeat).await {
        News::Bytes(bytes) => Some((Ok(bytes), open)),
        News::End => None,
        News::Cut => Some((Err(io::Error::other("the journal failed")), open)),
    }
}

enum News {
    Bytes(Bytes),
    End,
    Cut,
}

impl Open {
    async fn wait(&mut self, heartbeat: Duration) -> News {
        loop {
            let step = tokio::select! {
                biased;
                step = self.reader.next() => step,
                () = self.app.broken.cancelled() => return News::Cut,
                () = self.app.closing.cancelled() => return News::End,
                () = tokio::time::sleep(heartbeat) => return News::Bytes(Bytes::from_static(sse::HEARTBEAT)),
            };
            match step {
                Ok(Step::Frames(frames)) => {
                    self.app.metrics.replayed.inc_by(frames.len() as u64);
                    return News::Bytes(self.face.frames(frames));
                }
                Ok(Step::State(RunState::Closed)) => return News::End,
                Ok(Step::State(RunState::Waiting)) if self.view == View::Post => return News::End,
                // A viewer stays: the next step comes when the run goes on.
                Ok(Step::State(RunState::Waiting | RunState::Running)) => {}
                Err(_) => return News::Cut,
            }
        }
    }
}

//! An answer of a connection: turns server-sent events into frames.

use axum::body::{Body, BodyDataStream, to_bytes};
use axum::response::Response;
use bytes::Bytes;
use capstan_engine::Engine;
use capstan_engine::limits::MemoryReservation;
use capstan_protocol::{ErrorSeverity, Fault, sse};
use futures_util::StreamExt as _;
use http::{StatusCode, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::create::{Create, Memory, joined};

/// The largest body of a refusal, in bytes.
const LONGEST_REFUSAL: usize = 256 * 1024;

/// The answer to a frame that started a run.
pub(super) struct Answer {
    body: BodyDataStream,
    decoder: sse::Decoder,
    draft: Option<Draft>,
    /// The last event has come. Its frames wait for the end of the body: the client may send its
    /// next request as soon as it has them, and this answer must be over by then.
    is_over: bool,
    /// Frames that were not handed out.
    frames: Vec<String>,
}

/// The memory of an answer that is not complete yet.
struct Draft {
    id: Option<String>,
    items: String,
    is_stored: bool,
    load: MemoryReservation,
    /// The most bytes of items, as in a request.
    longest: usize,
    is_whole: bool,
}

/// The next step of an answer.
pub(super) enum Piece {
    /// Frames for the client.
    Frames(Vec<String>),
    /// The last frames: the answer is complete.
    End(Vec<String>),
    /// The answer broke off.
    Cut,
}

impl Answer {
    /// Takes the stream of a response. Returns the response if it has none.
    pub(super) fn of(
        response: Response,
        create: Create,
        engine: &Engine,
        tenant: &str,
    ) -> Result<Self, Box<Response>> {
        let kind = response.headers().get(header::CONTENT_TYPE);
        let is_stream = kind.is_some_and(|kind| kind.as_bytes() == b"text/event-stream");
        if response.status() != StatusCode::OK || !is_stream {
            return Err(response.into());
        }
        let draft = create.items.and_then(|items| {
            let mut draft = Draft {
                id: None,
                items: String::new(),
                is_stored: create.is_stored,
                load: engine.reserve(tenant),
                longest: engine.settings().limits.body_bytes,
                is_whole: false,
            };
            draft.add(&items).then_some(draft)
        });
        let (body, decoder) =
            (response.into_body().into_data_stream(), sse::Decoder::with_limit(usize::MAX));
        Ok(Self { body, decoder, draft, is_over: false, frames: Vec::new() })
    }

    /// Waits for the next step. Cancel-safe.
    pub(super) async fn next(&mut self) -> Piece {
        loop {
            match self.body.next().await {
                Some(Ok(bytes)) => self.take(&bytes),
                _ if self.is_over => return Piece::End(std::mem::take(&mut self.frames)),
                Some(Err(_)) | None => return Piece::Cut,
            }
            if !self.is_over {
                return Piece::Frames(std::mem::take(&mut self.frames));
            }
        }
    }

    fn take(&mut self, bytes: &Bytes) {
        self.decoder.push(bytes);
        while let Some(Ok(frame)) = self.decoder.next_frame() {
            self.is_over |= is_last(&frame.event);
            if let Some(draft) = &mut self.draft
                && !draft.record(&frame.event, &frame.data)
            {
                self.draft = None;
            }
            self.frames.push(frame.data.into_owned());
        }
    }

    /// The memory of the answer; none if it failed.
    pub(super) fn into_memory(self) -> Option<Memory> {
        let Draft { id, items, is_stored, load, is_whole, .. } = self.draft?;
        id.filter(|_| is_whole).map(|id| Memory { id, items, is_stored, _load: load })
    }
}

fn is_last(event: &str) -> bool {
    matches!(event, "response.completed" | "response.incomplete" | "response.failed")
}

impl Draft {
    /// Adds items. Returns false if they exceed a limit.
    fn add(&mut self, items: &str) -> bool {
        if self.items.len().saturating_add(items.len()) > self.longest
            || self.load.grow(items.len() + 1).is_err()
        {
            return false;
        }
        self.items = joined(&self.items, items);
        true
    }

    /// Records an event. Returns false if the answer cannot be remembered.
    fn record(&mut self, event: &str, data: &str) -> bool {
        #[derive(Deserialize)]
        struct Done<'a> {
            #[serde(borrow)]
            item: &'a RawValue,
        }
        #[derive(Deserialize)]
        struct Completed {
            response: Named,
        }
        #[derive(Deserialize)]
        struct Named {
            id: String,
        }
        match event {
            "response.output_item.done" => {
                serde_json::from_str::<Done<'_>>(data).is_ok_and(|done| self.add(done.item.get()))
            }
            "response.completed" | "response.incomplete" => {
                self.id = serde_json::from_str::<Completed>(data).ok().map(|end| end.response.id);
                self.is_whole = true;
                true
            }
            "response.failed" => false,
            _ => true,
        }
    }
}

/// Makes a frame of a refusal. Clients treat a refusal without a wait as final, so every transient
/// one has a wait.
pub(super) async fn refusal(response: Response) -> String {
    let (head, body) = response.into_parts();
    let status = head.status.as_u16();
    let header = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
    let passes = head
        .extensions
        .get::<Fault>()
        .is_some_and(|fault| fault.severity() == ErrorSeverity::Transient);
    let wait = header(header::RETRY_AFTER).or(passes.then_some("1"));
    let headers: Map<String, Value> =
        wait.map(|wait| ("retry-after".to_owned(), wait.into())).into_iter().collect();
    let error = error_in(body).await;
    json!({ "type": "error", "status": status, "error": error, "headers": headers }).to_string()
}

async fn error_in(body: Body) -> Value {
    let body = to_bytes(body, LONGEST_REFUSAL).await.unwrap_or_default();
    let body = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let error = body.get("error").filter(|error| error.is_object()).cloned();
    error.unwrap_or_else(|| {
        json!({ "type": "server_error", "code": "server_error", "param": null,
            "message": "The request failed." })
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::FutureExt as _;
    use futures_util::stream::poll_fn;
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    use super::*;

    /// An answer, and where its server-sent events come from.
    fn answer() -> (UnboundedSender<Result<Bytes, Infallible>>, Answer) {
        let (events, mut body) = unbounded_channel();
        let body = Body::from_stream(poll_fn(move |cx| body.poll_recv(cx))).into_data_stream();
        let (decoder, frames) = (sse::Decoder::new(), Vec::new());
        (events, Answer { body, decoder, draft: None, is_over: false, frames })
    }

    fn event(kind: &str) -> Result<Bytes, Infallible> {
        let data = json!({ "type": kind, "response": { "id": "resp_1" } });
        Ok(format!("event: {kind}\ndata: {data}\n\n").into())
    }

    #[test]
    fn the_last_event_is_handed_out_when_the_answer_is_over() {
        let (events, mut answer) = answer();
        events.send(event("response.created")).unwrap();
        let Some(Piece::Frames(frames)) = answer.next().now_or_never() else {
            panic!("other frames do not wait")
        };
        assert_eq!(frames.len(), 1);
        events.send(event("response.completed")).unwrap();
        assert!(answer.next().now_or_never().is_none());
        drop(events);
        let Some(Piece::End(frames)) = answer.next().now_or_never() else { panic!("it is over") };
        assert!(frames[0].contains("response.completed"), "{frames:?}");
    }

    #[test]
    fn an_answer_without_its_last_event_broke_off() {
        let (events, mut answer) = answer();
        drop(events);
        assert!(matches!(answer.next().now_or_never(), Some(Piece::Cut)));
    }
}

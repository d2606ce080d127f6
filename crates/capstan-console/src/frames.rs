//! The frames of a run up to now, as a viewer would have received them, without waiting for more.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use capstan_journal::{Run, RunState};
use capstan_protocol::{Fault, FaultKind};
use futures_util::stream;
use http::request::Parts;

use crate::Console;
use capstan_engine::resume::ResumePoint;
use capstan_kit::face::reader::{ViewerKind, name_stream, sse_response};
use capstan_kit::face::{BodyStep, Emit, Face, FaceWriter, ViewRequest};

/// The limit of one read, in packets and bytes.
const STEP: (usize, usize) = (1024, 1024 * 1024);

/// The face that encodes the frames. Profiles of CAP have names of their own.
pub(crate) fn face_of<'a>(
    console: &'a Console,
    name: Option<&str>,
) -> Result<(&'a Arc<dyn Face>, bool), Fault> {
    let (name, is_v2) = match name.unwrap_or("cap") {
        "cap-v2" => ("cap", true),
        name => (name, false),
    };
    let face = console.faces.named(name).filter(|face| ["cap", "ag-ui"].contains(&face.name()));
    let unknown = || {
        let message = format!("face: {name:?} is unknown here; expected cap, cap-v2 or ag-ui");
        Fault::new(FaultKind::InvalidRequest).with_message(message)
    };
    Ok((face.ok_or_else(unknown)?, is_v2))
}

struct Account {
    console: Console,
    run: Run,
    writer: Box<dyn FaceWriter>,
    opening: Option<Bytes>,
    after: u64,
    to: u64,
    is_over: bool,
}

/// Encodes the frames of a run from one packet to another.
pub(crate) async fn respond(
    console: &Console,
    run: Run,
    face: (&Arc<dyn Face>, bool),
    (from, to): (u64, u64),
) -> Result<Response, Fault> {
    let point =
        ResumePoint::default().or_after(Some(from.saturating_sub(1)).filter(|after| *after > 0));
    let parts = parts(face.1);
    let opening =
        ViewRequest { run: &run, point, view: ViewerKind::Get, parts: &parts, posted: None };
    let mut writer = face.0.open(&console.cx, opening).await?;
    let (after, opening) = (writer.base(), writer.opening(&console.cx));
    let to = to.min(run.last_seq);
    let telling = Account {
        console: console.clone(),
        run: run.clone(),
        writer,
        opening: Some(opening),
        after,
        to,
        is_over: false,
    };
    let mut response =
        sse_response(Body::from_stream(stream::unfold(Box::new(telling), next_chunk)));
    name_stream(&run, &mut response);
    Ok(response)
}

/// A request head with the profile only.
fn parts(is_v2: bool) -> Parts {
    let uri = if is_v2 { "/?profile=v2" } else { "/" };
    let mut request = http::Request::new(());
    *request.uri_mut() = http::Uri::from_static(uri);
    request.into_parts().0
}

async fn next_chunk(mut telling: Box<Account>) -> Option<(io::Result<Bytes>, Box<Account>)> {
    if let Some(opening) = telling.opening.take().filter(|opening| !opening.is_empty()) {
        return Some((Ok(opening), telling));
    }
    loop {
        let next = telling.step().await?;
        if !matches!(&next, Ok(bytes) if bytes.is_empty()) {
            return Some((next, telling));
        }
    }
}

impl Account {
    async fn step(&mut self) -> Option<io::Result<Bytes>> {
        if self.is_over {
            return None;
        }
        if self.after >= self.to {
            return self.end();
        }
        let read =
            self.console.engine.store().read(self.run.stream_id, self.after, STEP.0, STEP.1).await;
        let frames = match read {
            Ok(frames) => frames,
            Err(error) => return self.cut(error),
        };
        let Some(last) = frames.last().map(|frame| frame.seq) else { return self.end() };
        self.after = last;
        let to = self.to;
        let frames =
            frames.into_iter().filter(|frame| frame.seq <= to).map(|frame| frame.bytes).collect();
        let next = match self.writer.frames(&self.console.cx, frames) {
            Emit::Now(next) => Ok(next),
            Emit::Later(next) => next.await,
        };
        match next {
            Ok(next) => self.step_bytes(next),
            Err(error) => self.cut(error),
        }
    }

    /// The face's bytes at the end of a closed run; nothing for an open one.
    fn end(&mut self) -> Option<io::Result<Bytes>> {
        self.is_over = true;
        if self.run.state != RunState::Closed || self.to < self.run.last_seq {
            return None;
        }
        match self.writer.caught_up(&self.console.cx, RunState::Closed, ViewerKind::Get) {
            BodyStep::Write(bytes) | BodyStep::Last(bytes) => Some(Ok(bytes)),
            BodyStep::End | BodyStep::Cut => None,
        }
    }

    fn step_bytes(&mut self, next: BodyStep) -> Option<io::Result<Bytes>> {
        match next {
            BodyStep::Write(bytes) => Some(Ok(bytes)),
            BodyStep::Last(bytes) => {
                self.is_over = true;
                Some(Ok(bytes))
            }
            BodyStep::End => None,
            BodyStep::Cut => self.cut("the stream cannot be read on"),
        }
    }

    /// A stream that cannot be read must not look complete.
    fn cut(
        &mut self,
        error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Option<io::Result<Bytes>> {
        self.is_over = true;
        Some(Err(io::Error::other(error)))
    }
}

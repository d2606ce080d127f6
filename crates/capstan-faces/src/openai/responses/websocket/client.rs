//! The client of a connection: starts an answer for each of its frames.

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use capstan_engine::ask::invalid;
use capstan_engine::cpu_offload;
use capstan_journal::Claim;
use capstan_protocol::Fault;
use http::request::Parts;
use uuid::Uuid;

use super::super::object::{Echo, ResponseObject};
use super::super::{Responses, create, id_of, unknown_previous};
use super::answer::Answer;
use super::create::{Create, Memory};
use crate::face::{self, FaceContext, RefusalTarget};
use crate::identity::caller::Caller;

/// The client of a connection.
pub(super) struct Client {
    pub(super) face: Arc<Responses>,
    pub(super) cx: FaceContext,
    pub(super) caller: Caller,
    /// The head of each request.
    pub(super) head: Parts,
}

/// The result of a frame.
pub(super) enum Started {
    Answer(Box<Answer>),
    /// The connection only remembers the input. These frames report that.
    WarmedUp(Memory, [String; 2]),
}

impl Client {
    /// Handles a frame as if it had been posted. Returns the refusal if it starts nothing.
    pub(super) async fn start(
        &self,
        frame: &str,
        memory: Option<&Memory>,
    ) -> Result<Started, Response> {
        let (engine, tenant) = (&self.cx.engine, &self.caller.tenant);
        let known = memory.map_or(0, |memory| memory.items.len());
        let size = frame.len().saturating_add(known);
        let mut load = engine.reserve(tenant);
        // The frame, its members, and the body that is made of them.
        load.grow(size.saturating_mul(3)).map_err(|fault| self.refusal(fault))?;
        let begun = engine.cpu_offload().begin(tenant, size).await;
        let read = cpu_offload::run(size, || Create::read(frame, memory));
        drop(begun);
        let mut create = read.map_err(|error| self.refusal(invalid(&error)))?;
        if !create.generates {
            return self.warm_up(create).map_err(|fault| self.refusal(fault));
        }
        let body = Body::from(std::mem::take(&mut create.body));
        let (face, cx, caller) = (self.face.clone(), self.cx.clone(), self.caller.clone());
        let answered = Box::pin(create::answer(face, cx, caller, self.head.clone(), body)).await;
        let response = answered.unwrap_or_else(|refusal| refusal.into_response());
        let answer = Answer::of(response, create, engine, tenant);
        answer.map(|answer| Started::Answer(Box::new(answer))).map_err(|response| *response)
    }

    /// Makes a response without output. The next frame can continue from its id.
    fn warm_up(&self, create: Create) -> Result<Started, Fault> {
        let engine = &self.cx.engine;
        let items = create.items.ok_or_else(|| unknown_previous(&create.previous))?;
        let mut load = engine.reserve(&self.caller.tenant);
        load.grow(items.len())?;
        let claim = Claim::new(&self.caller.tenant, "", Uuid::now_v7(), engine.now());
        let mut run = claim.to_run();
        run.agent = create.model.unwrap_or_default();
        let echo = Echo::of(&self.cx, std::str::from_utf8(&create.body).unwrap_or_default());
        let id = id_of(run.stream_id);
        let frames = ResponseObject::begun(&run, &echo).warm_up();
        Ok(Started::WarmedUp(Memory { id, items, is_stored: false, _load: load }, frames))
    }

    /// The response that refuses a request with this fault.
    pub(super) fn refusal(&self, fault: Fault) -> Response {
        let target = RefusalTarget::Viewer(&self.head);
        face::refusal(&self.cx, &*self.face, fault, target).into_response()
    }
}

//! The Durable Streams face: reads any run with that protocol's clients. It is read-only, because
//! only a run's relay writes a stream.
//!
//! An offset is the seq of the last packet that was sent, in twenty digits, so that offsets compare
//! as text. Unlike in other faces, a body that ends cleanly means "connect again", and one that is
//! cut is a final error.

mod items;
mod offset;
mod routes;
mod writer;

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use capstan_agent::async_trait;
use capstan_protocol::{Fault, FaultKind, StreamPacket, problem};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{Face, FaceWriter, RefusalTarget, ViewRequest};
use crate::face::FaceContext;
use crate::openapi::{Model, Routes, model};
use capstan_engine::ask::{Ask, RequestBody};
use items::{List, Shape};
use writer::DurableWriter;

const NAME: &str = "durable";
const NEXT_OFFSET: &str = "stream-next-offset";
const UP_TO_DATE: &str = "stream-up-to-date";
const CLOSED: &str = "stream-closed";
const CURSOR: &str = "stream-cursor";

pub(crate) struct Durable {
    /// The faces that have items.
    with_items: Vec<Arc<dyn Face>>,
}

impl Durable {
    pub(crate) fn new(with_items: Vec<Arc<dyn Face>>) -> Self {
        Self { with_items }
    }
}

#[async_trait]
impl Face for Durable {
    fn name(&self) -> &'static str {
        NAME
    }

    fn routes(self: Arc<Self>) -> Routes<FaceContext> {
        routes::routes(&self)
    }

    fn response_headers(&self) -> &'static [&'static str] {
        &[NEXT_OFFSET, UP_TO_DATE, CLOSED, CURSOR]
    }

    fn events(&self) -> Model {
        model::<Vec<StreamPacket>>
    }

    /// This protocol starts no runs.
    fn decode(&self, _: &RequestBody) -> Result<Ask, Fault> {
        Err(Fault::new(FaultKind::MethodNotAllowed))
    }

    fn owns(&self, path: &str) -> bool {
        path.starts_with("/v1/durable/")
    }

    /// Problem details, which its clients show unchanged. A write is refused with the reason.
    fn refuse(&self, cx: &FaceContext, fault: &Fault, _: RefusalTarget<'_>) -> Option<Response> {
        let mut problem = fault.to_problem(cx.engine.settings().exposure);
        if fault.kind() == FaultKind::MethodNotAllowed {
            problem.detail = Some(READ_ONLY.to_owned());
        }
        let mut response =
            Response::new(Body::from(serde_json::to_string(&problem).unwrap_or_default()));
        *response.status_mut() = StatusCode::from_u16(problem.status).unwrap_or_default();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(problem::CONTENT_TYPE));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = problem.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        Some(response)
    }

    async fn open(
        &self,
        cx: &FaceContext,
        opening: ViewRequest<'_>,
    ) -> Result<Box<dyn FaceWriter>, Fault> {
        let after = opening.point.in_run(opening.run)?;
        let shape = opening.parts.extensions.get::<Shape>().cloned().unwrap_or_default();
        let items = List::after(cx, opening.run, after, &shape).await?;
        Ok(Box::new(DurableWriter::new(items, after, opening.run.last_seq)))
    }

    async fn headers(
        &self,
        _: &FaceContext,
        _: &ViewRequest<'_>,
        headers: &mut HeaderMap,
    ) -> Result<(), Fault> {
        headers.insert(
            header::CACHE_CONTROL,
            HeaderValue::from_static("private, no-store, no-transform"),
        );
        Ok(())
    }
}

const READ_ONLY: &str = "A run writes its own stream. Clients can neither create, append to nor \
 delete it. To start a run, POST to /v1/assist; to stop one, DELETE /v1/streams/{id}.";

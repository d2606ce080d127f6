//! The CAP face: frames of the journal unchanged (v1), or encoded again in v2; or a run in one
//! object.

mod ask;
mod collected;
mod routes;

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use capstan_agent::async_trait;
use capstan_journal::{Frames, Run, RunState};
use capstan_protocol::{Cursor, Fault, Profile, event, sse};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};

use self::routes::Params;
use super::{BodyStep, Emit, Face, FaceWriter, Request, ViewRequest};
use crate::face::FaceContext;
use crate::face::last_event_id::resume_point;
use crate::face::post::header_lists;
use crate::face::reader::ViewerKind;
use crate::identity::caller::Caller;
use crate::identity::tickets;
use crate::openapi::{Model, Routes};
use crate::query;
use crate::refusal::Refusal;
use capstan_engine::ask::{Ask, RequestBody};
use capstan_engine::resume::ResumePoint;

/// The reconnection time that a response opens with, in milliseconds.
const RETRY_MS: u32 = 500;

/// The name of this face in the records of runs.
pub(crate) const NAME: &str = "cap";

/// CAP, in both of its profiles.
pub(crate) struct Cap;

#[async_trait]
impl Face for Cap {
    fn name(&self) -> &'static str {
        NAME
    }

    fn routes(self: Arc<Self>) -> Routes<FaceContext> {
        Routes::default()
            .start("/v1/assist", self.clone(), &routes::POST)
            .start("/v1/agents/{name}/assist", self.clone(), &routes::POST)
            .start("/assist", self, &routes::POST)
    }

    fn events(&self) -> Model {
        routes::packets
    }

    fn decode(&self, body: &RequestBody) -> Result<Ask, Fault> {
        ask::from_cap(body)
    }

    fn resume_point(&self, request: &Parts) -> Result<ResumePoint, Fault> {
        let params: Params = query::parse(&request.uri)?;
        Ok(resume_point(&request.headers)?.or_after(params.after))
    }

    fn accepts_reset(&self, request: &Parts) -> bool {
        header_lists(&request.headers, "x-cap-accept", event::STREAM_RESET)
    }

    /// `Accept: application/json` without `text/event-stream` asks for one object.
    fn wants_collected(&self, request: &Request<'_>) -> bool {
        let lists = |kind| header_lists(&request.parts.headers, "accept", kind);
        lists("application/json") && !lists("text/event-stream")
    }

    async fn collected(
        &self,
        cx: &FaceContext,
        request: &Request<'_>,
        run: &Run,
    ) -> Option<Response> {
        if !self.wants_collected(request) {
            return None;
        }
        // The relay has counted the run's fault already.
        let id = request.ask.key.parse().unwrap_or_default();
        Some(match collected::response(cx, run, id).await {
            Ok(answer) => answer,
            Err(fault) => Refusal::from(fault).run_fault_response(),
        })
    }

    async fn open(
        &self,
        _app: &FaceContext,
        opening: ViewRequest<'_>,
    ) -> Result<Box<dyn FaceWriter>, Fault> {
        let params: Params = query::parse(&opening.parts.uri)?;
        let asked = opening.posted.map(|ask| ask.profile);
        let profile = params.profile.or(asked).unwrap_or_default();
        let (run, after) = (opening.run, opening.point.in_run(opening.run)?);
        // A client that resumes after the end gets the CLOSE again. The opening still has the
        // client's own cursor, because a lower one would move the client back.
        let is_over = opening.view == ViewerKind::Post && !run.is_open() && after >= run.last_seq;
        let base = if is_over { run.last_seq.saturating_sub(1) } else { after };
        Ok(Box::new(CapWriter { profile, cursor: Cursor::new(run.stream_id, after), base }))
    }

    /// A POST's response has a ticket to watch the stream.
    async fn headers(
        &self,
        cx: &FaceContext,
        opening: &ViewRequest<'_>,
        headers: &mut HeaderMap<HeaderValue>,
    ) -> Result<(), Fault> {
        let key = opening.parts.extensions.get::<Caller>().and_then(|caller| caller.key.as_ref());
        let key = key.filter(|_| opening.view == ViewerKind::Post);
        tickets::attach(&cx.engine, opening.run, key, headers).await
    }
}

/// A response of CAP.
struct CapWriter {
    profile: Profile,
    /// The client's cursor.
    cursor: Cursor,
    base: u64,
}

impl FaceWriter for CapWriter {
    fn base(&self) -> u64 {
        self.base
    }

    /// A client can resume before the first packet.
    fn opening(&mut self, _: &FaceContext) -> Bytes {
        let mut out = Vec::new();
        sse::encode_opening(&self.cursor, RETRY_MS, &mut out);
        out.into()
    }

    /// Joined: one write instead of many when a reader catches up.
    fn frames<'a>(&'a mut self, _: &'a FaceContext, frames: Frames) -> Emit<'a> {
        Emit::Now(BodyStep::Write(match self.profile {
            Profile::V1 => frames.into_bytes(),
            Profile::V2 => frames.iter().flat_map(to_v2).collect(),
        }))
    }

    fn caught_up(&mut self, _: &FaceContext, state: RunState, view: ViewerKind) -> BodyStep {
        match (state, view) {
            (RunState::Closed, _) | (RunState::Waiting, ViewerKind::Post) => BodyStep::End,
            // A viewer stays connected until the run goes on.
            (RunState::Waiting | RunState::Running, _) => BodyStep::Write(Bytes::new()),
        }
    }

    fn closing(&mut self) -> BodyStep {
        BodyStep::End
    }
}

fn to_v2(frame: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(packet) = sse::decode_packet(frame) {
        sse::encode_packet_v2(&packet, &mut out);
    }
    out
}

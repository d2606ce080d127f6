//! The Coreason Agent Protocol (CAP), typed.
//!
//! Everything that Capstan says or hears on a wire is described here, once: packets, presentation events,
//! requests, AG-UI events, assistant frames, problem details, the SSE codec, and the catalogue of faults from
//! which every dialect of failure is derived. This crate does no I/O and knows no async runtime.
//!
//! ```
//! use capstan_protocol::{StreamPacket, Payload};
//!
//! let packet = StreamPacket::decode(
//!     r#"{"stream_id":"7c9e6679-7425-40de-944b-e07fc1f90ae7","seq":1,"op":"DELTA","t":"2026-02-03T10:15:37Z","p":"Hi"}"#,
//! )?;
//! assert_eq!(packet.payload, Payload::Delta("Hi".into()));
//! # Ok::<(), capstan_protocol::DecodeError>(())
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod agui;
pub mod assistant;
mod backoff;
pub mod cursor;
pub mod decode;
mod error;
mod escape;
pub mod event;
pub mod fault;
mod json;
mod message;
pub mod model;
mod nearest;
mod packet;
mod parameters;
pub mod problem;
mod request;
mod response;
#[cfg(feature = "schema")]
mod schema;
pub mod sse;
mod time;
mod transcript;
pub mod v2;

pub use backoff::Backoff;
pub use cursor::{Cursor, CursorError, LastEventId};
pub use decode::{DecodeError, DecodeErrorKind};
pub use error::{ErrorSeverity, StreamError};
pub use event::{
    CitationBlock, CitationItem, ErrorDomain, Event, EventView, MarkdownBlock, MediaCarousel, MediaItem,
    PresentationEvent, PresentationEventType, ProgressStatus, ProgressUpdate, StreamReset, ThoughtTrace,
    UserError,
};
pub use fault::{AguiErrorCode, CATALOGUE, Exposure, Fault, FaultKind};
pub use json::{RawJson, RawObject};
pub use message::{Arguments, ChatMessage, Modality, Part, Role};
pub use model::Profile;
pub use nearest::nearest;
pub use packet::{Close, CloseReport, Payload, StreamOpCode, StreamPacket};
pub use parameters::{AnswerSchema, Effort, Parameters, ResponseFormat, ToolChoice};
pub use problem::Problem;
pub use request::{
    AgentRequest, ClientCapabilities, ServiceRequest, SessionContext, TraceContext, UserContext,
};
pub use response::{HealthCheckResponse, HealthStatus, Identity, ServerSentEvent, ServiceResponse};
pub use time::Timestamp;
pub use transcript::Transcript;

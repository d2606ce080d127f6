#![doc = include_str!("../README.md")]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod agui;
pub mod assistant;
mod backoff;
pub mod cursor;
pub mod decode;
mod error;
mod escape;
pub mod event;
mod event_view;
pub mod fault;
mod interrupt;
mod json;
mod message;
pub mod model;
mod native;
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
pub use error::{ErrorDomain, ErrorSeverity, StreamError};
pub use event::{
    CitationBlock, CitationItem, MarkdownBlock, MediaCarousel, MediaItem, PresentationEvent,
    PresentationEventType, ProgressStatus, ProgressUpdate, StreamReset, ThoughtTrace, UserError,
};
pub use event_view::{Event, EventView};
pub use fault::{AguiErrorCode, CATALOGUE, Exposure, Fault, FaultKind};
pub use json::{RawJson, RawObject};
pub use message::{Arguments, ChatMessage, Modality, Part, Role};
pub use model::Profile;
pub use native::{
    Dialect, GATEWAY_RESPONSE_MEMBERS, NATIVE, NativeEvent, NativeOrigin, NativePart,
};
pub use nearest::{near, nearest};
pub use packet::{Close, CloseReport, Payload, StreamOpCode, StreamPacket};
pub use parameters::{AnswerSchema, Effort, Parameters, ResponseFormat, ToolChoice};
pub use problem::Problem;
pub use request::{
    AgentRequest, ClientCapabilities, ServiceRequest, SessionContext, TraceContext, UserContext,
};
pub use response::{HealthCheckResponse, HealthStatus, Identity, ServerSentEvent, ServiceResponse};
pub use time::Timestamp;
pub use transcript::Transcript;

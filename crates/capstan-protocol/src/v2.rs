//! Profile v2, the later data contract: lower-case words, unknown members ignored, most ids plain
//! strings.
//!
//! Its names repeat those of the crate root: `v2::ServiceRequest` is v2's form of it.

mod event;
mod graph;
mod packet;
mod request;

pub use event::{
    Block, CitationBlock, CitationItem, MarkdownBlock, MediaCarousel, MediaItem, PresentationEvent,
    ProgressUpdate,
};
pub use graph::{AgentCapabilities, DeliveryMode, GraphEvent, GraphEventKind, StreamReference};
pub(crate) use packet::canonical as canonical_packet;
pub use packet::{ErrorSeverity, StreamError, StreamPacket};
pub use request::{AgentRequest, ChatMessage, ServiceRequest, SessionContext};

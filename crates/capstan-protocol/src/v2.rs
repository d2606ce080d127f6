//! Profile v2, the later data contract: lower-case words, unknown members ignored, most ids plain
//! strings.
//!
//! Names repeat those of the crate root on purpose: `v2::ServiceRequest` is what v2 means by that
//! word.

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

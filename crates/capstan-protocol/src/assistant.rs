//! Assistant frames: an agent CLI's stream-json output, one JSON object a line, with ADR 0004's
//! `error`.
//!
//! ```
//! use capstan_protocol::assistant::{AssistantError, Frame, Line};
//!
//! let line = r#"{"type":"assistant","error":"rate_limit",
//!     "message":{"model":"m","content":[{"type":"text","text":"Slow down"}]}}"#;
//! let Line::Object(object) = Line::decode(line)? else { unreachable!() };
//! let Frame::Assistant(message) = Frame::from_object(&object)? else { unreachable!() };
//! match message.error {
//!     // Show a retry prompt.
//!     Some(AssistantError::RateLimit) => println!("{} Try again?", message.text()),
//!     Some(error) => println!("failed: {error}"),
//!     None => println!("{}", message.text()),
//! }
//! # Ok::<(), capstan_protocol::DecodeError>(())
//! ```

mod assembler;
mod error;
mod frame;
mod line;

pub use assembler::{Assembler, Message, Outcome};
pub use error::{AdrError, AssistantError};
pub use frame::{
    AssistantMessage, Block, Frame, RateLimitEvent, ResultMessage, StreamEvent, SystemMessage,
    UserMessage,
};
pub use line::Line;

//! AG-UI, protocol 1.0 and 0.0.59: the events that a gateway emits and reads, run input, RUN_ERROR.
//!
//! Rules of the wire that both client lines insist on: optional members are absent, never null;
//! timestamps are whole milliseconds; unknown members of what we read are ignored.

mod event;
mod fault;
mod input;
mod message;
mod run_error;
mod verify;

pub use crate::interrupt::Interrupt;
pub use event::{AguiEvent, EventBody, Outcome, TextRole, TokenUsage};
pub use input::{Context, ResumeEntry, ResumeStatus, RunAgentInput, Tool};
pub use message::{AguiMessage, ContentPart, FunctionCall, MessageContent, PartSource, ToolCall};
pub use run_error::{AguiCode, CapstanMetadata, RunError, RunErrorForm};
pub use verify::{Verifier, null_member};

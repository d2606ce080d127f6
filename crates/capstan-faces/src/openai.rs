//! OpenAI's API in front of every agent: Responses, Chat Completions, and the models, which are the
//! agents.
//!
//! The published SDKs decide what goes here: no preamble, no `id:`, errors as objects with a truthy
//! `error`, and statuses that are repeated only where a repeat can help. See `docs/openai.md` for
//! what differs from OpenAI, and why.

mod chat;
mod content;
mod errors;
mod foreign;
mod members;
mod models;
mod native;
mod output;
mod parameters;
mod passthrough;
mod request;
mod responses;

pub(crate) use chat::Chat;
pub(crate) use responses::Responses;

//! OpenAI's API for every agent: Responses, Chat Completions, and the list of models, which are the
//! agents.
//!
//! The forms are those that the published SDKs can read: no preamble, no `id:`, errors as objects
//! with a truthy `error`, and statuses that SDKs retry only where a retry can help.
//! `docs/openai.md` lists the differences from OpenAI, with reasons.

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

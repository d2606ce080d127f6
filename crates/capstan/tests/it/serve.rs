//! The binary as an operator meets it: killed, signalled, raced, misconfigured, read from its log.

mod agent_cli;
mod agents;
#[cfg(target_os = "linux")]
mod attack;
mod chain;
mod chat;
mod check;
pub(crate) mod client;
pub(crate) mod clocks;
mod coding_clis;
mod debug;
mod drain;
#[cfg(debug_assertions)]
mod failpoint;
mod greeting;
// It makes tokens without the library that checks them.
#[allow(dead_code)]
#[path = "../../../capstan-gateway/tests/it/auth/issuer.rs"]
mod issuer;
mod keys;
mod kill;
mod logs;
mod passthrough;
mod peer;
pub(crate) mod process;
mod race;
mod readme;
mod refuse;
mod room;
mod routes;
mod streams;
mod terminal;
mod tls;
mod traces;
mod webhooks;

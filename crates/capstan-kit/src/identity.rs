//! Callers and their rights: tenants and their keys, tokens, tickets, operators, scopes, and the
//! audit.

pub mod audit;
pub mod caller;
pub mod jwt;
pub mod operators;
pub mod origin;
pub mod scopes;
pub mod tenants;
pub mod tickets;

//! Whose request it is and what it may do: tenants and their keys, tokens, tickets, operators,
//! scopes, and the audit of what they did.

pub mod audit;
pub mod caller;
pub mod jwt;
pub mod operators;
pub mod origin;
pub mod scopes;
pub mod tenants;
pub mod tickets;

//! Whose request it is and what it may do: tenants and their keys, tokens, tickets, operators,
//! scopes, and the audit of what they did.

pub(crate) mod audit;
pub(crate) mod caller;
pub(crate) mod jwt;
pub(crate) mod operators;
pub(crate) mod origin;
pub(crate) mod scopes;
pub(crate) mod tenants;
pub(crate) mod tickets;

//! The routes, a file each.

pub(crate) mod agents;
pub(crate) mod docs;
pub(crate) mod errors;
pub(crate) mod health;
pub(crate) mod page;
pub(crate) mod replicas;
pub(crate) mod sessions;
pub(crate) mod streams;
pub(crate) mod tickets;

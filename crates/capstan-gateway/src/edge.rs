//! Sockets: connection limits, timeouts of idle and slow peers, and shutdown. The edge knows the
//! router. It does not know runs or faces.

mod activity;
pub(crate) mod admission;
mod body_sender;
mod connection;
mod handover;
mod progress;
pub(crate) mod server;
mod socket;
mod stall_timeout;

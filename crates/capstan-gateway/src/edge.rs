//! Sockets: who may connect, how long an idle or slow peer stays, and how the server stops. The
//! edge knows the router and nothing of runs or faces.

mod activity;
pub(crate) mod admission;
mod body_sender;
mod connection;
mod handover;
mod progress;
pub(crate) mod server;
mod socket;
mod stall_timeout;

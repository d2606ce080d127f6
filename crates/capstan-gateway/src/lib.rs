#![doc = include_str!("../README.md")]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod access;
mod accounted_body;
mod activity;
mod admission;
mod answers;
mod app;
mod audit;
mod caller;
mod connection;
mod console;
mod error_responses;
mod face;
mod handover;
mod html;
mod jwt;
mod last_event_id;
mod metrics;
mod openapi;
mod operators;
mod origin;
mod post;
mod progress;
mod query;
mod reader;
mod refusal;
mod replica_forwarding;
mod router;
mod routes;
mod run_log;
mod scopes;
mod server;
mod settings;
mod socket;
mod stall_timeout;
mod tenants;
mod tickets;
mod tls;
mod trace_context;
mod webhook;
mod webhooks;

/// The examples of the page about agents of one's own, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/own-agent.md")]
struct OwnAgent;

pub use app::Gateway;
pub use audit::AUDIT;
pub use axum::body::Body;
pub use capstan_engine::traces::{SPANS, TraceCollector};
pub use capstan_journal::{Retention, TenantRetention};
pub use face::faces;
pub use jwt::{Jwt, JwtRules, KeySet, LONGEST_LEEWAY, MOST_KEY_BYTES, TokenTenants};
pub use openapi::openapi;
pub use operators::{EVERY_TENANT, Operator, Operators, Right};
pub use origin::Origin;
pub use replica_forwarding::ReplicaForwarder;
pub use routes::page::Asset;
pub use scopes::{Scope, Scopes};
pub use server::{Drained, Service, serve};
pub use settings::{ConsoleSettings, ContentRule, Limits, Settings, Timeouts};
pub use tenants::{KeyHash, Tenant, TenantKey, Tenants};
pub use tls::Tls;
pub use webhook::{Webhook, WebhookSender};

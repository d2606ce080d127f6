#![doc = include_str!("../README.md")]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod access;
mod accounted_body;
mod answers;
mod asset;
mod console;
mod cors;
mod edge;
mod error_responses;
mod face;
mod gateway;
mod html;
mod identity;
mod metrics;
mod openapi;
mod query;
mod refusal;
mod replica_forwarding;
mod router;
mod routes;
mod run_log;
mod serve;
mod services;
mod settings;
mod tls;
mod webhook;
mod webhooks;

/// The examples of the page about agents of one's own, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/own-agent.md")]
struct OwnAgent;

pub use asset::Asset;
pub use axum::body::Body;
pub use capstan_engine::traces::{SPANS, TraceCollector};
pub use capstan_journal::{Retention, TenantRetention};
pub use face::faces;
pub use face::openai::{PASSTHROUGH, Passthrough};
pub use gateway::Gateway;
pub use identity::audit::AUDIT;
pub use identity::jwt::{Jwt, JwtRules, KeySet, LONGEST_LEEWAY, MOST_KEY_BYTES, TokenTenants};
pub use identity::operators::{EVERY_TENANT, Operator, Operators, Right};
pub use identity::origin::Origin;
pub use identity::scopes::{Scope, Scopes};
pub use identity::tenants::{KeyHash, Tenant, TenantKey, Tenants};
pub use replica_forwarding::ReplicaForwarder;
pub use router::openapi;
pub use serve::{Drained, Service, serve};
pub use settings::{ConsoleSettings, ContentRule, Limits, Settings, Timeouts};
pub use tls::Tls;
pub use webhook::{Webhook, WebhookSender};

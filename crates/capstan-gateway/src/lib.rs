#![doc = include_str!("../README.md")]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod asset;
mod edge;
mod error_responses;
mod faces;
mod gateway;
mod metrics;
#[cfg(test)]
mod numbers;
mod replica_forwarding;
mod router;
mod routes;
mod run_log;
mod run_spans;
mod serve;
mod services;
mod settings;
mod tls;
mod webhooks;

/// Compiles the examples of the page about own agents.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/own-agent.md")]
struct OwnAgent;

use capstan_kit::{access, accounted_body, answers, face, html, identity, query, refusal, webhook};

pub use asset::Asset;
pub use axum::body::Body;
pub use capstan_console::{ConsoleSettings, ContentRule};
pub use capstan_faces::faces;
pub use capstan_journal::{Retention, TenantRetention};
pub use capstan_kit::face::passthrough::{PASSTHROUGH, Passthrough};
pub use capstan_kit::identity::audit::AUDIT;
pub use capstan_kit::identity::jwt::{
    Jwt, JwtRules, KeySet, LONGEST_LEEWAY, MOST_KEY_BYTES, TokenTenants,
};
pub use capstan_kit::identity::operators::{EVERY_TENANT, Operator, Operators, Right};
pub use capstan_kit::identity::origin::Origin;
pub use capstan_kit::identity::scopes::{Scope, Scopes};
pub use capstan_kit::identity::tenants::{KeyHash, Tenant, TenantKey, Tenants};
pub use capstan_kit::webhook::{Webhook, WebhookSender};
pub use gateway::Gateway;
pub use replica_forwarding::ReplicaForwarder;
pub use router::openapi;
pub use run_spans::{SPANS, TraceCollector};
pub use serve::{Drained, Service, serve};
pub use settings::{Limits, Settings, Timeouts};
pub use tls::Tls;

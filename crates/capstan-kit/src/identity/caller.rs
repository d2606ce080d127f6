//! The caller of a request, and its scopes.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use capstan_protocol::{Fault, FaultKind};

use crate::identity::scopes::{Operation, Scopes};
use crate::identity::tenants::KeyHash;
use crate::refusal::Refusal;

/// The tenant of a gateway without tenants.
pub const LOCAL: &str = "local";

/// The caller of a request.
#[derive(Debug, Clone)]
pub struct Caller {
    pub tenant: String,
    /// The key of the request, if it has one. Tickets are bound to it.
    pub key: Option<KeyHash>,
    /// What it may do.
    pub scopes: Scopes,
    /// The caller's id in logs: a part of the key's hash, never the key.
    pub log_id: String,
}

impl Caller {
    /// The caller on a gateway without tenants.
    pub fn local() -> Self {
        Self { tenant: LOCAL.to_owned(), key: None, scopes: Scopes::ALL, log_id: String::new() }
    }

    /// Refuses an operation for which the key or token lacks a scope.
    pub fn check(&self, operation: Operation) -> Result<(), Fault> {
        let Some(scope) = self.scopes.lacks(operation) else { return Ok(()) };
        let message =
            format!("The key or token may not do this: it lacks the scope `{}`.", scope.word());
        let fault = Fault::new(FaultKind::TenantUnauthorized).with_message(message);
        Err(fault.with_detail(LACKS, scope.word()))
    }
}

/// The detail that names the scope which a known key or token lacks.
pub const LACKS: &str = "scope";

/// A layer that refuses a request whose key or token lacks a scope of the route's operation. Routes
/// without a caller need no key.
pub async fn check_scopes(operation: Operation, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>();
    match caller.map_or(Ok(()), |caller| caller.check(operation)) {
        Ok(()) => next.run(request).await,
        Err(fault) => Refusal::from(fault).into_response(),
    }
}

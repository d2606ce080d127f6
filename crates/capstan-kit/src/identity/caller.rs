//! Whose request it is, and what it may do.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use capstan_protocol::{Fault, FaultKind};

use crate::identity::scopes::{Operation, Scopes};
use crate::identity::tenants::KeyHash;
use crate::refusal::Refusal;

/// The tenant of a gateway without tenants.
pub const LOCAL: &str = "local";

/// The tenant that a request belongs to.
#[derive(Debug, Clone)]
pub struct Caller {
    pub tenant: String,
    /// What its tickets are bound to: the key that was shown, if one was.
    pub key: Option<KeyHash>,
    /// What it may do.
    pub scopes: Scopes,
    /// By what logs know it.
    pub log_id: String,
}

impl Caller {
    /// On a gateway without tenants.
    pub fn local() -> Self {
        Self { tenant: LOCAL.to_owned(), key: None, scopes: Scopes::ALL, log_id: String::new() }
    }

    /// Refuses what its key or token is not for.
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

/// Refuses a request whose key or token lacks a scope of its operation. Routes without a caller are
/// open to everybody.
pub async fn check_scopes(operation: Operation, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>();
    match caller.map_or(Ok(()), |caller| caller.check(operation)) {
        Ok(()) => next.run(request).await,
        Err(fault) => Refusal::from(fault).into_response(),
    }
}

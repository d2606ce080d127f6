//! Failures become HTTP responses here and nowhere else: problem+json, headers, one log line, one
//! count.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use capstan_journal::JournalError;
use capstan_protocol::{Fault, FaultKind};
use http::StatusCode;

use capstan_engine::faults::journal_fault;

/// A fault on its way to becoming a response.
#[derive(Debug)]
pub struct Refusal {
    // Boxed, because every step of every handler returns room for it.
    fault: Box<Fault>,
    /// The answer in the words of a face; without one it is a problem.
    shape: Option<Box<Response>>,
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self { fault: Box::new(fault), shape: None }
    }
}

impl From<FaultKind> for Refusal {
    fn from(kind: FaultKind) -> Self {
        Self::from(Fault::new(kind))
    }
}

impl From<JournalError> for Refusal {
    fn from(error: JournalError) -> Self {
        Self::from(journal_fault(error))
    }
}

/// Marks a response whose fault is a run's own: its relay has counted and logged it.
#[derive(Debug, Clone, Copy)]
pub struct OfARun;

/// Marks a response that another process has given: it is as it should be.
#[derive(Debug, Clone, Copy)]
pub struct PassedOn;

/// Marks a response that a face has shaped: it stays as it is.
#[derive(Debug, Clone, Copy)]
pub struct Shaped;

impl Refusal {
    /// The failure of a run as the answer to the one who asked for it in one object.
    pub fn of_a_run(self) -> Response {
        let mut response = self.into_response();
        response.extensions_mut().insert(OfARun);
        response
    }

    /// The same in a face's own words, if it has any.
    pub fn shaped_as(mut self, shape: Option<Response>) -> Self {
        self.shape = shape.map(Box::new);
        self
    }
}

impl IntoResponse for Refusal {
    /// Carries the fault to the layer of the gateway that knows how much may be said.
    fn into_response(self) -> Response {
        let mut response = match self.shape {
            Some(mut shape) => {
                shape.extensions_mut().insert(Shaped);
                *shape
            }
            None => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = status_of(&self.fault);
                response
            }
        };
        response.extensions_mut().insert(*self.fault);
        response
    }
}

/// The fault of a response that was refused for want of a credential, or of what it allows.
pub fn refused_by_credentials(response: &Response) -> Option<&Fault> {
    let extensions = response.extensions();
    let is_by = |fault: &&Fault| {
        matches!(fault.kind(), FaultKind::TenantRequired | FaultKind::TenantUnauthorized)
    };
    extensions.get::<Fault>().filter(is_by).filter(|_| extensions.get::<OfARun>().is_none())
}

fn status_of(fault: &Fault) -> StatusCode {
    StatusCode::from_u16(fault.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Goes with a response: whose request it answers.
#[derive(Debug, Clone)]
pub struct OfTenant(pub String);

/// Goes with the request, for whoever puts it on record.
#[derive(Debug, Clone)]
pub struct RequestId(pub String);

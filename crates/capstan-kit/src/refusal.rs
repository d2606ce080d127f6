//! Turns a fault into an HTTP response. The gateway's layer for error responses adds the body, the
//! log line and the count.

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
    /// The face's own response. Without one, the response is problem details.
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

/// Marks a response whose fault belongs to a run: the relay has counted and logged it.
#[derive(Debug, Clone, Copy)]
pub struct RunFault;

/// Marks a response of another process, which this gateway forwards unchanged.
#[derive(Debug, Clone, Copy)]
pub struct Forwarded;

/// Marks a response that a face has encoded, so that the gateway leaves it unchanged.
#[derive(Debug, Clone, Copy)]
pub struct ShapedByFace;

impl Refusal {
    /// Answers a request for one object with the fault of its run.
    pub fn run_fault_response(self) -> Response {
        let mut response = self.into_response();
        response.extensions_mut().insert(RunFault);
        response
    }

    /// Sets the face's own response, if it has one.
    pub fn shaped_as(mut self, shape: Option<Response>) -> Self {
        self.shape = shape.map(Box::new);
        self
    }
}

impl IntoResponse for Refusal {
    /// Attaches the fault for the gateway's layer, which knows how much a client may see.
    fn into_response(self) -> Response {
        let mut response = match self.shape {
            Some(mut shape) => {
                shape.extensions_mut().insert(ShapedByFace);
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

/// The fault of a response that was refused because of its key or token.
pub fn refused_by_credentials(response: &Response) -> Option<&Fault> {
    let extensions = response.extensions();
    let is_by = |fault: &&Fault| {
        matches!(fault.kind(), FaultKind::TenantRequired | FaultKind::TenantUnauthorized)
    };
    extensions.get::<Fault>().filter(is_by).filter(|_| extensions.get::<RunFault>().is_none())
}

fn status_of(fault: &Fault) -> StatusCode {
    StatusCode::from_u16(fault.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The tenant of the request, as an extension of the response.
#[derive(Debug, Clone)]
pub struct ResponseTenant(pub String);

/// The id of a request, as an extension, for the log and the run's record.
#[derive(Debug, Clone)]
pub struct RequestId(pub String);

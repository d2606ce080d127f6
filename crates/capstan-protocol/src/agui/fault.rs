//! A fault as RUN_ERROR, and a RUN_ERROR as a fault.

use super::run_error::{AguiCode, CapstanMetadata, RunError};
use crate::fault::{Exposure, Fault, FaultKind};

impl Fault {
    /// Converts to AG-UI's RUN_ERROR. Its `http_status` is the fixed status of the code.
    pub fn to_run_error(&self, exposure: Exposure) -> RunError {
        let entry = self.kind().entry();
        RunError {
            code: AguiCode::Known(entry.agui),
            message: self.message().to_owned(),
            http_status: entry.agui.http_status(),
            details: self.exposed_details(exposure),
            retry_after: self.retry_after,
            capstan: Some(CapstanMetadata {
                kind: self.code().to_owned(),
                severity: self.severity,
                domain: entry.domain,
                retryable: self.retryable,
                problem_type: entry.problem_type(),
            }),
        }
    }
}

impl From<RunError> for Fault {
    fn from(error: RunError) -> Self {
        let finer = error.capstan.as_ref().map(|c| c.kind.as_str());
        let by_type =
            || error.capstan.as_ref().and_then(|capstan| FaultKind::of_type(&capstan.problem_type));
        let known =
            finer.and_then(FaultKind::of_code).or_else(by_type).or_else(|| match &error.code {
                AguiCode::Known(code) => Some(code.head()),
                AguiCode::Other(code) => FaultKind::of_code(code),
            });
        let mut fault =
            Self::new(known.unwrap_or(FaultKind::AgentExecutionError)).with_message(error.message);
        fault.foreign_code = match (finer, &error.code) {
            (Some(finer), _) if FaultKind::of_code(finer).is_none() => Some(finer.to_owned()),
            (None, AguiCode::Other(code)) if known.is_none() => Some(code.clone()),
            _ => None,
        };
        match &error.capstan {
            Some(capstan) => {
                fault.severity = capstan.severity;
                fault.retryable = capstan.retryable;
            }
            None => fault.retryable = error.code.is_retryable(),
        }
        fault.retry_after = error.retry_after;
        fault.details = Box::new(error.details);
        fault
    }
}

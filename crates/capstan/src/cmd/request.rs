//! `capstan request`: prints a valid request body for a message, to post with curl.

use std::io::{self, Write as _};
use std::process::ExitCode;

use capstan_protocol::{AgentRequest, ServiceRequest, SessionContext, UserContext};
use uuid::Uuid;

use super::{Failure, input};

/// Print a request body for a message, with a fresh request id
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The message; standard input if absent or `-`
    message: Option<String>,

    /// The conversation to continue
    #[arg(long)]
    session: Option<Uuid>,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let session = self.session.unwrap_or_else(Uuid::now_v7);
        let context = SessionContext::new(session, UserContext::new("cli"));
        let request =
            ServiceRequest::new(context, AgentRequest::query(session, input::text(self.message)?));
        let body = serde_json::to_string(&request).map_err(Failure::usage)?;
        writeln!(io::stdout().lock(), "{body}")?;
        Ok(ExitCode::SUCCESS)
    }
}

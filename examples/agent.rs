//! An agent of your own behind the gateway: it counts the words of each line.
//!
//!     cargo run -p capstan-gateway --example agent            # 127.0.0.1:8788; another port as an
//!     argument capstan request $'one two three\n\nfour five' | curl -sN localhost:8788/v1/assist
//!     -H 'content-type: application/json' -d @-
//!
//! CAPSTAN_JOURNAL=disk:./words keeps the streams; Ctrl-C drains.

use std::env;

use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, serve};
use capstan_journal::{Journal, TailLimits};
use capstan_protocol::fault::Validation;
use capstan_protocol::{ErrorDomain, ProgressStatus, ProgressUpdate, UserError};
use capstan_stores::{Durability, open};
use tokio::net::TcpListener;

struct WordCounter;

#[async_trait]
impl Agent for WordCounter {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let text = turn.text();
        if text.trim().is_empty() {
            // Whatever error is returned ends the run as a typed fault: this one as FATAL
            // invalid_request.
            return Err(Validation { message: "There is nothing to count.".into() }.into());
        }
        for (number, line) in (1..).zip(text.lines()) {
            let (label, status) = (format!("line {number}"), ProgressStatus::Running);
            out.progress(&ProgressUpdate { label, status, progress_percent: None }).await?;
            match line.split_whitespace().count() {
                0 => out.user_error(&empty(number)).await?,
                words => out.delta(format!("line {number}: {words} words\n")).await?,
            }
        }
        Ok(())
    }
}

/// The run goes on after it: the user is told, nothing is broken.
fn empty(line: u32) -> UserError {
    let message = format!("Line {line} is empty and was skipped.");
    UserError { message, code: Some(400), domain: ErrorDomain::Client, retryable: false }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let port = env::args().nth(1).map_or(Ok(8788), |port| port.parse())?;
    let url = env::var("CAPSTAN_JOURNAL").unwrap_or_else(|_| "memory:".into());
    let journal = Journal::new(open(&url, Durability::default())?, TailLimits::default());
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    tracing::info!(address = %listener.local_addr()?, journal = url, "listening");
    let gateway = Gateway::new(journal).agent("words", WordCounter);
    serve(gateway, vec![listener], async { drop(tokio::signal::ctrl_c().await) }).await?;
    Ok(())
}

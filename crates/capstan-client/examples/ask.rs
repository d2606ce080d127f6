//! Asks an agent and prints its packets as JSON lines. A failure goes to standard error as its
//! code.
//!
//! `cargo run -p capstan-client --example ask -- http://localhost:8787 "What is a capstan?"
//! [RETRIES]`

use std::io::Write as _;

use capstan_client::{CapClient, CapError, Options};
use uuid::Uuid;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (url, message) =
        (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    let retries = arguments.next().and_then(|retries| retries.parse().ok()).unwrap_or(3);
    match ask(&url, &message, retries).await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            let code = error.as_runtime().map_or("no_answer", |runtime| runtime.code());
            let _ = writeln!(std::io::stderr(), "{code}: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

async fn ask(url: &str, message: &str, retries: u32) -> Result<(), CapError> {
    let client = CapClient::with_options(url, "", Options::new().max_retries(retries))?;
    let mut packets = client.assist(&client.question(Uuid::now_v7(), message));
    while let Some(packet) = packets.next().await? {
        let _ = writeln!(std::io::stdout(), "{}", packet.to_json());
    }
    Ok(())
}

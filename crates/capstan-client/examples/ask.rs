//! Asks an agent and prints its packets as JSON lines; a failure goes to standard error as its code.
//!
//! `cargo run -p capstan-client --example ask -- http://localhost:8787 "What is a capstan?"`

use std::io::Write as _;

use capstan_client::{CapClient, CapError};
use uuid::Uuid;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (url, message) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    match ask(&url, &message).await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            let code = error.as_runtime().map_or("no_answer", |runtime| runtime.code());
            let _ = writeln!(std::io::stderr(), "{code}: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

async fn ask(url: &str, message: &str) -> Result<(), CapError> {
    let client = CapClient::new(url, "")?;
    let mut packets = client.assist(&client.question(Uuid::now_v7(), message));
    while let Some(packet) = packets.next().await? {
        let _ = writeln!(std::io::stdout(), "{}", packet.to_json());
    }
    Ok(())
}

//! RFC 004, scenario A: a simple chat. Text in, text out; the connection heals itself.
//!
//!     make run                                                  # in another terminal cargo run -p
//!     capstan-client --example chat                # http://localhost:8787; another URL as an
//!     argument

#![allow(clippy::print_stdout)] // A program that talks to a person.

use std::io::{Write as _, stdout};

use capstan_client::CapError;
use capstan_client::blocking::CapClient;

fn main() -> Result<(), CapError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://localhost:8787".into());
    let client = CapClient::new(&url, "sk_...")?;

    println!("User: Explain quantum mechanics.");
    print!("AI: ");
    // The stream knows the conversation from the start.
    let mut stream = client.chat("Explain quantum mechanics.");
    for chunk in stream.by_ref() {
        print!("{}", chunk?);
        let _ = stdout().flush();
    }

    // Continue the conversation.
    println!("\nUser: How does that relate to gravity?");
    print!("AI: ");
    for chunk in client.chat_in(stream.conversation_id(), "How does that relate to gravity?") {
        print!("{}", chunk?);
    }
    println!();
    Ok(())
}

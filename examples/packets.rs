//! RFC 004, scenario B: the envelope built by hand, and every packet typed.
//!
//!     make run                                                  # in another terminal cargo run -p
//!     capstan-client --example packets             # http://localhost:8787; another URL as an
//!     argument

#![allow(clippy::print_stdout)] // A program that talks to a person.

use capstan_client::protocol::{
    AgentRequest, ChatMessage, Event, EventView, Payload, ServiceRequest, SessionContext,
    UserContext,
};
use capstan_client::{CapClient, CapError};
use uuid::Uuid;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), CapError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://localhost:8787".into());
    let client = CapClient::new(&url, "sk_...")?;

    // 1. Who asks, and what. `/events` makes the demo agent show one event of each type.
    let session = Uuid::now_v7();
    let context = SessionContext::new(session, UserContext::new("user_123"));
    let payload = AgentRequest::messages(session, &[ChatMessage::user("/events")]);
    let request = ServiceRequest::new(context, payload);

    // 2. Strictly over packets.
    let mut packets = client.assist(&request);
    while let Some(packet) = packets.next().await? {
        match &packet.payload {
            Payload::Delta(text) => print!("{text}"),
            Payload::Event(raw) => {
                if let EventView::Citations(block) = Event::of(raw).view() {
                    for citation in block.citations {
                        println!("\n[Citation: {}]", citation.uri);
                    }
                }
            }
            // Warnings are packets; other errors were returned by `next`.
            Payload::Error(warning) => eprintln!("\n{warning}"),
            Payload::Close(close) => println!("\n({})", close.reason()),
        }
    }
    Ok(())
}

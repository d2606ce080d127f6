//! How a script is asked for; the client itself is shared.

use std::io;
use std::net::SocketAddr;

pub use capstan_bench_kit::response::Response;
use capstan_protocol::{AgentRequest, ServiceRequest, SessionContext, UserContext};
use uuid::Uuid;

use super::script::Script;

pub async fn post(address: SocketAddr, path: &str, script: Script) -> io::Result<Response> {
    let session = Uuid::now_v7();
    let context = SessionContext::new(session, UserContext::new("bench"));
    let request = ServiceRequest::new(context, AgentRequest::query(session, script.to_text()));
    let body = serde_json::to_string(&request)?;
    let head = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    Response::send(address, &format!("POST {path}"), &head, &body).await
}

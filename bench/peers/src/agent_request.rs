//! A CAP request, and the way of its answer.

use std::io;
use std::net::SocketAddr;

use capstan_bench_kit::response::Response;
use serde_json::json;
use uuid::Uuid;

/// Starts a run of an agent.
pub async fn start(address: SocketAddr, agent: &str, query: &str) -> io::Result<Response> {
    let id = Uuid::now_v7();
    let body = json!({ "request_id": id, "context": { "session_id": id, "agent_id": Uuid::nil(),
        "user": { "user_id": "u", "tier": "t", "locale": "en" }, "trace": { "trace_id": id,
        "span_id": id },
        "permissions": [], "created_at": "2026-02-03T10:15:37Z" },
        "payload": { "session_id": id, "payload": { "query": query } } });
    post(address, &format!("/v1/agents/{agent}/assist"), &body.to_string()).await
}

pub async fn post(address: SocketAddr, path: &str, body: &str) -> io::Result<Response> {
    post_with(address, path, "", body).await
}

pub async fn post_with(
    address: SocketAddr,
    path: &str,
    headers: &str,
    body: &str,
) -> io::Result<Response> {
    let length = body.len();
    let head = format!(
        "content-type: application/json\r\naccept: text/event-stream\r\ncontent-length: \
         {length}\r\n{headers}"
    );
    Response::send(address, &format!("POST {path}"), &head, body).await
}

/// Where a run can be watched.
pub async fn stream_path(response: &mut Response) -> io::Result<String> {
    Ok(format!("/v1/streams/{}", response.header("x-stream-id").await?))
}

//! A provider, a client and what both need.

use capstan_fake_provider::{FakeProvider, Script};
use serde_json::{Value, json};

pub(crate) const PATHS: [&str; 3] = ["v1/chat/completions", "v1/responses", "v1/messages"];

pub(crate) async fn start(script: Script) -> FakeProvider {
    FakeProvider::start("127.0.0.1:0", script).await.unwrap()
}

pub(crate) fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

pub(crate) async fn send(
    provider: &FakeProvider,
    path: &str,
    body: &Value,
) -> Result<reqwest::Response, reqwest::Error> {
    client()
        .post(format!("{}/{path}", provider.url()))
        .bearer_auth("sk-secret")
        .json(body)
        .send()
        .await
}

/// The body, and whether it came to an end by HTTP's rules.
pub(crate) async fn read(mut response: reqwest::Response) -> (String, bool) {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return (String::from_utf8_lossy(&body).into_owned(), true),
            Err(_) => return (String::from_utf8_lossy(&body).into_owned(), false),
        }
    }
}

pub(crate) fn question(model: &str) -> Value {
    json!({ "model": model, "stream": true, "messages": [{ "role": "user",
    "content": "What is a capstan?" }] })
}

/// The text of a stream in any of the shapes.
pub(crate) fn text(body: &str) -> String {
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let pointers = ["/choices/0/delta/content", "/delta/text", "/delta"];
    let text = |event: Value| {
        pointers
            .iter()
            .find_map(|at| event.pointer(at)?.as_str().map(str::to_owned))
            .unwrap_or_default()
    };
    events.map(text).collect()
}

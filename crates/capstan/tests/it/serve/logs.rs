//! The content of a log, and what neither a log nor an answer may contain.

use std::fs;
use std::path::Path;

use capstan_protocol::ServiceRequest;
use serde_json::Value;

use crate::serve::client::{ask, http};
use crate::serve::process::Server;

const KEY: &str = "sk_a_key_that_nobody_may_read";
/// The SHA-256 of [`KEY`], as a configuration has it.
const KEY_HASH: &str = "sha256:4d360d3fb47c165c513ad3430449806a7f019537a1fe237b1a9b8361b65286c1";
/// A word in every body.
const SECRET: &str = "quinquereme";
/// Texts that would reveal internals: the panic's place, our paths, type names, the journal's
/// folder.
const INSIDE: [&str; 12] = [
    ".rs",
    "src/",
    "crates",
    "/usr",
    "/root",
    "journal/",
    "Cause",
    "FaultKind",
    "Error(",
    "error_type",
    "::",
    "backtrace",
];

fn configure(folder: &Path) {
    let tenant = format!("[[tenants]]\nname = \"harbour\"\nkeys = [\"{KEY_HASH}\"]\n");
    fs::write(folder.join("capstan.toml"), tenant).unwrap();
}

/// A request whose body contains the secret beside the message, because commands accept no further
/// words.
fn secret(text: &str) -> ServiceRequest {
    let mut request = ask(text);
    request.payload.payload.insert("note".into(), SECRET.into());
    request
}

struct Client {
    http: reqwest::Client,
    url: String,
    answers: String,
}

impl Client {
    /// Sends a request under a trace id and stores the response.
    async fn send(&mut self, id: &str, request: reqwest::RequestBuilder) -> u16 {
        let response = request.header("x-request-id", id).send().await.unwrap();
        let status = response.status().as_u16();
        self.answers +=
            &format!("{:?}\n{}\n", response.headers().clone(), response.text().await.unwrap());
        status
    }

    fn post(&self, request: &ServiceRequest) -> reqwest::RequestBuilder {
        self.http.post(format!("{}/v1/assist", self.url)).json(request).bearer_auth(KEY)
    }

    fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.get(format!("{}{path}", self.url))
    }
}

/// Causes one failure of each kind, and one success.
async fn misbehave(client: &mut Client) {
    for (id, text) in [
        ("trace-tokens", "/tokens 2"),
        ("trace-panic", "/panic"),
        ("trace-fault", "/fault upstream_auth"),
        ("trace-waits", "/fault timeout --retry-after 60"),
        ("trace-mistake", &format!("/nothing-like-{SECRET}")),
        ("trace-plain", SECRET),
    ] {
        let request = client.post(&secret(text));
        assert_eq!(client.send(id, request).await, 200);
    }
    let json = client.post(&secret("/panic")).header("accept", "application/json");
    assert_eq!(client.send("trace-json", json).await, 500);
    let keyless = client.http.post(format!("{}/v1/assist", client.url)).json(&secret("/tokens 1"));
    assert_eq!(client.send("trace-keyless", keyless).await, 401);
    let wrong = client.post(&secret("/tokens 1")).header("x-tenant-id", "another");
    assert_eq!(client.send("trace-wrong", wrong).await, 403);
    let broken = client.post(&secret("/tokens 1")).body(format!("{{ \"{SECRET}\": "));
    assert_eq!(client.send("trace-broken", broken).await, 400);
    let unknown = client.get("/v1/streams/nothing").bearer_auth(KEY);
    assert_eq!(client.send("trace-unknown", unknown).await, 404);
    let query = client.get("/v1/streams?limit=many").bearer_auth(KEY);
    assert_eq!(client.send("trace-query", query).await, 400);
}

/// The lines with this message and trace id.
fn lines<'a>(log: &'a [Value], message: &str, id: &str) -> Vec<&'a Value> {
    let is_it = |line: &&Value| line["message"] == message && line["span"]["request_id"] == id;
    log.iter().filter(is_it).collect()
}

/// A drained server's log, and what it answered.
async fn log_of_a_bad_day(env: &[(&str, &str)]) -> (Vec<Value>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path());
    let server = Server::start_with(folder.path(), env);
    let mut client = Client { http: http(), url: server.url.clone(), answers: String::new() };
    misbehave(&mut client).await;
    server.signal("TERM");
    let (status, output) = server.wait();
    assert_eq!(status.code(), Some(0), "{output}");
    let log = output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    (log, output, client.answers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_has_a_line_for_every_run_and_every_fault_with_its_request_and_tenant() {
    let (log, output, _) = log_of_a_bad_day(&[]).await;
    for (id, fault) in [
        ("trace-tokens", "none"),
        ("trace-panic", "agent_execution_error"),
        ("trace-fault", "upstream_auth"),
        ("trace-mistake", "invalid_request"),
        ("trace-plain", "none"),
        ("trace-json", "agent_execution_error"),
    ] {
        let ended = lines(&log, "run ended", id);
        assert_eq!(ended.len(), 1, "{id} in\n{output}");
        assert_eq!(
            (&ended[0]["tenant"], &ended[0]["fault"]),
            (&"harbour".into(), &fault.into()),
            "{id}"
        );
        let failed = lines(&log, "attempt failed", id);
        assert_eq!(failed.len(), usize::from(fault != "none"), "{id} in\n{output}");
    }
    assert_eq!(lines(&log, "attempt failed", "trace-waits")[0]["code"], "timeout");
    for (id, code, tenant) in [
        ("trace-json", "agent_execution_error", "harbour".into()),
        ("trace-keyless", "tenant_required", Value::Null),
        ("trace-wrong", "tenant_unauthorized", Value::Null),
        ("trace-broken", "invalid_request", "harbour".into()),
        ("trace-unknown", "stream_not_found", "harbour".into()),
        ("trace-query", "invalid_request", "harbour".into()),
    ] {
        let refused = lines(&log, "refused", id);
        assert_eq!(refused.len(), 1, "{id} in\n{output}");
        assert_eq!(
            (&refused[0]["code"], &refused[0]["span"]["tenant"]),
            (&code.into(), &tenant),
            "{id}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_and_answers_have_no_body_no_key_and_no_internals() {
    let (_, output, answers) = log_of_a_bad_day(&[("RUST_BACKTRACE", "1")]).await;
    assert!(!output.contains(SECRET), "a body in\n{output}");
    for text in [&output, &answers] {
        assert!(!text.contains(KEY), "a key in\n{text}");
    }
    for word in INSIDE {
        assert!(!answers.contains(word), "{word:?} in\n{answers}");
    }
    assert!(!answers.contains("asked to panic"), "the words of a panic in\n{answers}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_is_a_line_with_its_place_and_its_request() {
    let (log, output, _) = log_of_a_bad_day(&[("RUST_BACKTRACE", "1")]).await;
    let panics = lines(&log, "a task panicked", "trace-panic");
    assert_eq!(panics.len(), 1, "{output}");
    let place = panics[0]["place"].as_str().unwrap();
    let (file, line) = place.split_once(".rs:").unwrap();
    assert!(
        file.ends_with("/perform") && line.split(':').all(|n| n.parse::<u32>().is_ok()),
        "{place}"
    );
    assert_eq!(panics[0]["words"], "the demo agent was asked to panic");
    let failed = lines(&log, "attempt failed", "trace-panic");
    assert_eq!(
        (&failed[0]["agent"], &failed[0]["level"]),
        (&"demo".into(), &"WARN".into()),
        "{output}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_debug_mode_the_log_and_the_answer_tell_where_it_broke() {
    let (_, output, answers) = log_of_a_bad_day(&[("CAPSTAN_ENV", "development")]).await;
    assert!(output.contains("perform.rs"), "{output}");
    assert!(answers.contains("asked to panic"), "{answers}");
    assert!(!output.contains(KEY), "not even then:\n{output}");
}

//! Requests that are no run go to the provider of an agent unchanged, with the agent's key and
//! without the client's.

use std::fs;
use std::sync::Arc;

use reqwest::{Body, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

use crate::serve::client::http;
use crate::serve::process::{Server, refused};

/// A request as the provider saw it.
struct Seen {
    head: String,
    body: Vec<u8>,
}

/// A provider that answers by path, and reports bytes as they arrive.
struct Provider {
    url: String,
    seen: mpsc::UnboundedReceiver<Seen>,
    /// The number of received bytes of a body.
    pieces: mpsc::UnboundedReceiver<usize>,
    /// The second half of an answer may be sent.
    release: Arc<Notify>,
}

impl Provider {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let ((told, seen), (came, pieces)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let release = Arc::new(Notify::new());
        let released = release.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, told.clone(), came.clone(), released.clone()));
            }
        });
        Self { url, seen, pieces, release }
    }

    async fn seen(&mut self) -> Seen {
        self.seen.recv().await.unwrap()
    }
}

async fn serve(
    mut stream: TcpStream,
    told: mpsc::UnboundedSender<Seen>,
    came: mpsc::UnboundedSender<usize>,
    released: Arc<Notify>,
) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        let Ok(read @ 1..) = stream.read(&mut buffer).await else { return };
        bytes.extend_from_slice(&buffer[..read]);
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut body = bytes.split_off(end + 4);
    let lower = head.to_lowercase();
    let length = lower.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let length: Option<usize> = length.map(|length| length.trim().parse().unwrap());
    let is_chunked = lower.contains("transfer-encoding: chunked");
    let is_whole = |body: &[u8]| match length {
        Some(length) => body.len() >= length,
        None => !is_chunked || body.ends_with(b"0\r\n\r\n"),
    };
    while !is_whole(&body) {
        let _ = came.send(body.len());
        let Ok(read @ 1..) = stream.read(&mut buffer).await else { return };
        body.extend_from_slice(&buffer[..read]);
    }
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let _ = told.send(Seen { head: lower, body });
    let _ = answer(&mut stream, &path, &released).await;
}

async fn answer(stream: &mut TcpStream, path: &str, released: &Notify) -> std::io::Result<()> {
    let whole = |status: u16, body: &str| {
        format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nset-cookie: a=1\r\n\
             openai-organization: org-1\r\nx-ratelimit-limit-requests: 7\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    match path {
        "/v1/audio/speech" => {
            let head = "HTTP/1.1 200 X\r\ncontent-type: audio/mpeg\r\nconnection: close\r\n\r\none";
            stream.write_all(head.as_bytes()).await?;
            stream.flush().await?;
            released.notified().await;
            stream.write_all(b" two").await
        }
        "/v1/moderations" => {
            let told = r#"{"error":{"message":"Incorrect API key provided: sk-very-secret"}}"#;
            stream.write_all(whole(401, told).as_bytes()).await
        }
        "/v1/completions" => {
            let told = r#"{"error":{"message":"no such model; you sent sk-very-secret"}}"#;
            stream.write_all(whole(404, told).as_bytes()).await
        }
        _ => stream.write_all(whole(200, r#"{"object":"list","data":[1, 2]}"#).as_bytes()).await,
    }
}

/// A gateway with these agents in front of the provider.
fn gateway(
    provider: &Provider,
    tables: &[(&str, &str)],
    more: &str,
) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let table = |(name, more): &(&str, &str)| {
        format!(
            "[[agents]]\nname = {name:?}\nkind = \"openai\"\nmodel = \"model-of-{name}\"\n\
             url = {:?}\nkey_env = \"MY_KEY\"\n{more}\n",
            provider.url
        )
    };
    let tables: String = tables.iter().map(table).collect();
    fs::write(folder.path().join("capstan.toml"), format!("{more}\n{tables}")).unwrap();
    let env = [("MY_KEY", "sk-very-secret"), ("CAPSTAN_LOG", "debug")];
    let server = Server::start_with(folder.path(), &env);
    (folder, server)
}

fn request(server: &Server, method: Method, path: &str) -> RequestBuilder {
    http().request(method, format!("{}{path}", server.url))
}

fn post(server: &Server, path: &str, body: impl Into<Body>) -> RequestBuilder {
    let request = request(server, Method::POST, path);
    request.header("content-type", "application/json").body(body)
}

async fn error(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let body: Value = response.json().await.unwrap();
    (status, body["error"].clone())
}

fn tenant(scopes: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, b"sk-tenant");
    let hash: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "[[tenants]]\nname = \"acme\"\nkeys = [{{ hash = \"sha256:{hash}\", scopes = [{scopes}] }}]"
    )
}

const ALL: &str = "passthrough = [\"audio\", \"completions\", \"embeddings\", \"files\", \
                   \"images\", \"moderations\"]";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_arrives_as_it_is_with_the_agents_key_and_leaves_no_run() {
    let mut provider = Provider::start().await;
    let agents = [(
        "embed",
        "passthrough = [\"embeddings\"]\nquery = { v = \"1\" }\nheaders = { X-Team = \"blue\" }",
    )];
    let (_folder, server) = gateway(&provider, &agents, &tenant("\"run\", \"read\""));
    let body = r#"{ "input":["a"],  "model":"text-embedding-3-small","unknown":1.50 }"#;
    let sent = post(&server, "/v1/embeddings?x=2&v=9", body)
        .bearer_auth("sk-tenant")
        .header("cookie", "session=hush")
        .header("x-api-key", "hush")
        .header("openai-organization", "org-hush")
        .header("openai-beta", "b=v1")
        .header("x-own", "kept");
    let answered = sent.send().await.unwrap();
    let headers = answered.headers().clone();
    assert_eq!(
        (answered.status().as_u16(), &headers["content-type"]),
        (200, &"application/json".parse().unwrap())
    );
    assert_eq!(headers["x-ratelimit-limit-requests"], "7");
    for name in ["set-cookie", "openai-organization"] {
        assert!(!headers.contains_key(name), "{name}");
    }
    assert_eq!(answered.text().await.unwrap(), r#"{"object":"list","data":[1, 2]}"#);
    let seen = provider.seen().await;
    assert_eq!(String::from_utf8_lossy(&seen.body), body, "to the byte");
    assert!(seen.head.starts_with("post /v1/embeddings?v=1&x=2 http/1.1"), "{}", seen.head);
    for line in
        ["authorization: bearer sk-very-secret", "x-team: blue", "x-own: kept", "openai-beta: b=v1"]
    {
        assert!(seen.head.lines().any(|known| known == line), "{line} in {}", seen.head);
    }
    assert!(!seen.head.contains("hush") && !seen.head.contains("sk-tenant"), "{}", seen.head);
    let runs = request(&server, Method::GET, "/v1/streams").bearer_auth("sk-tenant");
    let runs: Value = runs.send().await.unwrap().json().await.unwrap();
    assert_eq!(runs["streams"], json!([]));
    server.signal("TERM");
    let (_, log) = server.wait();
    assert!(!log.contains("very-secret") && !log.contains("hush"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_chooses_the_agent_and_becomes_its_own() {
    let mut provider = Provider::start().await;
    let agents = [
        ("small", "aliases = [\"ada\"]\npassthrough = [\"embeddings\"]"),
        ("large", "passthrough = [\"embeddings\", \"audio\"]"),
    ];
    let (_folder, server) = gateway(&provider, &agents, "");
    for (named, model) in
        [("small", "model-of-small"), ("ada", "model-of-small"), ("large", "model-of-large")]
    {
        let body = format!(r#"{{"input":"model","model":"{named}"}}"#);
        let answered = post(&server, "/v1/embeddings", body).send().await.unwrap();
        assert_eq!(answered.status(), 200, "{named}");
        let body = provider.seen().await.body;
        assert_eq!(
            String::from_utf8_lossy(&body),
            format!(r#"{{"input":"model","model":"{model}"}}"#)
        );
    }
    let unnamed = post(&server, "/v1/embeddings", r#"{"input":"x","model":"other"}"#);
    let (status, told) = error(unnamed.send().await.unwrap()).await;
    assert_eq!((status, &told["details"]["near"]), (404, &json!(["small", "large"])), "{told}");
    let form = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nlarge\r\n--b\r\n\
        Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nSOUND\r\n--b--\r\n";
    let sent = request(&server, Method::POST, "/v1/audio/transcriptions").body(form);
    let sent = sent.header("content-type", "multipart/form-data; boundary=b");
    assert_eq!(sent.send().await.unwrap().status(), 200);
    let seen = String::from_utf8(provider.seen().await.body).unwrap();
    assert_eq!(seen, form.replace("large", "model-of-large"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_flow_both_ways_as_they_come() {
    let mut provider = Provider::start().await;
    let (_folder, server) = gateway(&provider, &[("all", ALL)], "");
    let spoken = post(&server, "/v1/audio/speech", r#"{"input":"Hi","model":"tts-1"}"#);
    let mut spoken = spoken.send().await.unwrap();
    assert_eq!(spoken.headers()["content-type"], "audio/mpeg");
    assert_eq!(&spoken.chunk().await.unwrap().unwrap()[..], b"one", "before the rest was made");
    provider.release.notify_one();
    assert_eq!(&spoken.chunk().await.unwrap().unwrap()[..], b" two");
    provider.seen().await;
    while provider.pieces.try_recv().is_ok() {}

    let (pieces, received) = mpsc::unbounded_channel::<Result<&'static str, std::io::Error>>();
    let stream = futures(received);
    let upload = request(&server, Method::POST, "/v1/files").body(Body::wrap_stream(stream));
    let upload = upload.header("content-type", "multipart/form-data; boundary=b").send();
    let upload = tokio::spawn(upload);
    let field = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nx\r\n--b\r\n\
        Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nONE";
    pieces.send(Ok(field)).unwrap();
    while provider.pieces.recv().await.unwrap() == 0 {}
    assert!(!upload.is_finished(), "half of it is there, half is not made yet");
    pieces.send(Ok("TWO\r\n--b--\r\n")).unwrap();
    drop(pieces);
    assert_eq!(upload.await.unwrap().unwrap().status(), 200);
    let seen = String::from_utf8(provider.seen().await.body).unwrap();
    assert!(seen.contains("ONE") && seen.contains("TWO"), "{seen}");
}

/// The values of a channel, as a stream.
fn futures<T: Send + 'static>(
    received: mpsc::UnboundedReceiver<T>,
) -> impl futures_util::Stream<Item = T> + Send {
    futures_util::stream::unfold(received, |mut received| async {
        let next = received.recv().await?;
        Some((next, received))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disabled_route_says_how_to_enable_it() {
    let provider = Provider::start().await;
    let (_folder, server) = gateway(&provider, &[("a", "passthrough = [\"audio\"]")], "");
    for (method, path, group) in [
        (Method::POST, "/v1/embeddings", "embeddings"),
        (Method::POST, "/v1/images/generations", "images"),
        (Method::GET, "/v1/files", "files"),
        (Method::DELETE, "/v1/files/file-1", "files"),
    ] {
        let (status, told) = error(request(&server, method, path).send().await.unwrap()).await;
        let told = told["message"].as_str().unwrap().to_owned();
        assert!(told.contains(&format!("passthrough = [\"{group}\"]")), "{path}: {told}");
        assert_eq!(status, 404, "{path}");
    }
    let batches = request(&server, Method::GET, "/v1/batches").send().await.unwrap();
    assert_eq!(error(batches).await.1["kind"], "route_not_found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tenants_key_scopes_and_rate_apply() {
    let mut provider = Provider::start().await;
    let limits = "[limits]\nrequests_per_minute = 1\n";
    let scopes = tenant("\"run\"");
    let (_folder, server) = gateway(&provider, &[("all", ALL)], &format!("{limits}{scopes}"));
    let ask = || post(&server, "/v1/embeddings", r#"{"input":"x","model":"m"}"#);
    assert_eq!(ask().send().await.unwrap().status(), 401);
    assert_eq!(ask().bearer_auth("sk-other").send().await.unwrap().status(), 401);
    assert_eq!(ask().bearer_auth("sk-tenant").send().await.unwrap().status(), 200);
    let limited = ask().bearer_auth("sk-tenant").send().await.unwrap();
    assert!(limited.headers().contains_key("retry-after"));
    assert_eq!(error(limited).await.0, 429);
    provider.seen().await;
    assert!(provider.seen.try_recv().is_err(), "one of four reached it");
    drop(server);
    let (_folder, server) = gateway(&provider, &[("all", ALL)], &tenant("\"read\""));
    let reading = request(&server, Method::GET, "/v1/files").bearer_auth("sk-tenant");
    assert_eq!(reading.send().await.unwrap().status(), 403, "it may not start anything");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_the_agents_key_is_not_the_clients_and_tells_no_secret() {
    let mut provider = Provider::start().await;
    let (_folder, server) = gateway(&provider, &[("all", ALL)], "");
    let refused = post(&server, "/v1/moderations", r#"{"input":"x"}"#).send().await.unwrap();
    let (status, told) = error(refused).await;
    assert_eq!((status, &told["kind"]), (500, &json!("upstream_auth")), "{told}");
    let unknown = post(&server, "/v1/completions", r#"{"prompt":"x"}"#).send().await.unwrap();
    let (status, told) = error(unknown).await;
    assert_eq!(told, json!({ "message": "no such model; you sent [key]" }), "in its own words");
    assert_eq!(status, 404);
    for _ in 0..2 {
        provider.seen().await;
    }
    server.signal("TERM");
    let (_, log) = server.wait();
    assert!(!log.contains("very-secret"), "{log}");
    let (_folder, server) =
        gateway(&Provider { url: "http://127.0.0.1:9/v1".into(), ..provider }, &[("all", ALL)], "");
    let nobody = post(&server, "/v1/embeddings", r#"{"input":"x"}"#).send().await.unwrap();
    assert_eq!(error(nobody).await.1["kind"], "upstream_unreachable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_read_and_deleted_and_an_id_leads_nowhere_else() {
    let mut provider = Provider::start().await;
    let (_folder, server) = gateway(&provider, &[("all", ALL)], "");
    for (method, path) in [
        (Method::GET, "/v1/files?purpose=batch"),
        (Method::GET, "/v1/files/file-1"),
        (Method::GET, "/v1/files/file-1/content"),
        (Method::DELETE, "/v1/files/file-1"),
    ] {
        let line = format!("{method} {path} http/1.1").to_lowercase();
        assert_eq!(request(&server, method, path).send().await.unwrap().status(), 200, "{line}");
        let seen = provider.seen().await;
        assert!(seen.head.starts_with(&line), "{line}: {}", seen.head);
        assert!(seen.body.is_empty() && !seen.head.contains("transfer-encoding"), "{}", seen.head);
    }
    for path in
        ["/v1/files/%2e%2e", "/v1/files/%2e%2e/content", "/v1/files/a%2Fb", "/v1/files/a%3Fb"]
    {
        let host = server.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(host).await.unwrap();
        let sent = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut told = String::new();
        stream.read_to_string(&mut told).await.unwrap();
        assert!(told.starts_with("HTTP/1.1 400"), "{path}: {told}");
    }
    assert!(provider.seen.try_recv().is_err(), "none of them reached it");
}

#[test]
fn invalid_passthrough_is_refused_at_the_start() {
    let table = |name: &str, kind: &str, groups: &str| {
        format!(
            "[[agents]]\nname = {name:?}\nkind = {kind:?}\nmodel = \"m\"\n\
             passthrough = [{groups}]\n"
        )
    };
    for (tables, why) in [
        (table("a", "openai", "\"embedings\""), "embedings"),
        (table("a", "anthropic", "\"files\""), "only agents of kind openai"),
        (table("a", "openai", "\"files\"") + &table("b", "openai", "\"files\""), "only one can"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("capstan.toml"), &tables).unwrap();
        let output = refused(folder.path(), &["--listen", "127.0.0.1:0", "--journal", "memory:"]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(why), "{told}");
    }
}

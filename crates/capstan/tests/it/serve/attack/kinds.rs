//! The attacks: what one tenant with a key, and with as many connections as it likes, may think of.

use bytes::Bytes;
use futures_util::future::join_all;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use uuid::Uuid;

use super::{Attack, NOTHING, frames};
use crate::serve::client::{ask, stream_of};

impl Attack<'_> {
    async fn post(&self, request: &Value) -> Response {
        self.post_bytes(request.to_string().into()).await
    }

    async fn post_bytes(&self, body: Bytes) -> Response {
        self.send(Method::POST, "/v1/assist", body).await
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Response {
        let request =
            self.http.request(method, format!("{}{path}", self.server.url)).bearer_auth("loud");
        request.header("content-type", "application/json").body(body).send().await.unwrap()
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.server.url.trim_start_matches("http://")).await.unwrap()
    }

    fn request(text: &str) -> Value {
        serde_json::to_value(ask(text)).unwrap()
    }

    /// Small as text, large as a tree.
    async fn structure(&self) {
        let mut body = Self::request("/tokens 1");
        body["payload"]["payload"]["state"] = json!("STATE");
        // Written by hand: to make it of a tree takes longer than to refuse it.
        let body = body
            .to_string()
            .replace("\"STATE\"", &format!("[{}{{}}]", r#"{"a":{}},"#.repeat(300_000)));
        let body = Bytes::from(body);
        let refused = join_all((0..4).map(|_| self.post_bytes(body.clone()))).await;
        // Refused for what they are, or because its other requests have taken all that they may.
        assert!(refused.iter().all(|response| [413, 429].contains(&response.status().as_u16())));
    }

    /// Runs that hold on to large bodies.
    async fn large_bodies(&self) -> Vec<Response> {
        let text = format!("/hang {}", "x".repeat(3_000_000));
        let one = |_| async { self.post(&Self::request(&text)).await };
        let held = join_all((0..self.bodies).map(one)).await;
        let started = held.iter().filter(|response| response.status() == 200).count();
        assert!((1..self.bodies).contains(&started), "{started} of {} started", self.bodies);
        assert!(held.iter().all(|response| [200, 429].contains(&response.status().as_u16())));
        held
    }

    /// Bodies that are never sent to their end.
    async fn half_bodies(&self) -> Vec<TcpStream> {
        let half = |_| async move {
            let mut socket = self.connect().await;
            let head = "POST /v1/assist HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer \
             loud\r\n\
                content-type: application/json\r\ncontent-length: 4000000\r\n\r\n";
            socket.write_all(head.as_bytes()).await.unwrap();
            // The server may refuse it half-way.
            let _ = socket.write_all(&vec![b' '; 3_000_000]).await;
            socket
        };
        join_all((0..3 * self.bodies).map(half)).await
    }

    /// More runs that wait than may.
    async fn waiting(&self) {
        for _ in 0..30 {
            let mut request = Self::request("/flaky 1 --wait 60");
            request["payload"]["capabilities"] =
                json!({ "supported_events": vec!["E".repeat(64); 64] });
            let _ = self.post(&request).await.bytes().await;
        }
        let list =
            self.http.get(format!("{}/v1/streams?limit=1000", self.server.url)).bearer_auth("loud");
        let list: Value = list.send().await.unwrap().json().await.unwrap();
        let waiting =
            list["streams"].as_array().unwrap().iter().filter(|run| run["state"] == "waiting");
        assert!(waiting.count() <= 20);
    }

    /// A large session that many read at once.
    async fn session(&self) {
        let session = Uuid::now_v7();
        for _ in 0..6 {
            let mut request = Self::request(&format!("/echo {}", "x".repeat(1_500_000)));
            request["context"]["session_id"] = json!(session);
            request["payload"]["session_id"] = json!(session);
            // The session is full at some point, and memory may be.
            let _ = self.post(&request).await.bytes().await;
        }
        let read = |_| async {
            let url = format!("{}/v1/sessions/{session}?limit=1000", self.server.url);
            let page = self.http.get(url).bearer_auth("loud").send().await.unwrap();
            // If no turn was stored, there is no session.
            assert!([200, 404, 429].contains(&page.status().as_u16()), "{}", page.status());
            let _ = page.bytes().await;
        };
        join_all((0..12).map(read)).await;
    }

    /// Connections of HTTP/2 that ask for nothing.
    async fn idle_connections(&self) -> Vec<TcpStream> {
        let open = |_| async move {
            let mut socket = self.connect().await;
            socket.write_all(&frames::opening(&[])).await.unwrap();
            socket
        };
        join_all((0..200).map(open)).await
    }

    /// Everything at once, as long as `held` is held.
    pub(super) async fn all(&self) -> impl Sized {
        let bodies = self.large_bodies().await;
        let held = (self.half_bodies().await, self.idle_connections().await);
        tokio::join!(self.structure(), self.waiting(), self.session());
        (held, bodies)
    }

    /// Bodies that are never sent to their end, over HTTP/2, as much of them as the other side lets
    /// come.
    async fn half_bodies_over_http_2(&self) -> Vec<TcpStream> {
        let head = frames::post("/v1/assist", "loud");
        // As much as a connection's window allows.
        let data = frames::data(1, 16_000).repeat(16);
        let sent = Bytes::from([head, data].concat());
        let half = |sent: Bytes| async move {
            let mut socket = self.connect().await;
            // The server stops reading at some point, so the test does not wait until it has read
            // everything.
            let sending = socket.write_all(&sent);
            let _ = tokio::time::timeout(std::time::Duration::from_millis(500), sending).await;
            socket
        };
        join_all((0..60).map(|_| half(sent.clone()))).await
    }

    /// Large bodies through every other face.
    async fn other_faces(&self) -> Vec<Response> {
        let text = format!("/hang {}", "x".repeat(3_000_000));
        let agui = json!({ "threadId": Uuid::now_v7(), "runId": Uuid::now_v7(), "state": {},
        "tools": [], "context": [],
            "forwardedProps": {}, "messages": [{ "id": "1", "role": "user", "content": text }] });
        let chat = json!({ "model": "demo", "stream": true, "messages": [{ "role": "user",
        "content": text }] });
        let response = json!({ "model": "demo", "stream": true, "input": text });
        let ui = json!({ "id": Uuid::now_v7(), "messages": [{ "id": "1", "role": "user",
        "parts": [{ "type": "text", "text": text }] }] });
        let task = json!({ "jsonrpc": "2.0", "id": 1, "method": "message/stream",
            "params": { "message": { "role": "user", "messageId": Uuid::now_v7(),
            "parts": [{ "kind": "text", "text": text }] } } });
        let posts = [
            ("/v1/ag-ui", agui),
            ("/v1/chat/completions", chat),
            ("/v1/responses", response),
            ("/v1/ai-sdk/chat", ui),
            ("/v1/a2a", task),
        ];
        let post = |(path, body): &(&'static str, Value)| {
            self.send(Method::POST, path, body.to_string().into())
        };
        let held = join_all((0..4).flat_map(|_| posts.iter().map(post))).await;
        let is_told = |response: &Response| [200, 429].contains(&response.status().as_u16());
        assert!(held.iter().all(is_told), "{held:?}");
        held
    }

    /// Small requests, as many as it can send.
    async fn small_bodies(&self) {
        let one = |_| async {
            for _ in 0..20 {
                let _ = self.post(&Self::request("/tokens 1")).await.bytes().await;
            }
        };
        join_all((0..50).map(one)).await;
    }

    /// Every list there is, again and again.
    async fn lists(&self) {
        const LISTS: [&str; 6] = [
            "/v1/streams?limit=1000",
            "/v1/console/runs?limit=200",
            "/v1/console/overview",
            "/v1/a2a/tasks?pageSize=100",
            "/v1/agents",
            "/v1/models",
        ];
        let read = |n: usize| async move {
            for path in LISTS.iter().cycle().skip(n).take(12) {
                let list = self.send(Method::GET, path, Bytes::new()).await;
                assert!(
                    [200, 429, 503].contains(&list.status().as_u16()),
                    "{path}: {}",
                    list.status()
                );
                let _ = list.bytes().await;
            }
        };
        join_all((0..50).map(read)).await;
    }

    /// Lists that the client requests and never reads.
    async fn unread_lists(&self) -> Vec<TcpStream> {
        let ask = |_| async move {
            let mut socket = self.connect().await;
            let head = "GET /v1/streams?limit=1000 HTTP/1.1\r\nhost: localhost\r\nauthorization: \
             Bearer loud\r\n\r\n";
            // The server answers one after the other, as the client reads; it reads none.
            socket.write_all(head.repeat(20).as_bytes()).await.unwrap();
            socket
        };
        join_all((0..200).map(ask)).await
    }

    /// A long stream that many watch, in either version of HTTP, and none reads.
    async fn unread_streams(&self) -> Vec<TcpStream> {
        let stream = self.post(&Self::request("/tokens 20000")).await;
        let path = format!("/v1/streams/{}", stream_of(&stream));
        let _ = stream.bytes().await;
        let watch = |n: usize| {
            let path = path.clone();
            async move {
                let mut socket = self.connect().await;
                let one = format!(
                    "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer loud\r\n\r\n"
                );
                let asked = if n.is_multiple_of(2) {
                    one.into_bytes()
                } else {
                    frames::gets(&path, "loud", 50)
                };
                socket.write_all(&asked).await.unwrap();
                socket
            }
        };
        join_all((0..100).map(watch)).await
    }

    /// Heads that never end.
    async fn half_heads(&self) -> Vec<TcpStream> {
        let open = |n: usize| async move {
            let mut socket = self.connect().await;
            socket.write_all(b"POST /v1/assist HTTP/1.1\r\nhost: localhost\r\n").await.unwrap();
            for _ in 0..n % 16 {
                let _ =
                    socket.write_all(format!("x-{n}: {}\r\n", "x".repeat(400)).as_bytes()).await;
                tokio::task::yield_now().await;
            }
            socket
        };
        join_all((0..200).map(open)).await
    }

    /// Tickets without end.
    async fn tickets(&self) {
        let stream = self.post(&Self::request("/tokens 1")).await;
        let path = format!("/v1/streams/{}/ticket", stream_of(&stream));
        let _ = stream.bytes().await;
        let one = |_| async {
            for _ in 0..20 {
                let ticket = self.send(Method::POST, &path, Bytes::new()).await;
                assert_eq!(ticket.status(), 200);
            }
        };
        join_all((0..50).map(one)).await;
    }

    /// Makes one attack, and releases what it holds.
    pub(super) async fn once(&self, name: &str) {
        match name {
            NOTHING => {
                return (0..1_000_000).for_each(|n| {
                    std::hint::black_box(n);
                });
            }
            "structure" => self.structure().await,
            "large bodies" => drop(self.large_bodies().await),
            "half-sent bodies" => drop(self.half_bodies().await),
            "half-sent bodies over HTTP/2" => drop(self.half_bodies_over_http_2().await),
            "large bodies through other faces" => drop(self.other_faces().await),
            "small bodies" => self.small_bodies().await,
            "lists" => self.lists().await,
            "unread lists" => drop(self.unread_lists().await),
            "unread streams" => drop(self.unread_streams().await),
            "half-sent heads" => drop(self.half_heads().await),
            "tickets" => self.tickets().await,
            "waiting runs" => self.waiting().await,
            "a large session" => self.session().await,
            "idle connections" => drop(self.idle_connections().await),
            _ => drop(self.all().await),
        }
        self.clear().await;
    }

    /// Stops what hangs, so that the next round begins as the first did.
    pub(super) async fn clear(&self) {
        let list =
            self.http.get(format!("{}/v1/streams?limit=1000", self.server.url)).bearer_auth("loud");
        let list: Value = list.send().await.unwrap().json().await.unwrap();
        for run in list["streams"].as_array().unwrap().iter().filter(|run| run["state"] != "closed")
        {
            let url =
                format!("{}/v1/streams/{}", self.server.url, run["stream_id"].as_str().unwrap());
            let _ = self.http.delete(url).bearer_auth("loud").send().await;
        }
    }
}

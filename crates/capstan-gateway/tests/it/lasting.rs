//! Bodies that last, on the wire: what a connection is good for while one is sent, and afterwards.

use crate::common::{Server, ask, start};
use capstan_gateway::Settings;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Asks for a run over a connection of its own.
fn request(server: &Server, question: &str, more: &str) -> String {
    let body = serde_json::to_string(&ask(question)).unwrap();
    let host = server.url.strip_prefix("http://").unwrap();
    let length = body.len();
    format!(
        "POST /v1/assist HTTP/1.1\r\nhost: {host}\r\ncontent-type: \
         application/json\r\ncontent-length: {length}\r\n{more}\r\n{body}"
    )
}

fn health(server: &Server) -> String {
    format!("GET /livez HTTP/1.1\r\nhost: {}\r\n\r\n", server.url.strip_prefix("http://").unwrap())
}

struct Wire(TcpStream);

impl Wire {
    async fn to(server: &Server) -> Self {
        Self(TcpStream::connect(server.url.strip_prefix("http://").unwrap()).await.unwrap())
    }

    async fn say(&mut self, what: &str) {
        self.0.write_all(what.as_bytes()).await.unwrap();
    }

    /// What comes until `end` has come.
    async fn until(&mut self, end: &str) -> String {
        let mut heard = String::new();
        while !heard.ends_with(end) {
            heard.push(char::from(self.0.read_u8().await.unwrap()));
        }
        heard
    }

    async fn rest(mut self) -> String {
        let mut heard = String::new();
        self.0.read_to_string(&mut heard).await.unwrap();
        heard
    }
}

const END: &str = "\r\n0\r\n\r\n";

#[tokio::test]
async fn a_connection_serves_on_after_a_body_that_lasts() {
    let server = start(Settings::default()).await;
    let mut wire = Wire::to(&server).await;
    for _ in 0..3 {
        wire.say(&request(&server, "/tokens 3", "connection: keep-alive\r\n")).await;
        let answer = wire.until(END).await;
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("\"op\":\"CLOSE\""),
            "{answer}"
        );
        wire.say(&health(&server)).await;
        let head = wire.until("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let length: usize = head
            .split("content-length: ")
            .nth(1)
            .unwrap()
            .split('\r')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        wire.0.read_exact(&mut vec![0; length]).await.unwrap();
    }
    server.stop().await;
}

#[tokio::test]
async fn a_pipelined_request_is_answered_after_the_body() {
    let server = start(Settings::default()).await;
    let mut wire = Wire::to(&server).await;
    let last = health(&server).replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    wire.say(&(request(&server, "/tokens 3", "") + &request(&server, "/tokens 4", "") + &last))
        .await;
    let answers = wire.rest().await;
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 3, "{answers}");
    assert_eq!(answers.matches("\"op\":\"CLOSE\"").count(), 2, "{answers}");
    assert_eq!(answers.matches(END).count(), 2, "{answers}");
    server.stop().await;
}

#[tokio::test]
async fn a_connection_that_is_to_close_closes_behind_its_body() {
    let server = start(Settings::default()).await;
    let mut wire = Wire::to(&server).await;
    wire.say(&request(&server, "/tokens 3", "connection: close\r\n")).await;
    let answer = wire.rest().await;
    assert!(answer.contains("connection: close") && answer.ends_with(END), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn a_connection_whose_server_drains_closes_behind_its_body() {
    let server = start(Settings::default()).await;
    let mut wire = Wire::to(&server).await;
    wire.say(&request(&server, "/tokens 3", "")).await;
    wire.until(END).await;
    server.stop().await;
    assert_eq!(wire.rest().await, "", "nothing more is said");
}

/// A body that nobody has read must not be taken for the next request: a proxy would give its
/// answer to somebody else.
#[tokio::test]
async fn the_rest_of_a_request_body_is_no_request() {
    let server = start(Settings::default()).await;
    let response = server.post(&ask("/tokens 3")).await;
    let stream = crate::common::stream_of(&response);
    response.bytes().await.unwrap();
    let hidden = health(&server);
    let host = server.url.strip_prefix("http://").unwrap();
    let length = hidden.len();
    let mut wire = Wire::to(&server).await;
    wire.say(&format!(
        "GET /v1/streams/{stream} HTTP/1.1\r\nhost: {host}\r\ncontent-length: \
         {length}\r\n\r\n{hidden}"
    ))
    .await;
    let mut answers = wire.until(END).await;
    wire.0.shutdown().await.unwrap();
    answers += &wire.rest().await;
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 1, "{answers}");
    server.stop().await;
}

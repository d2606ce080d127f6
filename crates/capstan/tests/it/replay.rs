//! `capstan replay` as its users meet it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use capstan_protocol::{Close, Cursor, Payload, StreamPacket, Timestamp, sse};
use tempfile::TempDir;
use uuid::Uuid;

fn replay() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command.arg("replay");
    command
}

/// Three packets, a fifth of a second apart, as a server sent them.
fn recorded(stream: Uuid) -> Vec<u8> {
    let mut bytes = Vec::new();
    sse::encode_opening(&Cursor::start(stream), 500, &mut bytes);
    let payloads = [
        Payload::Delta("hello ".into()),
        Payload::Delta("there".into()),
        Payload::Close(Close::Reason("completed".into())),
    ];
    for (seq, payload) in (1..).zip(payloads) {
        let t = Timestamp::from_micros(1_700_000_000_000_000 + seq as i64 * 200_000);
        sse::encode_packet(&StreamPacket { stream_id: stream, seq, t, payload }, &mut bytes);
    }
    bytes
}

/// A server of this file, ended with the test.
struct Server {
    child: Child,
    address: String,
    _folder: TempDir,
}

impl Server {
    fn start(bytes: &[u8], args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.sse");
        std::fs::write(&file, bytes).unwrap();
        let mut child = replay()
            .arg(&file)
            .args(["--listen", "127.0.0.1:0"])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix("replay listening on http://").unwrap();
        let address = address.split(": ").next().unwrap().to_owned();
        Self { child, address, _folder: folder }
    }

    fn ask(&self, head: &str) -> String {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        let request = format!("{head}\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address);
        socket.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of a chunked answer.
fn body(answer: &str) -> String {
    let chunked = answer.split_once("\r\n\r\n").unwrap().1;
    let lines = chunked.split("\r\n").collect::<Vec<_>>();
    lines.chunks(2).filter_map(|pair| pair.get(1)).copied().collect()
}

#[test]
fn a_run_that_was_taken_home_is_served_again_packet_by_packet() {
    let stream = Uuid::now_v7();
    let file = recorded(stream);
    let server = Server::start(&file, &["--speed", "0"]);
    let watched = server.ask(&format!("GET /v1/streams/{stream} HTTP/1.1"));
    assert!(watched.contains("content-type: text/event-stream"), "{watched}");
    assert_eq!(body(&watched).as_bytes(), file, "byte for byte");
    let posted = server.ask("POST /v1/assist HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}");
    assert_eq!(posted.matches("event: stream.packet").count(), 3, "{posted}");
    let after = |seq: u64| {
        server.ask(&format!("GET /v1/streams/{stream} HTTP/1.1\r\nlast-event-id: {stream}:{seq}"))
    };
    assert_eq!(after(2).matches("event: stream.packet").count(), 1);
    assert!(after(3).starts_with("HTTP/1.1 204"), "there is no more");
    let other = server.ask(&format!("GET /v1/streams/{} HTTP/1.1", Uuid::now_v7()));
    assert!(other.starts_with("HTTP/1.1 404") && other.contains("stream_not_found"), "{other}");
}

#[test]
fn a_file_that_is_no_run_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.sse");
    for (text, why) in [
        ("", "there is no event"),
        ("data: {\"type\":\"RUN_STARTED\"}\n\n", "event 1 is no packet"),
        ("<html>", "there is no event"),
    ] {
        std::fs::write(&file, text).unwrap();
        let output = replay().arg(&file).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(why) && told.contains("run.sse"), "{told}");
    }
    let missing = replay().arg(folder.path().join("nothing")).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    let output = replay().arg(&file).args(["--speed", "-1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

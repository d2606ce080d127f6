//! A reader that takes nothing of what is there for it is cut, and goes on from its cursor. Nobody
//! else is cut.

use std::io::ErrorKind;
use std::time::Duration;

use crate::common::{Server, ask, journal, start_on};
use capstan_gateway::{Settings, Timeouts};
use serde_json::Value;
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const SOON: Duration = Duration::from_millis(30);
/// Some 5 MB: more than the kernel holds for a connection.
const LONG: &str = "/tokens 25000";
/// Only a server that never cuts needs the guard.
const GUARD: Duration = Duration::from_secs(30);

/// A server that is patient, and one over the same journal that is not.
async fn servers() -> (Server, Server) {
    let journal = journal();
    let impatient = Timeouts { stalled_reader: SOON, ..Timeouts::default() };
    (
        start_on(journal.clone(), Settings::default()).await,
        start_on(journal, Settings { timeouts: impatient, ..Settings::default() }).await,
    )
}

/// A run that is over: its path, and its whole body.
async fn long_run(server: &Server, text: &str) -> (String, Vec<u8>) {
    let response = server.post(&ask(text)).await;
    let path = format!("/v1/streams/{}", crate::common::stream_of(&response));
    (path, response.bytes().await.unwrap().to_vec())
}

/// Sends these bytes and reads nothing.
async fn send(server: &Server, bytes: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).await.unwrap();
    SockRef::from(&socket).set_recv_buffer_size(16 * 1024).unwrap();
    socket.write_all(bytes).await.unwrap();
    socket
}

/// Over HTTP/2 an answer and its connection may both be found to stand still.
async fn has_cut_one(server: &Server) {
    let metrics = || async { server.get("/metrics").await.text().await.unwrap() };
    let cut = async { while metrics().await.contains("capstan_stalled_readers_total 0\n") {} };
    tokio::time::timeout(GUARD, cut).await.expect("the reader is cut");
}

/// How the last viewer of a run left, once it has, as the console tells it.
async fn parting(server: &Server, path: &str) -> String {
    let path = path.replace("/v1/streams/", "/v1/console/runs/");
    let left = async {
        loop {
            let told: Value = server.get(&path).await.json().await.unwrap();
            let last = told["viewers"].as_array().unwrap().last().cloned().unwrap_or_default();
            if let Some(ended) = last["ended"].as_str() {
                return ended.to_owned();
            }
        }
    };
    tokio::time::timeout(GUARD, left).await.expect("it leaves")
}

/// The cursor of the last whole frame, and where that frame ends.
fn last_whole_frame(body: &[u8]) -> (String, usize) {
    let end = body.windows(2).rposition(|pair| pair == b"\n\n").unwrap() + 2;
    let text = std::str::from_utf8(&body[..end]).unwrap();
    let cursor = text.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap();
    (cursor.to_owned(), end)
}

fn after_opening(body: &[u8]) -> &[u8] {
    &body[body.windows(2).position(|pair| pair == b"\n\n").unwrap() + 2..]
}

#[tokio::test]
async fn a_closed_reader_is_distinguished_from_a_stalled_one() {
    let (patient, _impatient) = servers().await;
    let (path, _) = long_run(&patient, LONG).await;
    assert_eq!(parting(&patient, &path).await, "done");
    let request = format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n");
    let mut viewer = send(&patient, request.as_bytes()).await;
    viewer.read_exact(&mut [0; 1024]).await.unwrap();
    drop(viewer);
    assert_eq!(parting(&patient, &path).await, "left");
}

/// HTTP/1.0 has no chunks: a body is over when the connection is, so that only a reset tells a cut
/// from an end.
#[tokio::test]
async fn a_reader_that_takes_nothing_is_cut_and_goes_on_from_its_cursor_with_the_same_bytes() {
    let (patient, impatient) = servers().await;
    let (path, whole) = long_run(&patient, LONG).await;
    let mut socket =
        send(&impatient, format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").as_bytes())
            .await;
    has_cut_one(&impatient).await;
    assert_eq!(parting(&impatient, &path).await, "stalled");
    let mut answer = Vec::new();
    let end = socket.read_to_end(&mut answer).await;
    assert_eq!(
        end.unwrap_err().kind(),
        ErrorKind::ConnectionReset,
        "the body does not look finished"
    );
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let mut body = answer.split_off(head);
    assert!(body.len() < whole.len(), "it was cut");

    let (cursor, end) = last_whole_frame(&body);
    body.truncate(end);
    let rest = crate::common::client()
        .get(format!("{}{path}", patient.url))
        .header("last-event-id", cursor);
    body.extend_from_slice(after_opening(&rest.send().await.unwrap().bytes().await.unwrap()));
    assert!(body == whole, "{} bytes instead of {}", body.len(), whole.len());
    impatient.stop().await;
    patient.stop().await;
}

#[tokio::test]
async fn over_http_2_the_connection_is_cut() {
    let (patient, impatient) = servers().await;
    let (path, _) = long_run(&patient, LONG).await;
    let _socket = send(&impatient, &http_2_get(&path)).await;
    has_cut_one(&impatient).await;
    assert_eq!(parting(&impatient, &path).await, "stalled");
    impatient.stop().await;
    patient.stop().await;
}

/// The socket takes everything: only its own window holds an answer up.
#[tokio::test]
async fn over_http_2_an_answer_that_gets_no_window_is_given_up_and_its_connection_lives() {
    let (patient, impatient) = servers().await;
    let (path, _) = long_run(&patient, LONG).await;
    let mut socket = send(&impatient, &crate::common::http2::gets(&path, "", 1)).await;
    has_cut_one(&impatient).await;
    let mut seen = Vec::new();
    let is_reset = |seen: &[u8]| {
        const RST_STREAM: u8 = 3;
        crate::common::http2::read(seen)
            .iter()
            .any(|(kind, stream, _)| (*kind, *stream) == (RST_STREAM, 1))
    };
    while !is_reset(&seen) {
        assert!(socket.read_buf(&mut seen).await.unwrap() > 0, "the connection is not closed");
    }
    impatient.stop().await;
    patient.stop().await;
}

/// A request over HTTP/2 that allows the other side to send as much as it likes.
fn http_2_get(path: &str) -> Vec<u8> {
    const MOST: u32 = (1 << 31) - 1;
    /// A window's size before it is raised.
    const INITIAL: u32 = 65_535;
    const SETTINGS: u8 = 4;
    const WINDOW_UPDATE: u8 = 8;
    const HEADERS: u8 = 1;
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let text = |index: u8, value: &str| {
        [&[index, u8::try_from(value.len()).unwrap()], value.as_bytes()].concat()
    };
    // GET, http, then :path and :authority as they are.
    let headers = [vec![0x82, 0x86], text(0x04, path), text(0x01, "localhost")].concat();
    let settings = [&[0, 4][..], &MOST.to_be_bytes()].concat();
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &settings),
        frame(WINDOW_UPDATE, 0, 0, &(MOST - INITIAL).to_be_bytes()),
        frame(HEADERS, 0x05, 1, &headers),
    ]
    .concat()
}

#[tokio::test]
async fn a_viewer_of_a_quiet_stream_is_never_cut() {
    let timeouts = Timeouts {
        stalled_reader: Duration::from_millis(1),
        heartbeat: SOON,
        drain: Duration::ZERO,
        ..Timeouts::default()
    };
    let server = start_on(journal(), Settings { timeouts, ..Settings::default() }).await;
    let mut viewer = server.post(&ask("/hang")).await;
    let mut body = Vec::new();
    while !body.ends_with(b"\n\n:\n:\n:\n") {
        body.extend_from_slice(&viewer.chunk().await.unwrap().unwrap());
    }
    let metrics = server.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("capstan_stalled_readers_total 0\n"), "{metrics}");
    drop(viewer);
    server.stop().await;
}

/// It takes a little at a time, and needs far longer in all than one is waited for that takes
/// nothing. Time has to pass here: the server's patience and the reader's pace are both real, ten
/// to one, so that a busy machine does not matter.
#[tokio::test]
async fn a_reader_that_is_slow_is_never_cut() {
    const PATIENCE: Duration = Duration::from_secs(1);
    let timeouts = Timeouts { stalled_reader: PATIENCE, ..Timeouts::default() };
    let server = start_on(journal(), Settings { timeouts, ..Settings::default() }).await;
    let (path, whole) = long_run(&server, "/tokens 8000").await;
    let mut socket =
        send(&server, format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").as_bytes()).await;
    let mut pace = tokio::time::interval(PATIENCE / 10);
    let (mut answer, mut ticks) = (Vec::new(), 0);
    while (&mut socket).take(50_000).read_to_end(&mut answer).await.unwrap() > 0 {
        pace.tick().await;
        ticks += 1;
    }
    assert!(ticks > 20, "{ticks} tenths of the server's patience: that is not slow");
    assert!(answer.ends_with(&whole), "{} bytes instead of {}", answer.len(), whole.len());
    server.stop().await;
}

//! A reader that does not read costs its connection, not the stream: measured from outside, on a process of its own.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, serve};
use capstan_journal::{Durability, Journal, TailLimits, open};
use capstan_protocol::{AgentRequest, ServiceRequest, SessionContext, UserContext};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use uuid::Uuid;

const READERS: usize = 1_000;
const STREAMS: usize = 4;
/// With frames of some 240 bytes: 60 MB over all streams.
const DELTAS: usize = 65_000;
const MAX_GROWTH: u64 = 50 * 1024 * 1024;
/// Tells the child where its journal is.
const FOLDER: &str = "CAPSTAN_TEST_MEMORY_FOLDER";

#[test]
fn a_thousand_readers_that_never_read_cost_less_than_50_mb_while_60_mb_are_written() {
    allow_many_files();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    // What the journal itself holds once it flushes and compacts is not the readers' doing; it is all there by the
    // second time.
    server.write(0);
    server.write(0);
    let before = server.resident();
    let (readers, bytes) = server.write(READERS);
    let after = server.resident();
    assert!(bytes > 60_000_000, "{bytes} bytes were written");
    let growth = after.saturating_sub(before);
    println!("{} readers: {before} -> {after} bytes", readers.len());
    assert!(growth < MAX_GROWTH, "{growth} bytes for {READERS} readers");
}

/// The other process: this test binary again. Without the variable it is nothing.
#[test]
fn serves_when_told_to() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    allow_many_files();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("\naddress {}", listener.local_addr().unwrap());
        let store = open(&format!("disk:{folder}"), Durability::Process).unwrap();
        let gateway = Gateway::new(Journal::new(store, TailLimits::default())).agent("talker", Talker);
        serve(gateway, vec![listener], std::future::pending()).await.unwrap();
    });
}

struct Talker;

#[async_trait]
impl Agent for Talker {
    async fn run(&self, _: Turn, out: &mut Writer) -> Outcome {
        for _ in 0..DELTAS {
            out.delta("lorem ipsum dolor sit amet, consectetur").await?;
        }
        Ok(())
    }
}

struct Server {
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(folder: &std::path::Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "serves_when_told_to", "--nocapture"])
            .env(FOLDER, folder)
            // What is freed goes back at once, so that what is measured is what is held.
            .env("MALLOC_ARENA_MAX", "1")
            .env("MALLOC_MMAP_THRESHOLD_", "131072")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address =
            lines.map_while(Result::ok).find_map(|line| Some(line.strip_prefix("address ")?.to_owned()));
        Self { child, address: address.unwrap() }
    }

    /// Writes 60 MB while `stalled` readers attach that never read; their connections, and how much was written.
    fn write(&self, stalled: usize) -> (Vec<TcpStream>, usize) {
        let mut writers: Vec<_> = (0..STREAMS).map(|_| BufReader::new(self.post())).collect();
        let streams: Vec<String> = writers.iter_mut().map(stream_id).collect();
        let watch = |stream: &String| self.send(&format!("GET /v1/streams/{stream}"), "");
        let readers = streams.iter().cycle().take(stalled).map(watch).collect();
        let bytes = writers.iter_mut().map(|writer| writer.read_to_end(&mut Vec::new()).unwrap()).sum();
        self.wait_for_the_runs_to_be_over();
        (readers, bytes)
    }

    fn wait_for_the_runs_to_be_over(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let mut metrics = String::new();
            self.send("GET /metrics", "").read_to_string(&mut metrics).unwrap();
            if metrics.contains("capstan_active_runs 0") {
                return;
            }
            assert!(Instant::now() < deadline, "{metrics}");
            std::thread::yield_now();
        }
    }

    fn post(&self) -> TcpStream {
        let session = Uuid::now_v7();
        let context = SessionContext::new(session, UserContext::new("u"));
        let request = ServiceRequest::new(context, AgentRequest::query(session, "talk"));
        self.send("POST /v1/assist", &serde_json::to_string(&request).unwrap())
    }

    fn send(&self, line: &str, body: &str) -> TcpStream {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        let head = "host: localhost\r\nconnection: close\r\ncontent-type: application/json";
        let length = body.len();
        write!(socket, "{line} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        socket
    }

    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

/// Reads a response's head; the stream that it names.
fn stream_id(response: &mut BufReader<TcpStream>) -> String {
    let head = response.lines().map(Result::unwrap).take_while(|line| !line.is_empty());
    let ids = head.filter_map(|line| Some(line.strip_prefix("x-stream-id: ")?.to_owned()));
    ids.last().unwrap()
}

/// Every reader is an open file on both sides.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
}

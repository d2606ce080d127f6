//! What readers, bodies, sessions and answers cost, however large they are: measured on a process
//! of its own.
//!
//! A program of its own, because it counts what its global allocator gives out.
//!
//! What is measured is what the server holds, by a counting allocator. What the process has
//! resident depends on when the C library gives back what was freed, and so on the moment.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing
)]

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cap::Cap;
use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
use capstan_demo::Demo;
use capstan_gateway::{Gateway, Limits, Settings, Timeouts, serve};
use capstan_journal::{Claim, Journal, Quota, Run, RunState, StoredTurn, TailLimits, Transition};
use capstan_protocol::{AgentRequest, ServiceRequest, SessionContext, Timestamp, UserContext};
use capstan_stores::{Durability, open};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const STREAMS: usize = 4;
/// Streams that nobody reads.
const MUMBLERS: usize = 4;
#[global_allocator]
static ALLOCATOR: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

/// Tells the child where its journal is.
const FOLDER: &str = "CAPSTAN_TEST_MEMORY_FOLDER";
/// And how many bytes a tenant's requests may take; without, only what is measured is limited.
const IN_FLIGHT: &str = "CAPSTAN_TEST_MEMORY_IN_FLIGHT";
/// And how many an answer in one object may have.
const WHOLE: &str = "CAPSTAN_TEST_MEMORY_WHOLE";
const MB: u64 = 1024 * 1024;

#[test]
fn readers_that_never_read_cost_little_however_much_is_written() {
    watch_idly(200, 12, 16 * MB);
}

#[test]
#[ignore = "soak: long"]
fn soak_a_thousand_readers_that_never_read_cost_less_than_50_mb_while_60_mb_are_written() {
    watch_idly(1_000, 60, 50 * MB);
}

/// So many readers who begin and never read on, while so many megabytes are written, in so many
/// bytes at most.
fn watch_idly(readers: usize, megabytes: usize, most: u64) {
    allow_many_files();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    // Frames have some 240 bytes.
    let deltas = (megabytes * 4_334 / STREAMS).to_string();
    let mut writers: Vec<_> =
        (0..STREAMS).map(|_| BufReader::new(server.ask("talker", &deltas))).collect();
    let streams: Vec<String> = writers.iter_mut().map(stream_id).collect();
    let readers: Vec<_> =
        streams.iter().cycle().take(readers).map(|stream| server.watch(stream)).collect();
    let before = server.held();
    server.post("starter").read_to_end(&mut Vec::new()).unwrap();
    let bytes: usize =
        writers.iter_mut().map(|writer| writer.read_to_end(&mut Vec::new()).unwrap()).sum();
    server.wait_for_the_runs_to_be_over();
    let after = server.held();
    assert!(bytes > megabytes * 1_000_000, "{bytes} bytes were written");
    let growth = after.saturating_sub(before);
    println!("{} readers: {before} -> {after} bytes", readers.len());
    assert!(growth < most, "{growth} bytes for {} readers", readers.len());
}

/// A run that may be repeated is compared with what it said, so something of each packet is
/// remembered.
#[test]
fn long_unread_streams_take_a_few_bytes_per_packet() {
    mumble(50_000, 2);
}

#[test]
#[ignore = "soak: long"]
fn soak_streams_of_a_million_packets_take_a_few_bytes_a_packet() {
    mumble(300_000, 8);
}

/// Streams of so many packets that nobody reads, for so many megabytes beside what a packet may
/// take.
fn mumble(packets: usize, megabytes: u64) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    // What is made once is made before.
    server.post("starter").read_to_end(&mut Vec::new()).unwrap();
    let before = server.held();
    let unread: Vec<_> =
        (0..MUMBLERS).map(|_| server.ask("mumbler", &packets.to_string())).collect();
    server.post("listener").read_to_end(&mut Vec::new()).unwrap();
    let after = server.held();
    let packets = (unread.len() * packets) as u64;
    let growth = after.saturating_sub(before);
    println!("{packets} packets: {before} -> {after} bytes");
    assert!(growth < megabytes * MB + 8 * packets, "{growth} bytes for {packets} packets");
}

/// JSON that is small as text and large as a tree.
fn hostile() -> String {
    format!("[{}{{}}]", r#"{"a":{}},"#.repeat(30_000))
}

/// Wherever it stands in a body: its text may be kept twice, as what the agent is given of it and
/// as the payload.
#[test]
fn a_held_run_stores_its_requests_text_and_no_tree() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let (tree, id) = (hostile(), Uuid::now_v7());
    let call = |arguments: &str| {
        format!(
            r#"{{"role":"assistant","parts":[{{"type":"tool_call","id":"c","name":"f","arguments":{arguments}}}]}}"#
        )
    };
    let conversation = |arguments: &str, response: &str| {
        let user = r#"{"role":"user","parts":[{"type":"text","content":"Hi"}]}"#;
        let result = format!(
            r#"{{"role":"tool","parts":[{{"type":"tool_call_response","id":"c","response":{response}}}]}}"#
        );
        format!(r#""messages":[{user},{},{result}]"#, call(arguments))
    };
    let cap = |payload: String| {
        let context = SessionContext::new(id, UserContext::new("u"));
        let request = ServiceRequest::new(context, AgentRequest::query(id, "PAYLOAD"));
        let body = serde_json::to_string(&request).unwrap();
        ("assist", body.replace(r#""query":"PAYLOAD""#, &payload))
    };
    let agui = |rest: String| {
        let user = r#"{"id":"1","role":"user","content":"Hi"}"#;
        (
            "ag-ui",
            format!(
                r#"{{"threadId":"t","runId":"{}","messages":[{user}],{rest}}}"#,
                Uuid::now_v7()
            ),
        )
    };
    let bodies = [
        cap(format!(r#""query":"Hi","anything":{tree}"#)),
        cap(format!(r#""query":"Hi","state":{tree}"#)),
        cap(conversation("{}", &tree)),
        cap(conversation(&format!(r#"{{"a":{tree}}}"#), "1")),
        cap(format!(r#""query":"{}""#, "word ".repeat(60_000))),
        agui(format!(r#""state":{tree}"#)),
        agui(format!(r#""forwardedProps":{tree}"#)),
    ];
    for (n, (face, body)) in bodies.iter().enumerate() {
        let before = server.held();
        let mut run = BufReader::new(server.send(&format!("POST /v1/agents/talker/{face}"), body));
        stream_id(&mut run);
        let kept = server.held().saturating_sub(before);
        println!("body {n}: {} bytes, {kept} kept", body.len());
        assert!(kept < 2 * body.len() as u64 + 150_000, "body {n}: {kept} of {}", body.len());
    }
}

/// A body of CAP with this in its payload.
fn cap_body(payload: &str) -> String {
    let id = Uuid::now_v7();
    let context = SessionContext::new(id, UserContext::new("u"));
    let request = ServiceRequest::new(context, AgentRequest::query(id, "PAYLOAD"));
    serde_json::to_string(&request).unwrap().replace(r#""query":"PAYLOAD""#, payload)
}

fn status(response: TcpStream) -> String {
    BufReader::new(response).lines().next().unwrap().unwrap()
}

#[test]
fn bodies_that_are_all_structure_are_refused_and_nothing_of_them_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::limited(folder.path(), 64 * MB);
    let tree = format!("[{}{{}}]", r#"{"a":{}},"#.repeat(380_000));
    let before = server.held();
    for _ in 0..4 {
        let body = cap_body(&format!(r#""query":"Hi","anything":{tree}"#));
        let answer = status(server.send("POST /v1/agents/talker/assist", &body));
        assert!(answer.contains(" 413 "), "{answer}");
    }
    let growth = server.held().saturating_sub(before);
    println!("4 bodies of {} bytes: {growth} kept", tree.len());
    assert!(growth < MB, "{growth} bytes");
}

#[test]
fn runs_and_half_sent_bodies_take_no_more_memory_than_they_may() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::limited(folder.path(), 40 * MB);
    let before = server.held();
    // Bodies that never end: each has announced four times what it sends.
    let half: Vec<_> = (0..60)
        .map(|_| {
            let mut socket = TcpStream::connect(&server.address).unwrap();
            let head =
                "host: localhost\r\ncontent-type: application/json\r\ncontent-length: 4000000";
            write!(socket, "POST /v1/agents/talker/assist HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
            socket.write_all(&vec![b' '; 1_000_000]).unwrap();
            socket
        })
        .collect();
    let runs: Vec<_> = (0..20)
        .map(|_| {
            let body = cap_body(&format!(r#""query":"{}""#, "word ".repeat(200_000)));
            let mut answer = BufReader::new(server.send("POST /v1/agents/talker/assist", &body));
            let mut line = String::new();
            answer.read_line(&mut line).unwrap();
            (line, answer)
        })
        .collect();
    let growth = server.held().saturating_sub(before);
    let started = runs.iter().filter(|(line, _)| line.contains(" 200 ")).count();
    assert!(runs.iter().all(|(line, _)| line.contains(" 200 ") || line.contains(" 429 ")));
    println!("{} half-sent bodies, {started} of {} runs: {growth} held", half.len(), runs.len());
    assert!(started < runs.len(), "all of them would take 60 MB");
    assert!(growth < 50 * MB, "{growth} bytes");
}

/// A session of so many turns, written by a process before.
fn long_session(folder: &std::path::Path, session: &str, turns: usize, turn_bytes: usize) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = open(&format!("disk:{}", folder.display()), Durability::Process).unwrap();
        let text = "word ".repeat(turn_bytes / 5);
        for n in 0..turns {
            let now = Timestamp::now();
            let claim = Claim::new("local", format!("k{n}"), Uuid::now_v7(), now);
            let claim = Claim { session: session.into(), ..claim };
            let run = store.claim(claim, &Quota::UNLIMITED).await.unwrap().run;
            let said = json!({ "messages": [{ "role": "user", "parts": [{ "type": "text",
                "content": text }] }] });
            let turn = StoredTurn::new(run.stream_id, now, 1, said);
            let to = Run { state: RunState::Closed, ..run };
            assert!(
                store
                    .transition(Transition::new((RunState::Running, 1), to, Vec::new(), Some(turn)))
                    .await
                    .unwrap()
            );
        }
        store.close().await.unwrap();
    });
}

/// The head of an answer, and its body if it is one object.
fn whole(mut answer: TcpStream) -> (String, String) {
    let mut text = String::new();
    answer.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn readers_of_a_session_hold_pages_of_it_and_those_who_do_not_read_what_they_may() {
    read_session(6, 40);
}

#[test]
#[ignore = "soak: long"]
fn soak_readers_of_a_session_of_239_mb_hold_no_more() {
    read_session(239, 200);
}

/// Four readers of a session of so many turns of a megabyte, and many who do not read.
fn read_session(turns: usize, many: usize) {
    let (folder, session) = (tempfile::tempdir().unwrap(), "long");
    long_session(folder.path(), session, turns, 1_000_000);
    let server = Server::limited(folder.path(), 64 * MB);
    let before = server.peak();
    let read_all = || {
        let (mut from, mut bytes, mut found) = (0, 0, 0);
        loop {
            let (head, body) =
                whole(server.send(&format!("GET /v1/sessions/{session}?from={from}"), ""));
            assert!(head.contains(" 200 "), "{head}");
            bytes += body.len();
            let page: Value = serde_json::from_str(&body).unwrap();
            found += page["turns"].as_array().unwrap().len();
            match page["next"].as_u64() {
                Some(next) => from = next,
                None => break (bytes, found),
            }
        }
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(read_all)).collect();
        for reader in readers {
            let (bytes, found) = reader.join().unwrap();
            assert!(bytes > turns * 1_000_000 && found == turns, "{found} turns, {bytes} bytes");
        }
    });
    let growth = server.peak().saturating_sub(before);
    println!("four readers of {turns} MB: {growth} bytes at most");
    assert!(growth < 64 * MB, "{growth} bytes");
    // Who asks and does not read holds no more than a tenant's requests may take.
    let idle: Vec<_> =
        (0..many).map(|_| server.send(&format!("GET /v1/sessions/{session}"), "")).collect();
    let answers: Vec<_> = idle
        .into_iter()
        .map(|socket| {
            let mut answer = BufReader::new(socket);
            let mut line = String::new();
            answer.read_line(&mut line).unwrap();
            (line, answer)
        })
        .collect();
    let refused = answers.iter().filter(|(line, _)| line.contains(" 429 ")).count();
    assert!(answers.iter().all(|(line, _)| line.contains(" 200 ") || line.contains(" 429 ")));
    let growth = server.peak().saturating_sub(before);
    println!("{many} that do not read: {refused} refused, {growth} bytes at most");
    assert!(refused > many / 2, "{refused} were refused: the others hold 4 MB each");
    assert!(growth < 128 * MB, "{growth} bytes");
}

#[test]
fn an_answer_too_large_for_one_object_is_refused_in_time_and_its_run_goes_on() {
    write_book(12, 8);
}

#[test]
#[ignore = "soak: long"]
fn soak_an_answer_as_long_as_a_stream_may_be_takes_no_more_in_one_object() {
    write_book(240, 32);
}

/// A run whose answer has so many megabytes, for who wants it in one object, which may have less.
fn write_book(megabytes: usize, limit: u64) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::telling(folder.path(), limit * MB);
    let before = server.peak();
    let body = cap_body(&format!(r#""query":"{megabytes}""#));
    let (head, problem) =
        whole(server.send_as("application/json", "POST /v1/agents/book/assist", &body));
    assert!(head.contains(" 406 "), "{head}");
    let problem: Value = serde_json::from_str(&problem).unwrap();
    assert_eq!(problem["code"], "answer_too_large");
    let stream = problem["details"]["stream_id"].as_str().unwrap();
    assert!(
        problem["detail"].as_str().unwrap().contains(&format!("/v1/streams/{stream}")),
        "{problem}"
    );
    server.wait_for_the_runs_to_be_over();
    let growth = server.peak().saturating_sub(before);
    println!("an answer of {megabytes} MB in JSON mode: {growth} bytes at most");
    assert!(growth < 200 * MB, "{growth} bytes");
    // The stream holds all of it; who asks for one object again is told so again.
    let (_, list) = whole(server.send("GET /v1/streams?limit=1000", ""));
    let list: Value = serde_json::from_str(&list).unwrap();
    let run =
        list["streams"].as_array().unwrap().iter().find(|run| run["stream_id"] == stream).unwrap();
    assert_eq!((&run["state"], &run["reason"]), (&json!("closed"), &json!("completed")), "{run}");
    let mut told = BufReader::new(server.send(&format!("GET /v1/streams/{stream}"), ""));
    let (mut bytes, mut chunk) = (0, vec![0; 1 << 20]);
    loop {
        match told.read(&mut chunk).unwrap() {
            0 => break,
            read => bytes += read,
        }
    }
    assert!(bytes > megabytes * 1_000_000, "{bytes} bytes");
    let (head, _) = whole(server.send_as("application/json", "POST /v1/agents/book/assist", &body));
    assert!(head.contains(" 406 "), "{head}");
    assert!(server.peak().saturating_sub(before) < 200 * MB);
}

#[test]
fn runs_that_wait_hold_none_of_their_bodies_and_a_listing_none_either() {
    const RUNS: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::limited(folder.path(), 64 * MB);
    let (held, before) = (server.held(), server.peak());
    for _ in 0..RUNS {
        let large = "x".repeat(3_900_000);
        let body = cap_body(&format!(r#""query":"/flaky 1 --wait 60","anything":"{large}""#));
        let (head, told) = whole(server.send("POST /v1/agents/demo/assist", &body));
        assert!(head.contains(" 200 ") && told.contains(r#""op":"ERROR""#), "{head}");
    }
    let waiting = || {
        let (_, list) = whole(server.send("GET /v1/streams?limit=1000", ""));
        let size = list.len();
        let list: Value = serde_json::from_str(&list).unwrap();
        let runs = list["streams"].as_array().unwrap().iter();
        (runs.filter(|run| run["state"] == "waiting").count(), size)
    };
    let (count, size) = waiting();
    assert_eq!(count, RUNS);
    assert!(size < 100_000, "the listing has {size} bytes");
    let (grown, growth) =
        (server.held().saturating_sub(held), server.peak().saturating_sub(before));
    println!("{RUNS} runs that wait with bodies of 4 MB: {grown} bytes kept, {growth} at most");
    assert!(grown < 8 * MB, "{grown} bytes kept");
    assert!(growth < 64 * MB, "{growth} bytes");
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
        let start = CancellationToken::new();
        let heard = Arc::new(Semaphore::new(0));
        // However long it takes: what readers cost that are not cut.
        let timeouts = Timeouts { stalled_reader: Duration::ZERO, ..Timeouts::default() };
        // Bodies that are all structure are refused by default; where there is no limit, it is
        // measured what they would take.
        let mut limits = match std::env::var(IN_FLIGHT) {
            Ok(most) => {
                Limits { bytes_in_flight_per_tenant: most.parse().unwrap(), ..Limits::default() }
            }
            Err(_) => {
                Limits { body_values: usize::MAX, bytes_per_stream: 1 << 30, ..Limits::default() }
            }
        };
        if let Ok(most) = std::env::var(WHOLE) {
            limits.whole_bytes = most.parse().unwrap();
        }
        let gateway = Gateway::new(Journal::new(store, TailLimits::default()))
            .settings(Settings { timeouts, limits, ..Settings::default() })
            .agent("talker", Talker(start.clone()))
            .agent("starter", Starter(start))
            .agent("mumbler", Mumbler(Arc::clone(&heard)))
            .agent("listener", Listener(heard))
            .agent("meter", Meter)
            .agent("book", Book)
            .agent("demo", Demo::with_delay(Duration::ZERO));
        serve(gateway, vec![listener], std::future::pending()).await.unwrap();
    });
}

/// What an agent is asked for.
fn number(turn: &Turn) -> usize {
    turn.text().parse().unwrap_or(0)
}

/// Says as much as it is asked for, which nobody reads, and is not done.
struct Mumbler(Arc<Semaphore>);

#[async_trait]
impl Agent for Mumbler {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        for _ in 0..number(&turn) {
            out.delta("a").await?;
        }
        self.0.add_permits(1);
        std::future::pending().await
    }

    fn max_attempts(&self) -> u32 {
        3
    }
}

/// Is done when all of them have said it.
struct Listener(Arc<Semaphore>);

#[async_trait]
impl Agent for Listener {
    async fn run(&self, _: Turn, _: &mut Writer) -> Outcome {
        self.0.acquire_many(MUMBLERS as u32).await.unwrap().forget();
        Ok(())
    }
}

/// Says nothing until it is told to, then as much as it was asked for at once.
struct Talker(CancellationToken);

/// Says how many bytes this process holds, and ever held.
struct Meter;

/// Writes as many megabytes as it is asked for.
struct Book;

#[async_trait]
impl Agent for Book {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let page = "lorem ipsum dolor sit amet, ".repeat(2_000);
        for _ in 0..=number(&turn) * 1_000_000 / page.len() {
            out.delta(page.clone()).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Agent for Meter {
    async fn run(&self, _: Turn, out: &mut Writer) -> Outcome {
        Ok(out.delta(format!("{} {}", ALLOCATOR.allocated(), ALLOCATOR.max_allocated())).await?)
    }
}

/// Tells it to.
struct Starter(CancellationToken);

#[async_trait]
impl Agent for Starter {
    async fn run(&self, _: Turn, _: &mut Writer) -> Outcome {
        self.0.cancel();
        Ok(())
    }
}

#[async_trait]
impl Agent for Talker {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        self.0.cancelled().await;
        for _ in 0..number(&turn) {
            out.delta("lorem ipsum dolor sit amet, consectetur").await?;
        }
        Ok(())
    }
}

struct Server {
    child: Child,
    address: String,
    /// Kept open: a test runner that cannot say how long it takes ends itself.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(folder: &std::path::Path) -> Self {
        Self::run(Command::new(std::env::current_exe().unwrap()).env(FOLDER, folder))
    }

    /// One whose requests may take so many bytes at once.
    fn limited(folder: &std::path::Path, in_flight: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        Self::run(command.env(FOLDER, folder).env(IN_FLIGHT, in_flight.to_string()))
    }

    /// One that tells no answer above so many bytes in one object.
    fn telling(folder: &std::path::Path, whole: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        Self::run(command.env(FOLDER, folder).env(WHOLE, whole.to_string()))
    }

    fn run(command: &mut Command) -> Self {
        let command = command.args(["--exact", "serves_when_told_to", "--nocapture"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = output.by_ref().map_while(Result::ok);
        let address = lines.find_map(|line| Some(line.strip_prefix("address ")?.to_owned()));
        Self { child, address: address.unwrap(), _output: output }
    }

    /// Attaches a reader that has begun, and never reads on.
    fn watch(&self, stream: &str) -> TcpStream {
        let socket = self.send(&format!("GET /v1/streams/{stream}"), "");
        let mut first = [0];
        (&socket).read_exact(&mut first).unwrap();
        socket
    }

    fn wait_for_the_runs_to_be_over(&self) {
        let deadline = Instant::now() + Duration::from_secs(150);
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

    fn post(&self, agent: &str) -> TcpStream {
        self.ask(agent, "talk")
    }

    fn ask(&self, agent: &str, text: &str) -> TcpStream {
        let session = Uuid::now_v7();
        let context = SessionContext::new(session, UserContext::new("u"));
        let request = ServiceRequest::new(context, AgentRequest::query(session, text));
        self.send(
            &format!("POST /v1/agents/{agent}/assist"),
            &serde_json::to_string(&request).unwrap(),
        )
    }

    fn send(&self, line: &str, body: &str) -> TcpStream {
        self.send_as("text/event-stream", line, body)
    }

    fn send_as(&self, accept: &str, line: &str, body: &str) -> TcpStream {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "host: localhost\r\nconnection: close\r\ncontent-type: application/json\r\naccept: \
             {accept}"
        );
        let length = body.len();
        write!(socket, "{line} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}")
            .unwrap();
        socket
    }

    /// What the server holds.
    fn held(&self) -> u64 {
        self.measured()[0]
    }

    /// What it ever held.
    fn peak(&self) -> u64 {
        self.measured()[1]
    }

    fn measured(&self) -> [u64; 2] {
        let mut answer = String::new();
        self.post("meter").read_to_string(&mut answer).unwrap();
        let (_, text) = answer.split_once(r#""op":"DELTA""#).unwrap();
        let (_, text) = text.split_once(r#""p":""#).unwrap();
        let (held, peak) = text.split('"').next().unwrap().split_once(' ').unwrap();
        [held, peak].map(|number| number.parse().unwrap())
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

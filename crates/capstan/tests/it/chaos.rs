//! `capstan chaos` as its users meet it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};

fn chaos() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command.arg("chaos");
    command
}

fn refused(args: &[&str]) -> String {
    let output = chaos().args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Answers every request with a stream of two packets.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let _ = socket.read(&mut [0; 4096]);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            let _ = write!(socket, "{head}id: 1\ndata: one\n\nid: 2\ndata: two\n\n");
        }
    });
    address
}

/// A running proxy and where it listens.
fn start(args: &[&str]) -> (Child, String, String) {
    let mut child = chaos()
        .args(["--listen", "127.0.0.1:0", "--to", &upstream().to_string()])
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.strip_prefix("chaos listening on http://").unwrap();
    let address = address.split_whitespace().next().unwrap().to_owned();
    (child, address, line)
}

fn get(address: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\naccept: text/event-stream\r\n\r\n").unwrap();
    let mut text = String::new();
    let _ = socket.read_to_string(&mut text);
    text
}

/// Sends the signal of Ctrl-C.
fn interrupt(child: Child) -> Output {
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    child.wait_with_output().unwrap()
}

#[test]
fn it_breaks_streams_and_sums_up_when_interrupted() {
    let (child, address, line) =
        start(&["--seed", "7", "--cut", "--cut-after", "1", "--faults", "1"]);
    assert!(line.contains(" → http://127.0.0.1:") && line.ends_with(", seed 7\n"), "{line}");
    let (first, second) = (get(&address), get(&address));
    assert!(!first.ends_with("0\r\n\r\n") && second.ends_with("0\r\n\r\n"), "{first}\n{second}");
    let output = interrupt(child);
    assert_eq!(output.status.code(), Some(0));
    let summary = "chaos connections 2, streams 2, packets 3; faults 1: cuts 1; seed 7\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), summary, "and nothing else in a pipe");
}

#[test]
fn a_refusal_is_chosen_with_flags_alone() {
    let (child, address, _) =
        start(&["--refuse", "1", "--refuse-with", "503", "--retry-after", "9"]);
    let answer = get(&address);
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 9\r\n"),
        "{answer}"
    );
    assert_eq!(interrupt(child).status.code(), Some(0));
}

#[test]
fn wrong_flags_are_refused_with_their_name_and_a_remedy() {
    for (args, words) in [
        (&["--to", "https://localhost:1"][..], ["--to", "http://HOST:PORT"]),
        (&["--to", "localhost:1", "--cut", "2"], ["--cut", "0 (never) to 1 (always)"]),
        (&["--to", "localhost:1", "--cut-after", "3"], ["--cut-after", "--brutal|--cut"]),
        (&["--to", "localhost:1", "--stall", "--stall-for", "5"], ["--stall-for", "500ms"]),
        (
            &["--to", "localhost:1", "--cut", "--cut-with", "rest"],
            ["--cut-with", "did you mean reset?"],
        ),
        (
            &["--to", "localhost:1", "--listen", "nowhere"],
            ["--listen nowhere", "help: --listen takes HOST:PORT"],
        ),
    ] {
        let said = refused(args);
        assert!(words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
    }
}

#[test]
fn a_port_in_use_is_named() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    let said = refused(&["--to", "localhost:1", "--listen", &taken]);
    assert!(said.contains("the port is already in use"), "{said}");
}

//! `capstan fake-provider` as its users meet it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

fn fake_provider() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command.arg("fake-provider");
    command
}

/// A running provider, its address, and the rest of its standard error.
fn start(args: &[&str]) -> (Child, String, BufReader<std::process::ChildStderr>) {
    let mut command = fake_provider();
    command.args(["--listen", "127.0.0.1:0"]).args(args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let address = line.strip_prefix("fake provider listening on http://").unwrap();
    let address = address.split(',').next().unwrap().to_owned();
    (child, address, stderr)
}

fn ask(address: &str, path: &str) -> String {
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let mut socket = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn it_applies_faults_prints_calls_and_sums_up() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("outage.toml");
    std::fs::write(
        &script,
        "token_interval = 0\n[answer]\ntext = 'Heave ho'\n[[faults]]\nfault = \
     'truncated'\nwhen = '2'\nafter = 1\n",
    )
    .unwrap();
    let (mut child, address, mut stderr) =
        start(&["--script", script.to_str().unwrap(), "--fault", "status-503@1"]);
    let (first, second, third) = (
        ask(&address, "/v1/chat/completions"),
        ask(&address, "/v1/chat/completions"),
        ask(&address, "/v1/messages"),
    );
    assert!(first.starts_with("HTTP/1.1 503 "), "{first}");
    assert!(second.contains("Heave") && !second.contains("stop"), "{second}");
    assert!(third.contains("\"ho\"") && third.contains("end_turn"), "{third}");
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(3);
    let lines: Vec<Value> =
        lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert_eq!(lines[0]["fault"], "status-503");
    assert_eq!((&lines[1]["fault"], &lines[1]["tokens"]), (&"truncated".into(), &1.into()));
    assert_eq!((&lines[2]["api"], &lines[2]["ending"]), (&"messages".into(), &"complete".into()));
    assert_eq!(lines[2]["body"]["messages"][0]["content"], "hi");
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut sum = String::new();
    stderr.read_to_string(&mut sum).unwrap();
    assert!(
        sum.contains("calls 3: 3 complete, 0 broken off, 0 hung up by the caller; tokens 3"),
        "{sum}"
    );
    assert!(sum.contains("m: status-503 1") && sum.contains("m: healthy 1"), "{sum}");
}

#[test]
fn faults_are_listed_and_wrong_ones_refused_with_the_remedy() {
    let listed = fake_provider().arg("--list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("reset-mid-stream") && listed.contains("status-…"), "{listed}");
    assert!(listed.contains("after-thinking"), "{listed}");
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    for (args, words) in [
        (&["--fault", "silence"][..], "`capstan fake-provider --list` names them"),
        (&["--fault", "silent@soon"], "expected 3, 2-5, 2-, 30% or 60s"),
        (
            &["--fault", "silent:here"],
            "no place in a stream; expected a number of tokens or one of",
        ),
        (&["--seconds", "2"], "--fault"),
        (&["--script", "/nowhere.toml"], "/nowhere.toml: No such file"),
        (&["--listen", &taken], "the port is already in use"),
    ] {
        let refused = fake_provider().args(args).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.status.code() == Some(2) && said.contains(words), "{args:?}: {said}");
    }
}

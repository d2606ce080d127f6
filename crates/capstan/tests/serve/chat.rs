//! `capstan chat` as a script and as a person would use it.

use std::io::{Read as _, Write as _};
use std::process::{Command, Output, Stdio};

use crate::process::{Server, hasty_folder};

fn chat(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command.arg("chat").args(args).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_pipe_gets_the_text_and_nothing_else() {
    let folder = hasty_folder();
    let server = Server::start(folder.path());
    let plain = chat(&[&server.url, "/tokens 3"]);
    assert_eq!((plain.status.code(), text(&plain.stdout).as_str()), (Some(0), "tok1 tok2 tok3 \n"));
    assert_eq!(text(&plain.stderr), "");
    let healed = chat(&[&server.url, "/flaky 1"]);
    assert_eq!(healed.stdout, chat(&[&server.url, "/flaky 0"]).stdout);
}

#[test]
fn a_conversation_is_read_from_a_pipe_line_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    let mut child =
        command.args(["chat", &server.url]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"/tokens 1\n\n/tokens 2\n").unwrap();
    assert_eq!(text(&child.wait_with_output().unwrap().stdout), "tok1 \ntok1 tok2 \n");
}

#[test]
fn exit_codes_tell_failures_apart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let failed = chat(&[&server.url, "/fault content_refused"]);
    assert_eq!(failed.status.code(), Some(1));
    let told = text(&failed.stderr);
    assert!(
        told.contains("declined") && told.contains("content_refused") && told.contains("help:"),
        "{told}"
    );
    assert_eq!(chat(&["http://127.0.0.1:9", "Hi"]).status.code(), Some(3));
    assert_eq!(chat(&["ftp://x", "Hi"]).status.code(), Some(2));
    // A path that answers, but not with a stream.
    let page = chat(&[&format!("{}/errors", server.url), "Hi"]);
    assert_eq!(page.status.code(), Some(1), "{}", text(&page.stderr));
    let waiting = chat(&[&server.url, "/flaky 2 --wait 100"]);
    assert_eq!(waiting.status.code(), Some(1));
    assert!(text(&waiting.stderr).contains("try again in 100 s"), "{}", text(&waiting.stderr));
}

/// In a terminal of its own: what was typed, what was seen.
fn in_terminal(url: &str, message: &str, until: &str, typed: &[u8]) -> (Option<i32>, String) {
    let line = format!("{} chat {url} '{message}'", env!("CARGO_BIN_EXE_capstan"));
    let mut child = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut seen, mut buffer, mut is_typed) = (Vec::new(), [0; 1024], false);
    loop {
        match stdout.read(&mut buffer).unwrap() {
            0 => break,
            read => seen.extend_from_slice(&buffer[..read]),
        }
        if !is_typed && text(&seen).contains(until) {
            is_typed = true;
            stdin.write_all(typed).unwrap();
        }
    }
    (child.wait().unwrap().code(), text(&seen))
}

#[test]
fn a_person_sees_events_and_stops_a_run_with_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let (code, seen) = in_terminal(&server.url, "/events", "never", b"");
    assert_eq!(code, Some(0), "{seen}");
    for part in ["[1]", "█", "%"] {
        assert!(seen.contains(part), "{part} in {seen}");
    }
    let (_, seen) = in_terminal(&server.url, "/user-error", "never", b"");
    assert!(seen.contains("tool 503:") && seen.contains("worth another try"), "{seen}");
    let (code, seen) = in_terminal(&server.url, "/tokens 100000 --delay 5ms", "tok3", b"\x03");
    assert_eq!(code, Some(130), "{seen}");
    assert!(seen.contains("stopping") && seen.contains("cancelled"), "{seen}");
}

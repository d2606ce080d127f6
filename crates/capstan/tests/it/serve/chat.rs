//! `capstan chat` as a script and as a person would use it.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::serve::keys::new_key;
use crate::serve::process::{Server, hasty_folder};
use crate::serve::terminal::{CTRL_C, CTRL_D, Terminal, UP};

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

/// The number of runs.
fn runs(server: &Server) -> usize {
    let listed = piped(&["streams", "--json", "--url", &server.url], b"");
    text(&listed.stdout).lines().count()
}

/// Runs the command with input from a pipe.
fn piped(args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_pipe_is_one_message_whole() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    for dash in [&[][..], &["-"]] {
        let args = [&["chat", "--url", &server.url], dash].concat();
        let said = piped(&args, b"/echo one\n\n  two\nthree\n");
        assert_eq!(
            (said.status.code(), text(&said.stdout).as_str()),
            (Some(0), "one\n\n  two\nthree\n")
        );
        assert_eq!(piped(&args, b"\n").status.code(), Some(2), "nothing to say");
    }
    assert_eq!(runs(&server), 2, "one for each");
    let request = piped(&["request", "-"], b"one\ntwo\n");
    assert!(text(&request.stdout).contains(r#""query":"one\ntwo""#), "{}", text(&request.stdout));
}

#[test]
fn the_server_and_the_key_are_named_as_in_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let (key, table) = new_key("acme");
    std::fs::write(folder.path().join("capstan.toml"), table).unwrap();
    let server = Server::start(folder.path());
    let code = |args: &[&str], env: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
        command.args(args).env_clear().envs(env.iter().copied()).stdin(Stdio::null());
        command.output().unwrap().status.code()
    };
    let (url, both) =
        (server.url.as_str(), [("CAPSTAN_URL", server.url.as_str()), ("CAPSTAN_KEY", &key)]);
    for command in [
        &["chat", "/tokens 1"][..],
        &["streams"],
        &["agents"],
        &["tail", "latest"],
        &["stop", "latest"],
    ] {
        assert_eq!(code(command, &both), Some(0), "{command:?} by the environment");
        let flags = [command, &["--url", url, "--key", &key]].concat();
        assert_eq!(
            code(&flags, &[("CAPSTAN_URL", "http://127.0.0.1:9")]),
            Some(0),
            "{command:?} by flags"
        );
        assert_eq!(code(command, &both[..1]), Some(1), "{command:?} without a key");
    }
    for command in [&["chat", url, "/tokens 1"][..], &["streams", url], &["agents", url]] {
        assert_eq!(code(command, &both[1..]), Some(0), "{command:?} by a URL alone");
    }
}

#[test]
fn a_failure_says_what_to_do_at_a_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let told = |args: &[&str]| text(&chat(args).stderr);
    let lost = told(&["--url", "http://127.0.0.1:9", "Hi"]);
    assert!(lost.contains("http://127.0.0.1:9") && lost.contains("--url or CAPSTAN_URL"), "{lost}");
    // A name leads nowhere else: not to the agent behind it, not up to another path.
    for name in
        ["nobody", "nobody/../demo", "../agents/demo", "..", "demo?", "demo#", "demo%2e", "dé mo"]
    {
        let unknown = told(&[&server.url, "--agent", name, "Hi"]);
        assert!(unknown.contains("`capstan agents`"), "{name}: {unknown}");
    }
    let two = told(&["two", "words"]);
    assert!(two.contains("two messages") && two.contains("quotes"), "{two}");
}

#[test]
fn an_answer_stopped_by_another_client_is_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command.args(["chat", &server.url, "/tokens 100000 --delay 5ms"]).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    assert_eq!(piped(&["stop", "latest", "--url", &server.url], b"").status.code(), Some(0));
    let stopped = child.wait_with_output().unwrap();
    let told = text(&stopped.stderr);
    assert_eq!(stopped.status.code(), Some(1), "{told}");
    assert!(told.contains("the answer ended: cancelled"), "{told}");
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

#[test]
fn a_person_sees_events_and_stops_a_run_with_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let start =
        |message: &str| Terminal::start(folder.path(), &format!("chat {} '{message}'", server.url));
    let (code, seen) = start("/events").end();
    assert_eq!(code, Some(0), "{seen}");
    for part in ["[1]", "█", "%"] {
        assert!(seen.contains(part), "{part} in {seen}");
    }
    let (_, seen) = start("/user-error").end();
    assert!(seen.contains("tool 503:") && seen.contains("worth another try"), "{seen}");
    let mut terminal = start("/tokens 100000 --delay 5ms");
    terminal.expect("tok3");
    terminal.send(CTRL_C);
    let (code, seen) = terminal.end();
    assert_eq!(code, Some(130), "{seen}");
    assert!(seen.contains("stopping") && seen.contains("cancelled"), "{seen}");
}

fn converse(folder: &Path, server: &Server) -> Terminal {
    Terminal::start(folder, &format!("chat --url {}", server.url))
}

#[test]
fn a_text_of_several_lines_that_is_pasted_is_one_message() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let mut terminal = converse(folder.path(), &server);
    terminal.say("/echo \x1b[200~first\rsecond\r\rlast\x1b[201~");
    terminal.expect("\nfirst\r\nsecond\r\n\r\nlast\r\n");
    terminal.expect("you> ");
    terminal.send(CTRL_D);
    assert_eq!(terminal.end().0, Some(0));
    assert_eq!(runs(&server), 1);
}

#[test]
fn messages_come_back_with_the_arrow_keys() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let mut terminal = converse(folder.path(), &server);
    terminal.say("/echo again");
    terminal.expect("\nagain\r\n");
    terminal.say(" /echo not to be kept");
    terminal.expect("\nnot to be kept\r\n");
    terminal.say(CTRL_D);
    drop(terminal);
    let history = folder.path().join(".local/state/capstan/history");
    let mode = std::os::unix::fs::PermissionsExt::mode(&history.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "for its owner alone");
    let mut terminal = converse(folder.path(), &server);
    terminal.say(UP);
    terminal.expect("\nagain\r\n");
    let elsewhere = tempfile::tempdir().unwrap();
    let mut terminal =
        Terminal::start(elsewhere.path(), &format!("chat {} --history ''", server.url));
    terminal.say("/echo nowhere");
    terminal.expect("\nnowhere\r\n");
    terminal.expect("you> ");
    assert_eq!(elsewhere.path().read_dir().unwrap().count(), 0);
}

#[test]
fn ctrl_c_ends_a_wait_and_not_the_conversation() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let mut terminal = converse(folder.path(), &server);
    // A wait that is counted down, and one that the client sleeps through.
    for (seconds, sign) in [(200, "Ctrl-C ends the wait"), (25, "Retrying in 25.0 seconds")] {
        terminal.say(&format!("/fault timeout --retry-after {seconds}"));
        terminal.expect(sign);
        terminal.send(CTRL_C);
        terminal.expect("the answer ended: cancelled");
    }
    terminal.say("/tokens 100000 --delay 5ms");
    terminal.expect("tok3 ");
    terminal.send(CTRL_C);
    terminal.expect("the answer ended: cancelled");
    terminal.say("/echo still here");
    terminal.expect("\nstill here\r\n");
    // Without a server there is nothing to stop, and no wait continues.
    server.kill();
    terminal.say("/echo lost");
    terminal.expect("Retrying in");
    terminal.send(CTRL_C);
    terminal.expect("not waiting any longer");
    terminal.expect("you> ");
    terminal.send(CTRL_C);
    terminal.expect("Ctrl-C again leaves");
    terminal.expect("you> ");
    terminal.send(CTRL_C);
    assert_eq!(terminal.end().0, Some(130));
}

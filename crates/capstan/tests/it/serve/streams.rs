//! `capstan streams`, `tail` and `stop` as a script and as a person would use them.

use std::process::{Command, Output, Stdio};

use capstan_protocol::StreamPacket;
use serde_json::Value;

use crate::serve::client::{ask, http, packets, stream_of};
use crate::serve::process::{Server, hasty_folder};

fn capstan(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command.args(args).env_clear().envs(env.iter().copied()).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of a successful command.
fn printed(args: &[&str]) -> String {
    let output = capstan(args, &[]);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_are_listed_watched_and_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let url = server.url.as_str();
    assert_eq!(printed(&["streams", url]), "");
    assert_eq!(
        capstan(&["tail", "latest", "--url", url], &[]).status.code(),
        Some(2),
        "there is none yet"
    );
    let done = server.post(&http(), &ask("/tokens 3")).await;
    let done_stream = stream_of(&done);
    done.bytes().await.unwrap();
    let hanging = stream_of(&server.post(&http(), &ask("/hang")).await);

    let table = printed(&["streams", url]);
    let row = |stream: &str| table.lines().find(|line| line.contains(stream)).unwrap().to_owned();
    assert!(
        row(&done_stream).contains("closed") && row(&done_stream).contains("completed"),
        "{table}"
    );
    assert!(row(&hanging).contains("running") && row(&hanging).contains("demo"), "{table}");
    let json = printed(&["streams", url, "--json", "--limit", "1"]);
    let only: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&only["stream_id"], &only["state"]), (&hanging.as_str().into(), &"running".into()));

    assert_eq!(printed(&["tail", &done_stream, "--url", url]), "tok1 tok2 tok3 \n");
    assert_eq!(printed(&["tail", &done_stream, "--url", url, "--from", "3"]), "tok3 \n");
    let packets = printed(&["tail", &done_stream, "--url", url, "--json", "--from", "3"]);
    let packets: Vec<Value> =
        packets.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        packets.iter().map(|p| p["op"].as_str().unwrap()).collect::<Vec<_>>(),
        ["DELTA", "CLOSE"]
    );
    assert_eq!(
        printed(&["tail", &done_stream, "--url", url, "--from", "5"]),
        "",
        "past the end there is nothing"
    );

    let mut watching = Command::new(env!("CARGO_BIN_EXE_capstan"));
    let watching = watching
        .args(["tail", "latest", "--url", url, "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(printed(&["stop", "latest", "--url", url]), "");
    let seen = text(&watching.wait_with_output().unwrap().stdout);
    assert!(seen.contains("cancelled"), "{seen}");
    assert_eq!(printed(&["stop", &hanging, "--url", url]), "", "a finished run stays as it is");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exit_codes_of_the_stream_commands_tell_failures_apart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let unknown = uuid::Uuid::now_v7().to_string();
    for command in ["tail", "stop"] {
        let code = |args: &[&str]| capstan(&[&[command], args].concat(), &[]).status.code();
        assert_eq!(code(&[&unknown, "--url", &server.url]), Some(1));
        assert_eq!(code(&["nonsense", "--url", &server.url]), Some(2));
        assert_eq!(code(&[&unknown, "--url", "ftp://x"]), Some(2));
    }
    assert_eq!(capstan(&["streams", "http://127.0.0.1:9"], &[]).status.code(), Some(3));
    assert_eq!(capstan(&["streams"], &[("CAPSTAN_URL", &server.url)]).status.code(), Some(0));
    // Answers in JSON, but not with a list.
    assert_eq!(
        capstan(&["streams", &format!("{}/health?", server.url)], &[]).status.code(),
        Some(1)
    );
    let failed = server.post(&http(), &ask("/fault upstream_auth")).await;
    let stream = stream_of(&failed);
    failed.bytes().await.unwrap();
    let tailed = capstan(&["tail", &stream, "--url", &server.url], &[]);
    assert_eq!(tailed.status.code(), Some(1));
    assert!(
        text(&tailed.stderr).contains("upstream_auth") && text(&tailed.stderr).contains("help:")
    );
}

/// The lines of `capstan tail --json`, and how it ended.
fn tail_json(stream: &str, url: &str) -> (Vec<StreamPacket>, Output) {
    let tailed = capstan(&["tail", stream, "--url", url, "--json"], &[]);
    let packets =
        text(&tailed.stdout).lines().map(|line| StreamPacket::decode(line).unwrap()).collect();
    (packets, tailed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tail_prints_every_packet_as_the_journal_has_it() {
    let folder = hasty_folder();
    let server = Server::start(folder.path());
    let cases = [
        ("/fault upstream_auth", Some(1)),
        ("/flaky 1", Some(0)),
        ("/warn", Some(0)),
        ("/tokens 2", Some(0)),
    ];
    for (what, code) in cases {
        let run = server.post(&http(), &ask(what)).await;
        let stream = stream_of(&run);
        let journalled = packets(&run.bytes().await.unwrap());
        let (printed, tailed) = tail_json(&stream, &server.url);
        assert_eq!(printed, journalled, "{what}");
        assert_eq!(tailed.status.code(), code, "{what}");
        assert_eq!(text(&tailed.stderr).contains("upstream_auth"), code == Some(1), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tail_prints_the_error_that_a_run_waits_after_and_fails_if_it_is_stopped_there() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let run = server.post(&http(), &ask("/fault service_unavailable --retry-after 200")).await;
    let stream = stream_of(&run);
    let waiting = packets(&run.bytes().await.unwrap());
    assert_eq!(printed(&["stop", &stream, "--url", &server.url]), "");
    let (printed, tailed) = tail_json(&stream, &server.url);
    assert_eq!(printed[..waiting.len()], waiting, "ERROR is among them");
    assert_eq!((printed.len(), tailed.status.code()), (waiting.len() + 1, Some(1)));
}

#[test]
fn the_key_is_taken_from_a_flag_or_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let made = capstan(&["key", "new", "acme"], &[]);
    std::fs::write(folder.path().join("capstan.toml"), &made.stderr).unwrap();
    let server = Server::start(folder.path());
    let key = text(&made.stdout).trim().to_owned();
    let code = |args: &[&str], env: &[(&str, &str)]| capstan(args, env).status.code();
    assert_eq!(code(&["streams", &server.url], &[]), Some(1));
    assert_eq!(code(&["streams", &server.url, "--key", &key], &[]), Some(0));
    assert_eq!(code(&["streams", &server.url], &[("CAPSTAN_KEY", &key)]), Some(0));
    let help = capstan(&["streams", "--help"], &[("CAPSTAN_KEY", &key)]);
    assert!(!text(&help.stdout).contains(&key), "help does not tell it");
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&["completions", shell]);
        assert!(script.contains("capstan") && script.contains("completions"), "{shell}");
    }
}

//! `capstan check` against the real binary: its results as text and as JSON.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::serve::keys::new_key;
use crate::serve::process::Server;

fn check(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_capstan"))
        .arg("check")
        .args(args)
        .env_clear()
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Ids of the checks with this verdict.
fn ids(report: &Value, verdict: &str) -> Vec<String> {
    let checks = report["checks"].as_array().unwrap().iter();
    checks
        .filter(|check| check["verdict"] == verdict)
        .map(|check| check["id"].as_str().unwrap().to_owned())
        .collect()
}

fn tenants(folder: &Path) -> (String, String) {
    let ((a, a_table), (b, b_table)) = (new_key("acme"), new_key("bolt"));
    let origins = "cors_origins = [\"http://localhost:3000\"]\n";
    fs::write(folder.join("capstan.toml"), format!("{origins}{a_table}\n{b_table}")).unwrap();
    (a, b)
}

#[test]
fn a_server_with_tenants_passes_every_check() {
    let folder = tempfile::tempdir().unwrap();
    let (key, other) = tenants(folder.path());
    let server = Server::start(folder.path());
    let output = check(&[&server.url, "--key", &key, "--other-key", &other, "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(ids(&report, "broken"), Vec::<String>::new(), "{report:#}");
    assert_eq!(ids(&report, "skipped"), ["cap.heartbeat"], "it takes 20 s");
    assert!(output.status.success() && ids(&report, "passed").len() > 90, "{report:#}");
    assert!(!stdout(&output).contains(&key) && !stdout(&output).contains(&other));
}

#[test]
fn an_open_server_passes_all_that_is_not_about_tenants() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let output = check(&[&server.url]);
    let told = stdout(&output);
    assert!(output.status.success() && told.contains(" 0 broken"), "{told}");
    assert!(!told.contains('\u{1b}'), "no colour for a pipe");
    let skipped = told.lines().filter(|line| line.starts_with("skipped"));
    let others: Vec<&str> = skipped
        .filter(|line| {
            !["tenants.", "messages.key", "cap.heartbeat"].iter().any(|id| line.contains(id))
        })
        .collect();
    assert!(others.is_empty(), "{others:?}");
    assert_eq!(
        check(&[&server.url, "--only", "tenants.no-key", "--strict"]).status.code(),
        Some(1)
    );
}

#[test]
fn a_broken_promise_is_shown_with_its_evidence_and_exits_with_one() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    // Without tenants the server accepts requests without a key.
    let output = check(&[&server.url, "--key", "sk_secret", "--only", "tenants.no-key"]);
    let told = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    for part in [
        "BROKEN",
        "PROTOCOL.md 5 Who may do what",
        "sent      POST /v1/assist",
        "expected  401",
        "came      400",
    ] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert!(!told.contains("sk_secret"));
}

#[test]
fn a_target_that_cannot_be_checked_exits_with_two() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let wrong = |args: &[&str]| {
        let output = check(args);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, told) = wrong(&[&server.url, "--only", "cap.resum"]);
    assert!(code == Some(2) && told.contains("did you mean cap.resume?"), "{told}");
    let (code, told) = wrong(&["http://127.0.0.1:1"]);
    assert!(code == Some(2) && told.contains("127.0.0.1:1") && told.contains("help:"), "{told}");
    assert_eq!(wrong(&["not a url"]).0, Some(2));
    let listed = check(&["--list"]);
    assert!(listed.status.success() && stdout(&listed).lines().count() > 90);
}

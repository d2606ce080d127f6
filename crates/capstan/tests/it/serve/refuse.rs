//! Mistakes that keep a server from starting: one message with its remedy, exit code 2.

use std::fs;
use std::process::Output;

use crate::serve::process::{Server, refused};

/// The complaint of a start that was refused as wrong usage.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(output.stdout.is_empty(), "no greeting for a server that does not run");
    text
}

#[test]
fn a_second_process_on_a_folder_learns_who_holds_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let second = refused(folder.path(), &["--listen", "127.0.0.1:0", "--journal", "disk:journal"]);
    let text = complaint(&second);
    assert!(text.contains(&format!("in use by process {}", server.id())), "{text}");
    assert!(text.contains("--journal disk:<folder>"), "{text}");
}

#[test]
fn a_used_port_is_named_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let address = server.url.strip_prefix("http://").unwrap();
    let port = address.rsplit(':').next().unwrap();
    let text = complaint(&refused(folder.path(), &["--listen", address, "--journal", "memory:"]));
    assert!(text.contains(&format!("port {port} is already in use")), "{text}");
    assert!(text.contains("--listen HOST:PORT") && text.contains("--port"), "{text}");
}

#[test]
fn an_unknown_journal_lists_the_known_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        complaint(&refused(folder.path(), &["--port", "0", "--journal", "redis://localhost"]));
    assert!(text.contains("expected memory:, disk:<folder> or postgres://"), "{text}");
    assert!(!text.contains("other process"), "{text}");
    let text =
        complaint(&refused(folder.path(), &["--port", "0", "--journal", "disk:/proc/capstan"]));
    assert!(text.contains("No such file or directory"), "{text}");
}

#[test]
fn an_exposed_address_without_tenants_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        complaint(&refused(folder.path(), &["--listen", "0.0.0.0:0", "--journal", "memory:"]));
    assert!(text.contains("no tenants are configured"), "{text}");
    for remedy in ["capstan key new", "[[tenants]]", "--open"] {
        assert!(text.contains(remedy), "{remedy} in {text}");
    }
}

#[test]
fn a_wrong_key_of_the_configuration_is_named_with_its_line_and_the_nearest_one() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("capstan.toml"), "debug = false\n[timeouts]\ndrian = 3\n")
        .unwrap();
    let text = complaint(&refused(folder.path(), &[]));
    assert!(text.contains("capstan.toml") && text.contains("line 3"), "{text}");
    assert!(text.contains("did you mean `drain`?"), "{text}");
}

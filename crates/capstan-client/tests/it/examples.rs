//! RFC 004's two scenarios as a reader would try them: programs of their own against a real
//! gateway.

use std::process::Command;

use crate::common::Server;

/// Beside this test; `cargo test` builds examples, `cargo test --test examples` alone does not.
fn output_of(example: &str, url: &str) -> String {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.set_file_name("examples");
    path.push(example);
    if !path.exists() {
        let build = ["build", "--quiet", "--package", "capstan-client", "--example", example];
        assert!(Command::new(env!("CARGO")).args(build).status().unwrap().success());
    }
    let output = Command::new(path).arg(url).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_a_chats_and_continues_the_conversation() {
    let server = Server::start().await;
    let output = tokio::task::block_in_place(|| output_of("chat", &server.url));
    assert!(output.starts_with("User: Explain quantum mechanics.\nAI: "), "{output}");
    let (first, second) =
        output.split_once("\nUser: How does that relate to gravity?\nAI: ").unwrap();
    assert!(first.contains("quantum") && !second.trim().is_empty(), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_b_prints_deltas_and_citations() {
    let server = Server::start().await;
    let output = tokio::task::block_in_place(|| output_of("packets", &server.url));
    assert!(output.contains("[Citation: http") && output.ends_with("(completed)\n"), "{output}");
}

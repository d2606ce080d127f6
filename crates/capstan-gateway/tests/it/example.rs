//! `examples/agent.rs` as a reader would try it: a process of its own, a request, Ctrl-C.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::common::{all, ask, client, close_reason, text};
use capstan_protocol::{Event, EventView, Payload, StreamPacket};

/// The example at work; a test that fails leaves none behind.
struct Example {
    child: Child,
    url: String,
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Beside this test; `cargo test` builds examples, `cargo test --test example` alone does not.
fn program() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.set_file_name("examples");
    path.push("agent");
    if !path.exists() {
        let build = ["build", "--quiet", "--package", "capstan-gateway", "--example", "agent"];
        assert!(Command::new(env!("CARGO")).args(build).status().unwrap().success());
    }
    path
}

fn start() -> Example {
    let mut child = Command::new(program()).arg("0").stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("listening")).expect("it says where it listens");
    // Colours may surround it.
    let address = line.split("127.0.0.1:").nth(1).unwrap();
    let port: String = address.chars().take_while(char::is_ascii_digit).collect();
    // A log that nobody reads would block it.
    std::thread::spawn(move || lines.for_each(drop));
    Example { child, url: format!("http://127.0.0.1:{port}") }
}

impl Example {
    async fn ask(&self, message: &str) -> Vec<StreamPacket> {
        let url = format!("{}/v1/assist", self.url);
        all(client().post(url).json(&ask(message)).send().await.unwrap()).await
    }
}

#[tokio::test]
async fn the_example_counts_words_tells_of_empty_lines_and_drains() {
    let mut example = start();
    let packets = example.ask("one two three\n\nfour five").await;
    assert_eq!(text(&packets), "line 1: 3 words\nline 3: 2 words\n");
    assert_eq!(close_reason(&packets).as_deref(), Some("completed"));
    let views: Vec<_> = packets
        .iter()
        .filter_map(|p| {
            if let Payload::Event(raw) = &p.payload { Some(Event::of(raw).view()) } else { None }
        })
        .collect();
    assert_eq!(views.iter().filter(|view| matches!(view, EventView::Progress(_))).count(), 3);
    assert!(
        views
            .iter()
            .any(|view| matches!(view, EventView::UserError(error) if error.code == Some(400)))
    );

    let refused = example.ask("  ").await;
    let Payload::Error(error) = &refused[0].payload else { panic!("{refused:?}") };
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("invalid_request", "There is nothing to count.")
    );
    assert_eq!(close_reason(&refused).as_deref(), Some("error"));

    let interrupt = Command::new("kill").args(["-INT", &example.child.id().to_string()]).status();
    assert!(interrupt.unwrap().success());
    assert!(example.child.wait().unwrap().success(), "Ctrl-C drains and ends without an error");
}

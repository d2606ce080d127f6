//! A real agent CLI as a `command` agent, against a provider that fails. So its frames are real.
//!
//! The test does not install it: `CAPSTAN_AGENT_CLI` names the program, or `claude` is in `PATH`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use crate::serve::process::Server;

const ANSWER: &str = "a very good capstan.\n";
/// The provider's faults at which the CLI gives up, and the resulting codes.
const FAULTS: [(&str, &str); 5] = [
    ("status-529", "(upstream_error)"),
    ("wrong-key", "(upstream_auth)"),
    ("context-length", "(context_length_exceeded)"),
    ("content-filter", "(content_refused)"),
    ("html", "(upstream_error)"),
];
/// The faults that the CLI retries itself: its reader sees one complete answer.
const HEALED: [&str; 3] = ["reset-mid-stream", "error-in-stream", "truncated"];

fn cli() -> PathBuf {
    let named = std::env::var_os("CAPSTAN_AGENT_CLI").map(PathBuf::from);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&paths).map(|folder| folder.join("claude"));
    named
        .or_else(|| found.find(|path| path.is_file()))
        .expect("this test needs an agent CLI; install claude or name one in CAPSTAN_AGENT_CLI")
}

/// A provider whose models have the names of faults.
struct Provider {
    child: Child,
    url: String,
    // Kept open, because a process that writes to a closed pipe ends.
    _stderr: BufReader<ChildStderr>,
}

impl Provider {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
        command.args(["fake-provider", "--listen", "127.0.0.1:0"]).args(arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let url = line.split_once("listening on ").and_then(|(_, rest)| rest.split(',').next());
        Self { url: url.unwrap().to_owned(), child, _stderr: stderr }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An agent for each model and kind of prompt. The CLI gets an empty home, and calls only the
/// provider.
fn agent(
    name: &str,
    model: &str,
    rest: (&str, &str),
    cli: &Path,
    home: &Path,
    provider: &str,
) -> String {
    let (arguments, keys) = rest;
    format!(
        "[[agents]]\nname = {name:?}\nkind = \"command\"\n{keys}\ncwd = {home:?}\n\
         command = [{cli:?}, \"-p\", \"--output-format\", \"stream-json\", \
         \"--include-partial-messages\", \"--verbose\", \"--model\", {model:?}{arguments}]\n\
         env = {{ HOME = {home:?}, ANTHROPIC_BASE_URL = {provider:?}, ANTHROPIC_API_KEY \
         = \"sk-ant-none-at-all\", \
         CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC = \"1\", DISABLE_AUTOUPDATER = \"1\", \
         CLAUDE_CODE_MAX_RETRIES = \"1\" }}\n"
    )
}

fn chat(server: &Server, agent: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command.args([
        "chat",
        "--max-wait",
        "0",
        "--url",
        &server.url,
        "--agent",
        agent,
        "What is a capstan?",
    ]);
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
#[ignore = "soak: long, and needs an agent CLI"]
fn soak_a_real_agent_cli_answers_once_and_fails_typed() {
    let cli = cli();
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let provider = Provider::start(&[]);
    let of =
        |name: &str, model: &str, rest| agent(name, model, rest, &cli, home.path(), &provider.url);
    let ways = [
        ("stdin", ("", "")),
        ("argument", ("", "prompt = \"argument\"")),
        ("frames", (", \"--input-format\", \"stream-json\"", "prompt = \"stream-json\"")),
    ];
    let mut file: String = ways.iter().map(|(name, rest)| of(name, "m-1", *rest)).collect();
    let models = FAULTS.iter().map(|(fault, _)| *fault).chain(HEALED);
    file.extend(models.map(|model| of(model, model, ("", ""))));
    std::fs::write(folder.path().join("capstan.toml"), file).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let server = Server::start_with(folder.path(), &[("PATH", &path)]);

    for name in ways.iter().map(|(name, _)| *name).chain(HEALED) {
        let said = chat(&server, name);
        let text = String::from_utf8_lossy(&said.stdout);
        assert!(text.starts_with("A capstan is ") && text.ends_with(ANSWER), "{name}: {said:?}");
        assert_eq!(text.matches("A capstan is ").count(), 1, "{name}: {text}");
    }
    for (fault, code) in FAULTS {
        let failed = chat(&server, fault);
        let told = String::from_utf8_lossy(&failed.stderr);
        assert_eq!(
            (failed.status.code(), failed.stdout.len()),
            (Some(1), 0),
            "{fault}: {failed:?}"
        );
        // The CLI's own error text, with its hosts, is for the log.
        assert!(told.contains(code) && !told.contains("127.0.0.1"), "{fault}: {told}");
    }
}

/// A model that refuses and one that answers for it; a stream that is cut after a text was shown.
const SCRIPT: &str = r#"
unique_ids = true
[answer]
text = "Here it is, word by word, as you wanted it."
[[replies]]
model = "claude-opus-5"
answer = { text = "First I would", refusal = "cyber" }
[[faults]]
model = "claude-sonnet-5"
fault = "close-mid-stream"
at = "mid-text"
when = "1"
"#;

#[test]
#[ignore = "soak: needs an agent CLI"]
fn soak_text_that_a_real_agent_cli_retracts_is_not_seen() {
    const WHOLE: &str = "Here it is, word by word, as you wanted it.\n";
    let cli = cli();
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let script = folder.path().join("script.toml");
    std::fs::write(&script, SCRIPT).unwrap();
    let provider = Provider::start(&["--script", script.to_str().unwrap()]);
    let of =
        |name: &str, model: &str| agent(name, model, ("", ""), &cli, home.path(), &provider.url);
    let file = of("refused", "claude-opus-5") + &of("cut", "claude-sonnet-5");
    std::fs::write(folder.path().join("capstan.toml"), file).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let server = Server::start_with(folder.path(), &[("PATH", &path)]);
    let cut = chat(&server, "cut");
    assert_eq!(String::from_utf8_lossy(&cut.stdout), WHOLE, "{cut:?}");
    // The CLI retries the model once; its first text stays.
    let refused = ask_whole(&server, "refused");
    assert!(refused.contains(r#""text":"First I would\n\nHere it is, word by word"#), "{refused}");
    assert!(refused.contains(r#""model":"claude-opus-4-8""#), "{refused}");
}

/// The answer in one object, for which nothing was shown that has to be taken back.
fn ask_whole(server: &Server, agent: &str) -> String {
    let made = Command::new(env!("CARGO_BIN_EXE_capstan")).args(["request", "Do it"]).output();
    let body = String::from_utf8(made.unwrap().stdout).unwrap();
    let host = server.url.trim_start_matches("http://");
    let mut socket = TcpStream::connect(host).unwrap();
    let head = format!(
        "POST /v1/agents/{agent}/assist HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\
         accept: application/json\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

//! A real agent CLI as a `command` agent, against a provider that misbehaves. Its frames are what
//! nobody here made up.
//!
//! Nothing of it is installed by us: `CAPSTAN_AGENT_CLI` names the program, or `claude` is in
//! `PATH`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use crate::serve::process::Server;

const ANSWER: &str = "a very good capstan.\n";
/// Of the provider's faults, those that the CLI gives up at, and what they are then.
const FAULTS: [(&str, &str); 5] = [
    ("status-529", "(upstream_error)"),
    ("wrong-key", "(upstream_auth)"),
    ("context-length", "(context_length_exceeded)"),
    ("content-filter", "(content_refused)"),
    ("html", "(upstream_error)"),
];
/// Those that it gets over by itself: its reader sees one answer, whole and once.
const HEALED: [&str; 3] = ["reset-mid-stream", "error-in-stream", "truncated"];

fn cli() -> PathBuf {
    let named = std::env::var_os("CAPSTAN_AGENT_CLI").map(PathBuf::from);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&paths).map(|folder| folder.join("claude"));
    named
        .or_else(|| found.find(|path| path.is_file()))
        .expect("this test needs an agent CLI; install claude or name one in CAPSTAN_AGENT_CLI")
}

/// A provider whose models are called like the faults that they bring.
struct Provider {
    child: Child,
    url: String,
    // Kept open: whoever writes to a closed pipe ends.
    _stderr: BufReader<ChildStderr>,
}

impl Provider {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
        command.args(["fake-provider", "--listen", "127.0.0.1:0"]);
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

/// An agent of its own for each model and way in. The CLI gets a home that is empty, and asks
/// nobody but the provider.
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
fn soak_a_real_agent_cli_answers_fails_in_types_and_is_told_once() {
    let cli = cli();
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let provider = Provider::start();
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
        // What the CLI itself says of it, its hosts included, is for the log.
        assert!(told.contains(code) && !told.contains("127.0.0.1"), "{fault}: {told}");
    }
}

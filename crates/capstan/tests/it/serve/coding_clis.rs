//! `capstan claude` and `capstan codex`, with a program that prints its arguments and environment
//! in place of the real one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::serve::agents::table;
use crate::serve::process::Server;

/// A program that prints its arguments and what of its environment counts.
fn program(folder: &Path) -> String {
    let file = folder.join("program");
    let script = "#!/bin/sh\nprintf '<%s>\\n' \"$@\"\nenv | grep -E 'ANTHROPIC|CLAUDE|CAPSTAN'\n\
                  exit 7\n";
    fs::write(&file, script).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file.to_str().unwrap().to_owned()
}

fn server(folder: &Path) -> Server {
    fs::write(folder.join("capstan.toml"), table("one", "I am one.") + &table("two", "Two."))
        .unwrap();
    Server::start(folder)
}

/// The command, in an environment that would lead the program elsewhere.
fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("ANTHROPIC_API_KEY", "sk-elsewhere").env("CLAUDE_CODE_USE_VERTEX", "1");
    command.args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn claude_starts_with_the_gateway_alone_in_its_environment() {
    let folder = tempfile::tempdir().unwrap();
    let (server, program) = (server(folder.path()), program(folder.path()));
    let url = format!("{}/", server.url);
    let done = run(&[
        "claude",
        "--url",
        &url,
        "--program",
        &program,
        "--agent",
        "two",
        "--key",
        "sk_mine",
        "--private",
        "--",
        "-p",
        "two words",
    ]);
    let said = text(&done.stdout);
    assert_eq!(done.status.code(), Some(7), "{done:?}");
    assert!(said.starts_with("<-p>\n<two words>\n"), "{said}");
    for line in [
        format!("ANTHROPIC_BASE_URL={}", server.url),
        "ANTHROPIC_AUTH_TOKEN=sk_mine".into(),
        "ANTHROPIC_MODEL=two".into(),
        "ANTHROPIC_DEFAULT_HAIKU_MODEL=two".into(),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1".into(),
    ] {
        assert!(said.lines().any(|said| said == line), "{line} in {said}");
    }
    assert!(!said.contains("elsewhere") && !said.contains("VERTEX"), "{said}");
}

#[test]
fn what_claude_prints_sets_the_same_in_a_shell() {
    let folder = tempfile::tempdir().unwrap();
    let (server, program) = (server(folder.path()), program(folder.path()));
    let printed = run(&["claude", "--url", &server.url, "--key", "it's", "--print"]);
    let script = format!("{}\nexec \"$0\"", text(&printed.stdout));
    let done = Command::new("sh")
        .args(["-c", &script, &program])
        .env("ANTHROPIC_API_KEY", "sk-elsewhere")
        .output()
        .unwrap();
    let said = text(&done.stdout);
    assert!(said.contains("ANTHROPIC_AUTH_TOKEN=it's\n"), "{said}");
    assert!(!said.contains("MODEL=") && !said.contains("elsewhere"), "{said}");
    assert!(!said.contains("NONESSENTIAL"), "only if it is asked for: {said}");
}

#[test]
fn a_key_of_the_shell_is_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let done = Command::new(env!("CARGO_BIN_EXE_capstan"))
        .args(["claude", "--url", &server.url, "--print"])
        .env("CAPSTAN_KEY", "sk_mine")
        .output()
        .unwrap();
    let said = text(&done.stdout);
    assert!(said.contains("export ANTHROPIC_AUTH_TOKEN=\"$CAPSTAN_KEY\"\n"), "{said}");
    assert!(!said.contains("sk_mine"));
    let with_path = run(&["claude", "--url", &format!("{}/v1", server.url), "--print"]);
    let base = format!("ANTHROPIC_BASE_URL='{}'\n", server.url);
    assert!(text(&with_path.stdout).contains(&base), "{with_path:?}");
}

#[test]
fn codex_starts_with_the_gateway_as_its_provider() {
    let folder = tempfile::tempdir().unwrap();
    let (server, program) = (server(folder.path()), program(folder.path()));
    let args = ["codex", "--url", &server.url, "--program", &program, "--key", "sk_mine"];
    let done = run(&[&args[..], &["--", "exec", "Hi"]].concat());
    let said = text(&done.stdout);
    let base = format!("<model_providers.capstan.base_url=\"{}/v1\">", server.url);
    for line in [
        "<model=\"one\">",
        "<model_provider=\"capstan\">",
        &base,
        "<model_providers.capstan.wire_api=\"responses\">",
        "<model_providers.capstan.stream_idle_timeout_ms=1800000>",
        "<model_providers.capstan.env_key=\"CAPSTAN_KEY\">",
        "CAPSTAN_KEY=sk_mine",
    ] {
        assert!(said.lines().any(|said| said == line), "{line} in {said}");
    }
    assert!(said.contains("<exec>\n<Hi>\n"), "{said}");

    let printed = run(&["codex", "--url", &server.url, "--agent", "two", "--print"]);
    let settings: toml::Table = text(&printed.stdout).parse().unwrap();
    assert_eq!(settings["model"].as_str(), Some("two"));
    let provider = &settings["model_providers"]["capstan"];
    assert_eq!(provider["base_url"].as_str(), Some(&*format!("{}/v1", server.url)));
    assert!(provider.get("env_key").is_none(), "no key, no name of one: {provider}");
}

#[test]
fn a_gateway_that_is_not_there_and_a_program_that_is_not_there_are_named() {
    let done = run(&["claude", "--url", "http://127.0.0.1:9", "--print"]);
    assert_eq!(done.status.code(), Some(3), "{done:?}");
    assert!(text(&done.stderr).contains("127.0.0.1:9") && done.stdout.is_empty(), "{done:?}");

    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let gone = ["--program", "/nowhere/claude"];
    let done = run(&[&["claude", "--url", &server.url], &gone[..]].concat());
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    let told = text(&done.stderr);
    assert!(told.contains("/nowhere/claude") && told.contains("npm install -g"), "{told}");

    let done = run(&["codex", "--url", &server.url, "--agent", "three", "--print"]);
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    assert!(text(&done.stderr).contains("no agent \"three\""), "{done:?}");
}

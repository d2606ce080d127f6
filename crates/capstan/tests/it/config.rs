//! `capstan config`: a valid example, and a check that names the source of each value.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn config(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command
        .arg("config")
        .args(args)
        .current_dir(folder)
        .env_clear()
        .envs(env.iter().copied())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The cells of the row of a key.
fn row(output: &Output, key: &str) -> Vec<String> {
    let table = text(&output.stdout);
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let found =
        table.lines().map(cells).find(|cells| cells.first().is_some_and(|first| first == key));
    found.unwrap_or_else(|| panic!("no {key} in {table}{}", text(&output.stderr)))
}

#[test]
fn the_example_is_accepted_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let example = config(folder.path(), &["example"], &[]);
    assert!(text(&example.stdout).contains("#[[tenants]]"));
    fs::write(folder.path().join("capstan.toml"), &example.stdout).unwrap();
    let checked = config(folder.path(), &["check"], &[]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    assert_eq!(row(&checked, "listen"), ["listen", "\"localhost:8787\"", "default"]);
}

#[test]
fn the_effective_content_rule_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let tenant = format!("[[tenants]]\nname = \"acme\"\nkeys = [\"sha256:{}\"]\n", "ab".repeat(32));
    let files = [
        (String::new(), "\"shown\"", "default"),
        (tenant.clone(), "\"asked\"", "default"),
        (format!("[console]\ncontent = \"never\"\n{tenant}"), "\"never\"", "my.toml:2"),
    ];
    for (file, holds, from) in files {
        fs::write(folder.path().join("my.toml"), file).unwrap();
        let checked = config(folder.path(), &["check", "--config", "my.toml"], &[]);
        assert_eq!(row(&checked, "console.content"), ["console.content", holds, from]);
    }
}

#[test]
fn every_value_is_printed_with_its_source() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!(
        "durability = \"power\"\n[limits]\nruns = 7\n[[tenants]]\nname = \"acme\"\nkeys = \
         [\"sha256:{}\"]\n",
        "ab".repeat(32)
    );
    fs::write(folder.path().join("my.toml"), file).unwrap();
    let env = [("CAPSTAN_JOURNAL", "memory:"), ("CAPSTAN_ENV", "development")];
    let checked =
        config(folder.path(), &["check", "--config", "my.toml", "--listen", "127.0.0.1:0"], &env);
    assert_eq!(row(&checked, "listen"), ["listen", "\"127.0.0.1:0\"", "--listen"]);
    let other = config(folder.path(), &["check", "--port", "9"], &env);
    assert_eq!(row(&other, "listen"), ["listen", "\"localhost:9\"", "--port"]);
    assert_eq!(row(&checked, "journal"), ["journal", "\"memory:\"", "CAPSTAN_JOURNAL"]);
    assert_eq!(row(&checked, "durability"), ["durability", "\"power\"", "my.toml:1"]);
    assert_eq!(row(&checked, "debug"), ["debug", "true", "CAPSTAN_ENV"]);
    assert_eq!(row(&checked, "limits.runs"), ["limits.runs", "7", "my.toml:3"]);
    assert_eq!(row(&checked, "timeouts.run"), ["timeouts.run", "3600", "default"]);
    assert_eq!(row(&checked, "tenants"), ["tenants", "acme", "(1", "key)", "my.toml:4"]);
    assert!(!text(&checked.stdout).contains("abab"), "not even the hash of a key");
}

#[test]
fn the_check_reports_what_prevents_a_start() {
    let folder = tempfile::tempdir().unwrap();
    for (args, part) in [
        (["--listen", "0.0.0.0:8787"], "capstan key new"),
        (["--durability", "forever"], "expected process or power"),
        (["--journal", "paper:"], "expected memory:, disk:<folder> or postgres://"),
        (["--journal", "./folder"], "did you mean `disk:./folder`?"),
        (["--config", "missing.toml"], "missing.toml"),
    ] {
        let checked = config(folder.path(), &[&["check"], args.as_slice()].concat(), &[]);
        assert_eq!(checked.status.code(), Some(2), "{args:?}");
        assert!(text(&checked.stderr).contains(part), "{part} in {}", text(&checked.stderr));
    }
}

/// The output of a server that is started the same way.
fn serve(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command
        .arg("serve")
        .args(args)
        .current_dir(folder)
        .env_clear()
        .envs(env.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn the_check_refuses_what_the_server_refuses_in_the_same_words() {
    let folder = tempfile::tempdir().unwrap();
    let tenant = |name: &str| {
        format!("[[tenants]]\nname = {name:?}\nkeys = [\"sha256:{}\"]\n", "ab".repeat(32))
    };
    let agent = |lines: &str| format!("[[agents]]\nname = \"a\"\n{lines}\n");
    let openai = "kind = \"openai\"\nmodel = \"m\"\n";
    for (file, part) in [
        (agent("kind = \"opnai\""), "did you mean `openai`?"),
        (agent("kind = \"openai\""), "`model` is missing"),
        (agent("kind = \"command\"\ncommand = []"), "needs a program"),
        (agent("kind = \"cap\"\nurl = \"ftp://x\""), "expected http://host"),
        (agent(&format!("{openai}key_file = \"no-such-file\"")), "no-such-file"),
        (agent(&format!("{openai}attempts = 9")), "between 1 and max_calls"),
        (agent("kind = \"demo\"").repeat(2), "is taken"),
        (tenant("a") + &tenant("b"), "\"a\" and \"b\" have a key in common"),
        (tenant("a").repeat(2), "two tables"),
        ("tls_cert = \"cert.pem\"\n".to_owned(), "tls_key"),
        ("[retention]\nclaim_age = 1\n".to_owned(), "retention.claim_age"),
    ] {
        fs::write(folder.path().join("capstan.toml"), &file).unwrap();
        let (checked, served) =
            (config(folder.path(), &["check"], &[]), serve(folder.path(), &["--port", "0"], &[]));
        assert_eq!((checked.status.code(), served.status.code()), (Some(2), Some(2)), "{file}");
        assert_eq!(text(&checked.stderr), text(&served.stderr), "{file}");
        assert!(text(&checked.stderr).contains(part), "{part} in {}", text(&checked.stderr));
    }
    fs::remove_file(folder.path().join("capstan.toml")).unwrap();
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
    ];
    let checked = config(folder.path(), &["check"], &env);
    assert_eq!(text(&checked.stderr), text(&serve(folder.path(), &["--port", "0"], &env).stderr));
    assert!(text(&checked.stderr).contains("OTEL_TRACES_SAMPLER"), "{}", text(&checked.stderr));
}

#[test]
fn a_key_that_is_not_in_the_environment_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let gpt = "[[agents]]\nname = \"gpt\"\nkind = \"openai\"\nmodel = \"m\"\n";
    let far = "[[agents]]\nname = \"gpt\"\nkind = \"cap\"\nurl = \"http://127.0.0.1:9\"\n";
    for (agent, named, variable) in [
        (gpt, "", "OPENAI_API_KEY"),
        (gpt, "key_env = \"MY_KEY\"\n", "MY_KEY"),
        (far, "key_env = \"MY_KEY\"\n", "MY_KEY"),
    ] {
        fs::write(folder.path().join("capstan.toml"), format!("{agent}{named}")).unwrap();
        for env in [&[][..], &[(variable, " ")]] {
            let without = config(folder.path(), &["check"], env);
            let told = text(&without.stderr);
            assert!(told.contains(&format!("gpt: {variable} is not set")), "{told}");
            assert_eq!(without.status.code(), Some(0));
        }
        let with = config(folder.path(), &["check"], &[(variable, "sk-1")]);
        assert_eq!(text(&with.stderr), "");
        let broken = config(folder.path(), &["check"], &[(variable, "sk-\u{1}-secret")]);
        assert_eq!(broken.status.code(), Some(2), "a key that no header can carry");
        assert!(!text(&broken.stderr).contains("secret"), "{}", text(&broken.stderr));
    }
}

#[test]
fn a_file_that_can_be_read_only_once_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let check = |file: &str| {
        let line = format!(
            "printf '{file}' | {} config check --config /dev/stdin",
            env!("CARGO_BIN_EXE_capstan")
        );
        Command::new("sh").args(["-c", &line]).current_dir(folder.path()).output().unwrap()
    };
    assert_eq!(row(&check("\\ndebug = true\\n"), "debug"), ["debug", "true", "/dev/stdin:2"]);
    let wrong = check("debgu = true\\n");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("did you mean `debug`?"), "{}", text(&wrong.stderr));
}

//! What a server prints when it starts: lines that work as they stand, however it is configured.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;

use crate::serve::agents::table;
use crate::serve::keys::new_key;
use crate::serve::process::Server;

/// The lines to try, done as they stand; what each printed.
fn tried(folder: &Path, server: &Server, key: &str) -> Vec<(String, Output)> {
    let lines = server.greeting();
    let commands = lines.iter().filter(|line| line.starts_with("  ") && line.contains("capstan "));
    commands
        .map(|line| {
            let done = Command::new("sh")
                .args(["-c", line])
                .current_dir(folder)
                .env("KEY", key)
                .output()
                .unwrap();
            (line.clone(), done)
        })
        .collect()
}

fn try_all(config: &str, key: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("capstan.toml"), config).unwrap();
    let server = Server::start(folder.path());
    let tried = tried(folder.path(), &server, key);
    assert!(tried.len() >= 2, "{tried:?}");
    for (line, done) in &tried {
        let printed = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && !printed.trim().is_empty(), "{line}\n{printed}{done:?}");
        assert!(!printed.contains("/errors/"), "{line}\n{printed}");
    }
    tried.into_iter().map(|(line, _)| line + "\n").collect()
}

#[test]
fn the_lines_to_try_work_as_they_stand() {
    let (key, tenant) = new_key("acme");
    let agents = table("one", "I am one.") + &table("two", "I am two.");
    // Side by side: the demo agent takes its time.
    let [plain, tenants, other] = thread::scope(|threads| {
        let configs = [("", ""), (tenant.as_str(), key.as_str()), (agents.as_str(), "")];
        configs
            .map(|(config, key)| threads.spawn(move || try_all(config, key)))
            .map(|t| t.join().unwrap())
    });
    assert!(
        plain.contains("/help") && !plain.contains("--key") && !plain.contains("Bearer"),
        "{plain}"
    );
    assert!(tenants.contains("--key \"$KEY\"") && tenants.contains("Bearer $KEY"), "{tenants}");
    assert!(!tenants.contains(&key));
    assert!(!other.contains("/help") && other.contains(" agents --url"), "{other}");
}

/// The line with the console's address, if there is one.
fn console_line(config: &str, args: &[&str]) -> (String, Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("capstan.toml"), config).unwrap();
    let server = Server::start_as(folder.path(), args, &[]);
    let line = server.greeting().into_iter().find(|line| line.ends_with("/console"));
    (server.url.clone(), line)
}

#[test]
fn the_consoles_address_is_told_where_there_is_one() {
    let (url, told) = console_line("", &[]);
    assert_eq!(told, Some(format!("  {url}/console")));
    let (url, told) = console_line("[console]\nlisten = \"127.0.0.1:0\"\n", &[]);
    let told = told.unwrap();
    assert!(
        told.starts_with("  http://127.0.0.1:") && !told.contains(&url),
        "{told} is its own, not {url}"
    );
    assert!(!told.contains(":0/"), "{told}: the port that it really has");
    assert_eq!(console_line("[console]\nenabled = false\n", &[]).1, None);
    assert_eq!(console_line("", &["--open"]).1, None, "open to all, and no operator");
}

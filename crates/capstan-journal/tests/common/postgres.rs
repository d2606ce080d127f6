//! A database of its own for one test, on the server that `CAPSTAN_TEST_POSTGRES` names (`scripts/postgres` starts one).
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;
use std::sync::Arc;

use capstan_journal::{Durability, Options, Replica, Store, connect};
use uuid::Uuid;

pub struct Database {
    /// As an administrator.
    server: String,
    name: String,
    pub url: String,
}

impl Database {
    /// A new one. Without a server the test is skipped by name.
    pub fn create() -> Option<Self> {
        let Ok(server) = std::env::var("CAPSTAN_TEST_POSTGRES") else {
            eprintln!("skipped: CAPSTAN_TEST_POSTGRES names no server; see scripts/postgres");
            return None;
        };
        let name = format!("capstan_{}", Uuid::new_v4().simple());
        psql(&server, &format!("create database {name}"));
        let (before, after) = server.split_once("://").unwrap();
        let (authority, rest) = after.split_once('/').unwrap();
        let query = rest.split_once('?').map_or(String::new(), |(_, query)| format!("?{query}"));
        let url = format!("{before}://{authority}/{name}{query}");
        Some(Self { server, name, url })
    }

    pub async fn store(&self, durability: Durability, replica: Replica) -> Arc<dyn Store> {
        let options = Options { durability, ..Options::default() };
        connect(&self.url, options, replica).await.unwrap()
    }

    /// Does something behind the store's back.
    pub fn sql(&self, statement: &str) -> String {
        psql(&self.url, statement)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        psql(&self.server, &format!("drop database {} with (force)", self.name));
    }
}

fn psql(url: &str, statement: &str) -> String {
    let done =
        Command::new("psql").args([url, "-qtAX", "-v", "ON_ERROR_STOP=1", "-c", statement]).output().unwrap();
    assert!(done.status.success(), "{statement}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

/// A server of its own, for tests that end it.
pub struct Engine {
    folder: tempfile::TempDir,
    settings: Vec<String>,
    child: Option<std::process::Child>,
}

impl Engine {
    /// Started where [`Database::create`] finds one; skipped where that is.
    pub fn start(settings: &[&str]) -> Option<Self> {
        if std::env::var_os("CAPSTAN_TEST_POSTGRES").is_none() {
            return Database::create().map(|_| unreachable!("there is no server"));
        }
        let folder = tempfile::tempdir().unwrap();
        let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
        if is_root {
            assert!(
                Command::new("chown")
                    .args(["postgres:", folder.path().to_str().unwrap()])
                    .status()
                    .unwrap()
                    .success()
            );
        }
        let settings = settings.iter().map(|setting| format!("-c{setting}")).collect();
        let mut engine = Self { folder, settings, child: None };
        let made = program("initdb", is_root)
            .args([
                "--auth=trust",
                "--no-sync",
                "--locale=C",
                "--encoding=UTF8",
                "--username=postgres",
                "--pgdata",
            ])
            .arg(engine.folder.path().join("data"))
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        engine.start_again();
        Some(engine)
    }

    pub fn url(&self) -> String {
        format!("postgres:///postgres?host={}&user=postgres", self.folder.path().display())
    }

    pub fn start_again(&mut self) {
        let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
        let mut postgres = program("postgres", is_root);
        postgres.args(["-clisten_addresses=", "-D"]).arg(self.folder.path().join("data"));
        postgres.arg("-k").arg(self.folder.path()).args(&self.settings);
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        self.child = Some(postgres.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
        let ask =
            || Command::new("psql").args([&self.url(), "-qtAX", "-c", "select 1"]).output().unwrap().status;
        while !ask().success() {}
    }

    /// Ends it at once, as a crash would: `QUIT`; or in good order: `INT`.
    pub fn end(&mut self, signal: &str) {
        let mut child = self.child.take().unwrap();
        let line = format!("kill -{signal} {}", child.id());
        assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
        child.wait().unwrap();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.end("QUIT");
        }
    }
}

/// A program of PostgreSQL's, which refuses to run as root.
fn program(name: &str, is_root: bool) -> Command {
    let line = format!("command -v {name} || ls /usr/lib/postgresql/*/bin/{name} | sort -V | tail -1");
    let found = Command::new("sh").args(["-c", &line]).output().unwrap();
    let path = String::from_utf8(found.stdout).unwrap().lines().next().unwrap().to_owned();
    if !is_root {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", &path]);
    command
}

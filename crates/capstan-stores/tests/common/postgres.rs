//! A database of its own for each test, on the server that `CAPSTAN_TEST_POSTGRES` names
//! (`scripts/postgres` starts one).
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, OnceLock};

use capstan_journal::{Replica, Store};
use capstan_stores::{Durability, Options, connect, migrate};
use uuid::Uuid;

/// The migrations, whose hash names the template.
const MIGRATIONS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../capstan-stores/src/postgres/migrations");

pub struct Database {
    /// The administrator's URL.
    server: String,
    name: String,
    pub url: String,
}

impl Database {
    /// Creates a database with all tables. Needs a runtime with several threads.
    pub fn create() -> Self {
        let database = Self::named();
        let template = template();
        if !database.copy(&template).status.success() {
            make_template(&database.server, &template);
            let copied = database.copy(&template);
            assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        }
        database
    }

    /// Copies a template, with a new secret.
    fn copy(&self, template: &str) -> Output {
        let mut psql =
            client(&self.server, &format!("create database {} template {template}", self.name));
        psql.args(["-c", &format!("\\c {}", self.name)]);
        psql.args([
            "-c",
            "update capstan.meta set secret = sha256(gen_random_uuid()::text::bytea)",
        ]);
        psql.output().unwrap()
    }

    /// Creates a database without tables.
    pub fn create_empty() -> Self {
        let database = Self::named();
        psql(&database.server, &format!("create database {}", database.name));
        database
    }

    fn named() -> Self {
        let server = std::env::var("CAPSTAN_TEST_POSTGRES")
            .expect("this test needs PostgreSQL; run it by scripts/postgres");
        let name = format!("capstan_{}", Uuid::new_v4().simple());
        Self { url: url_of(&server, &name), server, name }
    }

    pub async fn store(&self, durability: Durability, replica: Replica) -> Arc<dyn Store> {
        let options = Options { durability, ..Options::default() };
        connect(&self.url, options, replica).await.unwrap()
    }

    /// Runs a statement directly.
    pub fn sql(&self, statement: &str) -> String {
        psql(&self.url, statement)
    }

    /// Runs a statement, and holds its locks.
    pub fn hold(&self, statement: &str) -> Held {
        let mut psql = psql_itself();
        psql.args([&self.url, "-qtAX"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut psql = psql.spawn().unwrap();
        writeln!(psql.stdin.as_mut().unwrap(), "begin; {statement}; select 'held';").unwrap();
        let mut output = BufReader::new(psql.stdout.as_mut().unwrap()).lines();
        assert!(output.any(|line| line.unwrap() == "held"), "{statement}");
        Held(psql)
    }
}

/// Locks that are held until this value is dropped.
pub struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Drop for Database {
    /// Does not drop the database. A server that was started for tests ends with all of its data,
    /// and each dropped database would make it flush everything.
    fn drop(&mut self) {
        if std::env::var_os("CAPSTAN_TEST_POSTGRES_DATA").is_some() {
            return;
        }
        let drop = format!("drop database if exists {} with (force)", self.name);
        let mut psql = client(&self.server, &drop);
        let _ = psql.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    }
}

/// The URL of another database of the same server.
fn url_of(server: &str, name: &str) -> String {
    let (before, after) = server.split_once("://").unwrap();
    let (authority, rest) = after.split_once('/').unwrap();
    let query = rest.split_once('?').map_or(String::new(), |(_, query)| format!("?{query}"));
    format!("{before}://{authority}/{name}{query}")
}

/// The template that other databases copy, which is faster than to create them. Its name contains
/// the hash of its contents.
fn template() -> String {
    let mut files: Vec<PathBuf> =
        fs::read_dir(MIGRATIONS).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut hasher = DefaultHasher::new();
    files.iter().for_each(|file| fs::read(file).unwrap().hash(&mut hasher));
    format!("capstan_template_{:016x}", hasher.finish())
}

fn make_template(server: &str, name: &str) {
    // Each test is a process. The first one creates the template, and the others wait.
    let lock = File::create(std::env::temp_dir().join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    if psql(server, &format!("select 1 from pg_database where datname = '{name}'")) == "1" {
        return;
    }
    let unfinished = format!("{name}_{}", std::process::id());
    psql(server, &format!("create database {unfinished}"));
    let url = url_of(server, &unfinished);
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| runtime.block_on(migrate(&url))).unwrap();
    psql(server, &format!("alter database {unfinished} rename to {name}"));
}

/// Debian's `psql` on the path is a Perl script, so find the program itself.
fn psql_itself() -> Command {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    Command::new(FOUND.get_or_init(|| path_of("psql")))
}

fn client(url: &str, statement: &str) -> Command {
    let mut command = psql_itself();
    command.args([url, "-qtAX", "-v", "ON_ERROR_STOP=1", "-c", statement]);
    command
}

fn ask(url: &str, statement: &str) -> Output {
    client(url, statement).output().unwrap()
}

fn psql(url: &str, statement: &str) -> String {
    let done = ask(url, statement);
    assert!(done.status.success(), "{statement}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

/// A PostgreSQL server of its own, for tests that stop it.
pub struct Engine {
    folder: tempfile::TempDir,
    settings: Vec<String>,
    child: Option<std::process::Child>,
    is_mounted: bool,
}

impl Engine {
    pub fn start(settings: &[&str]) -> Self {
        Self::in_a_folder(settings).made().started()
    }

    /// Starts a server on a disk of this many megabytes. Needs permission to mount one.
    pub fn start_small(megabytes: u32) -> Self {
        let mut engine = Self::in_a_folder(&["min_wal_size=32MB", "max_wal_size=32MB"]);
        let size = format!("size={megabytes}m,mode=0700");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(engine.folder.path())
            .status();
        assert!(mount.is_ok_and(|status| status.success()), "this test needs the right to mount");
        engine.is_mounted = true;
        engine.own_folder();
        engine.made().started()
    }

    /// Fills its disk completely. Returns the file that does so.
    pub fn fill(&self) -> PathBuf {
        let ballast = self.folder.path().join("ballast");
        let mut file = File::create(&ballast).unwrap();
        let piece = [0; 4096];
        while std::io::Write::write_all(&mut file, &piece).is_ok() {}
        ballast
    }

    fn made(self) -> Self {
        let engine = self;
        // Copying an unused data folder is faster than creating one.
        let data = engine.data();
        let made = match std::env::var_os("CAPSTAN_TEST_POSTGRES_DATA") {
            Some(unused) => {
                as_user(Path::new("cp")).arg("-a").args([Path::new(&unused), &data]).output()
            }
            None => program("initdb").args(INITDB).arg(&data).output(),
        };
        let made = made.unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        engine
    }

    /// Starts a standby of this server.
    pub fn standby(&self, settings: &[&str]) -> Self {
        let standby = Self::in_a_folder(settings);
        let mut copy = program("pg_basebackup");
        copy.args([
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--no-sync",
            "--username=postgres",
            "--host",
        ]);
        let copied =
            copy.arg(self.folder.path()).arg("--pgdata").arg(standby.data()).output().unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        standby.started()
    }

    fn in_a_folder(settings: &[&str]) -> Self {
        let settings = settings.iter().map(|setting| format!("-c{setting}")).collect();
        let engine =
            Self { folder: tempfile::tempdir().unwrap(), settings, child: None, is_mounted: false };
        engine.own_folder();
        engine
    }

    fn own_folder(&self) {
        if is_root() {
            let owned =
                Command::new("chown").arg("postgres:").arg(self.folder.path()).status().unwrap();
            assert!(owned.success());
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The folder of its socket.
    pub fn host(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    pub fn url(&self) -> String {
        let port = self.settings.iter().find_map(|setting| setting.strip_prefix("-cport="));
        let port = port.map_or(String::new(), |port| format!("&port={port}"));
        format!("postgres:///postgres?host={}&user=postgres{port}", self.host())
    }

    /// Runs a statement directly.
    pub fn sql(&self, statement: &str) -> String {
        psql(&self.url(), statement)
    }

    /// Starts a statement without waiting for it.
    pub fn ask_in_the_background(&self, statement: &str) -> std::process::Child {
        let mut psql = client(&self.url(), statement);
        psql.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn started(mut self) -> Self {
        self.start_again();
        self
    }

    pub fn start_again(&mut self) {
        loop {
            let mut postgres = program("postgres");
            postgres.args(["-clisten_addresses=", "-D"]).arg(self.data());
            postgres.arg("-k").arg(self.folder.path()).args(&self.settings);
            let log = File::create(self.folder.path().join("log")).unwrap();
            let mut child = postgres.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
            loop {
                if ask(&self.url(), "select 1").status.success() {
                    self.child = Some(child);
                    return;
                }
                // What a killed server has left must be gone first.
                if child.try_wait().unwrap().is_some() {
                    break;
                }
            }
        }
    }

    /// Stops the server: `QUIT` or `KILL` like a crash, `INT` in order.
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
        if self.is_mounted {
            let _ = Command::new("umount").arg("-l").arg(self.folder.path()).status();
        }
    }
}

const INITDB: [&str; 6] = [
    "--auth=trust",
    "--no-sync",
    "--locale=C",
    "--encoding=UTF8",
    "--username=postgres",
    "--pgdata",
];

fn is_root() -> bool {
    Command::new("id").arg("-u").output().unwrap().stdout == b"0\n"
}

/// The path of a PostgreSQL program, not of a wrapper script.
pub fn path_of(name: &str) -> PathBuf {
    let line = format!(
        "ls /usr/lib/postgresql/*/bin/{name} 2>/dev/null | sort -V | tail -1; command -v {name}"
    );
    let found = Command::new("sh").args(["-c", &line]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    found.lines().next().expect("PostgreSQL is missing; install postgresql").into()
}

fn program(name: &str) -> Command {
    as_user(&path_of(name))
}

/// PostgreSQL refuses to run as root.
fn as_user(path: &Path) -> Command {
    if !is_root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(path);
    command
}

//! A real `capstan serve` in a folder of its own, on a free port. It is stopped by its own pid, on
//! drop at the latest.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// How long a test waits for a line.
const PATIENCE: Duration = Duration::from_secs(60);

/// The command with nothing of this machine's environment in it.
fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command.arg("serve").current_dir(folder).env_clear();
    command
}

/// A folder whose server retries almost without a wait.
pub(crate) fn hasty_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("capstan.toml"), "[timeouts]\nbackoff = 0.001\n").unwrap();
    folder
}

/// Runs `capstan serve` with arguments that it should refuse.
pub(crate) fn refused(folder: &Path, args: &[&str]) -> Output {
    command(folder).args(args).output().unwrap()
}

pub(crate) struct Server {
    pub(crate) url: String,
    child: Child,
    output: Mutex<Lines>,
}

impl Server {
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[])
    }

    /// Starts on the journal of a folder, with its `capstan.toml` if there is one.
    pub(crate) fn start_with(folder: &Path, env: &[(&str, &str)]) -> Self {
        Self::start_as(folder, &[], env)
    }

    /// The same with further arguments.
    pub(crate) fn start_as(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::run(command(folder), args, env)
    }

    /// The same in a process that gets no more address space than this.
    pub(crate) fn start_within(folder: &Path, kilobytes: u64) -> Self {
        let mut shell = Command::new("sh");
        let line = format!("ulimit -v {kilobytes}; exec \"$0\" serve \"$@\"");
        shell.args(["-c", &line, env!("CARGO_BIN_EXE_capstan")]).current_dir(folder).env_clear();
        Self::run(shell, &[], &[])
    }

    fn run(mut command: Command, args: &[&str], env: &[(&str, &str)]) -> Self {
        let journal: &[&str] =
            if args.contains(&"--journal") { &[] } else { &["--journal", "disk:journal"] };
        let mut child = command
            .args(["--listen", "127.0.0.1:0"])
            .args(journal)
            .args(args)
            .envs(env.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        forward(child.stderr.take().unwrap(), sender.clone());
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        stdout.read_line(&mut first).unwrap();
        let url = first.split_once("listening on ").and_then(|(_, rest)| rest.split(',').next());
        let url = url.unwrap_or_else(|| panic!("no URL in {first:?}")).to_owned();
        forward(stdout, sender);
        Self { url, child, output: Mutex::new(Lines { lines, read: String::new() }) }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal like an operator: `kill -TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let line = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    }

    /// The greeting after the first line, up to the line with only the URL.
    pub(crate) fn greeting(&self) -> Vec<String> {
        let mut output = self.output.lock().unwrap();
        output.read_to(&format!("  {}\n", self.url));
        output.read.lines().map(str::to_owned).collect()
    }

    /// Waits until it writes a line with this part in it, beyond the lines already waited for.
    pub(crate) fn wait_for_line(&self, part: &str) {
        self.output.lock().unwrap().read_to(part);
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its exit. Returns its status, and its output after the first line.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        (status, self.output.lock().unwrap().read_all())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Its output on both pipes, after the first line.
struct Lines {
    lines: Receiver<String>,
    read: String,
}

impl Lines {
    fn read_to(&mut self, part: &str) {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no {part:?} after\n{}", self.read));
            self.read.push_str(&line);
            if line.contains(part) {
                return;
            }
        }
    }

    /// Everything, once the pipes are closed.
    fn read_all(&mut self) -> String {
        self.read.extend(self.lines.iter());
        std::mem::take(&mut self.read)
    }
}

/// A thread a pipe, so that a full pipe never holds the process up.
fn forward(pipe: impl Read + Send + 'static, lines: Sender<String>) {
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = String::new();
        while pipe.read_line(&mut line).unwrap() > 0
            && lines.send(std::mem::take(&mut line)).is_ok()
        {}
    });
}

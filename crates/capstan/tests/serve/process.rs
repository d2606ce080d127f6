//! A real `capstan serve` in a folder of its own, on a free port, stopped by its own pid at the latest on drop.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::{self, JoinHandle};

/// The command with nothing of this machine's environment in it.
fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command.arg("serve").current_dir(folder).env_clear();
    command
}

/// Runs `capstan serve` with arguments that it should refuse.
pub(crate) fn refused(folder: &Path, args: &[&str]) -> Output {
    command(folder).args(args).output().unwrap()
}

pub(crate) struct Server {
    pub(crate) url: String,
    child: Child,
    /// What it wrote, one thread a pipe, so that a full pipe never holds it up.
    output: Vec<JoinHandle<String>>,
}

impl Server {
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[])
    }

    /// Starts on the journal of a folder, whose `capstan.toml` it reads if there is one.
    pub(crate) fn start_with(folder: &Path, env: &[(&str, &str)]) -> Self {
        Self::start_as(folder, &[], env)
    }

    /// The same with further arguments.
    pub(crate) fn start_as(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut child = command(folder)
            .args(["--listen", "127.0.0.1:0", "--journal", "disk:journal"])
            .args(args)
            .envs(env.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let errors = collect(child.stderr.take().unwrap());
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        stdout.read_line(&mut first).unwrap();
        let url = first.split_once("listening on ").and_then(|(_, rest)| rest.split(',').next());
        let url = url.unwrap_or_else(|| panic!("no URL in {first:?}")).to_owned();
        Self { url, child, output: vec![errors, collect(stdout)] }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// As an operator would: `kill -TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let line = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it ends by itself; its status, and all that it wrote after the first line.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        (status, self.output.drain(..).map(|pipe| pipe.join().unwrap()).collect())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        text
    })
}

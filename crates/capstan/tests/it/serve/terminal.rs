//! `capstan` in a real terminal: keyboard input and screen output.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// How long a test waits for output.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_D: &str = "\x04";
pub(crate) const UP: &str = "\x1b[A";

pub(crate) struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    output: Receiver<Vec<u8>>,
    seen: String,
    /// Up to where it was waited for.
    read: usize,
}

impl Terminal {
    /// Runs the command with a home of its own.
    pub(crate) fn start(home: &Path, arguments: &str) -> Self {
        let line = format!("stty cols 200; exec {} {arguments}", env!("CARGO_BIN_EXE_capstan"));
        let mut child = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .env_remove("XDG_STATE_HOME")
            .env("HOME", home)
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (keyboard, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = screen.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keyboard, output, seen: String::new(), read: 0 }
    }

    pub(crate) fn send(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    /// Waits until this is on the screen, beyond what was waited for already.
    pub(crate) fn expect(&mut self, text: &str) {
        loop {
            if let Some(at) = self.seen[self.read..].find(text) {
                self.read += at + text.len();
                return;
            }
            let more = self.output.recv_timeout(PATIENCE);
            let more =
                more.unwrap_or_else(|_| panic!("no {text:?} after\n{}", &self.seen[self.read..]));
            self.seen.push_str(&String::from_utf8_lossy(&more));
        }
    }

    /// The prompt, then a line.
    pub(crate) fn say(&mut self, line: &str) {
        self.expect("you> ");
        self.send(&format!("{line}\r"));
    }

    /// Waits for its exit. Returns the exit code and the output.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        while let Ok(more) = self.output.recv_timeout(PATIENCE) {
            self.seen.push_str(&String::from_utf8_lossy(&more));
        }
        (self.child.wait().unwrap().code(), self.seen.clone())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! Reads a process's standard error to its end, and keeps the last lines for the operator's log.
//! Callers never get them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStderr;
use tokio::task::JoinHandle;

use crate::api_key::ApiKey;

/// The most bytes that are kept: some fifty lines.
const TAIL_BYTES: usize = 4096;
/// How long to wait for the end of standard error after the process has failed.
const END_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) struct StderrTail {
    tail: Arc<Mutex<Tail>>,
    /// The task that reads; `None` after it was joined.
    reader: Option<JoinHandle<()>>,
    keys: Vec<ApiKey>,
}

impl StderrTail {
    /// Starts to read. A process may print its environment, so keys in it are removed.
    pub(super) fn of(stderr: ChildStderr, env: &BTreeMap<String, String>) -> Self {
        let tail = Arc::<Mutex<Tail>>::default();
        let reader = tokio::spawn(read_all(stderr, Arc::clone(&tail)));
        Self { tail, reader: Some(reader), keys: ApiKey::in_environment(env) }
    }

    /// The last lines; `None` if there are none.
    pub(super) async fn last_lines(&mut self) -> Option<String> {
        if let Some(reader) = self.reader.take() {
            let _ = tokio::time::timeout(END_TIMEOUT, reader).await;
        }
        let lines = self.tail.lock().unwrap_or_else(PoisonError::into_inner).lines();
        let lines = self.keys.iter().fold(lines, |lines, key| key.scrub(&lines));
        Some(lines).filter(|lines| !lines.is_empty())
    }
}

/// Reads everything, so that the process never blocks on its output.
async fn read_all(mut stderr: ChildStderr, tail: Arc<Mutex<Tail>>) {
    let mut buffer = vec![0; TAIL_BYTES];
    while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.push(buffer.get(..n).unwrap_or_default());
    }
}

/// The end of the output.
#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let surplus = self.bytes.len().saturating_sub(TAIL_BYTES);
        self.is_cut |= surplus > 0;
        self.bytes.drain(..surplus);
    }

    /// The complete lines, without characters that control a terminal.
    fn lines(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let whole = match text.split_once('\n') {
            Some((_, rest)) if self.is_cut && !rest.is_empty() => rest,
            _ => &text,
        };
        let is_plain = |c: char| !c.is_control() || c == '\n';
        let lines: String = whole.chars().map(|c| if is_plain(c) { c } else { ' ' }).collect();
        lines.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_without_control_characters() {
        let mut tail = Tail::default();
        for n in 0..2000 {
            tail.push(format!("line {n}\n").as_bytes());
        }
        tail.push(b"\x1b[31mred\x1b[0m\tbell\x07\n");
        let lines = tail.lines();
        assert!(lines.len() <= TAIL_BYTES && lines.starts_with("line "), "{lines}");
        assert!(lines.ends_with("line 1999\n [31mred [0m bell"), "{lines}");
        let whole: Vec<&str> = lines.lines().collect();
        assert!(whole[0].len() == "line 1500".len(), "the first one is whole: {}", whole[0]);
    }

    #[test]
    fn an_endless_line_is_kept_up_to_the_limit() {
        let mut tail = Tail::default();
        tail.push(&vec![b'x'; 3 * TAIL_BYTES]);
        assert_eq!(tail.lines().len(), TAIL_BYTES);
    }
}

//! What a process writes to standard error: read to its end, the last lines kept for the operator's
//! log. No caller gets it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStderr;
use tokio::task::JoinHandle;

use crate::api_key::ApiKey;

/// What is kept: some fifty lines.
const KEPT_BYTES: usize = 4096;
/// How long the end of it is waited for once the process has failed.
const PATIENCE: Duration = Duration::from_millis(500);

pub(super) struct StderrTail {
    kept: Arc<Mutex<Kept>>,
    /// Until it is done.
    listener: Option<JoinHandle<()>>,
    keys: Vec<ApiKey>,
}

impl StderrTail {
    /// Begins to listen. A process may print its environment; what looks like a key in there is not
    /// repeated.
    pub(super) fn of(stderr: ChildStderr, env: &BTreeMap<String, String>) -> Self {
        let kept = Arc::<Mutex<Kept>>::default();
        let listener = tokio::spawn(overhear(stderr, Arc::clone(&kept)));
        Self { kept, listener: Some(listener), keys: ApiKey::in_environment(env) }
    }

    /// What was said last; none if nothing was.
    pub(super) async fn last_lines(&mut self) -> Option<String> {
        if let Some(listener) = self.listener.take() {
            let _ = tokio::time::timeout(PATIENCE, listener).await;
        }
        let lines = self.kept.lock().unwrap_or_else(PoisonError::into_inner).lines();
        let lines = self.keys.iter().fold(lines, |lines, key| key.scrub(&lines));
        Some(lines).filter(|lines| !lines.is_empty())
    }
}

/// Reads everything, so that the process never waits for it.
async fn overhear(mut stderr: ChildStderr, kept: Arc<Mutex<Kept>>) {
    let mut buffer = vec![0; KEPT_BYTES];
    while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(buffer.get(..n).unwrap_or_default());
    }
}

/// The end of what was said.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let surplus = self.bytes.len().saturating_sub(KEPT_BYTES);
        self.is_cut |= surplus > 0;
        self.bytes.drain(..surplus);
    }

    /// Whole lines, as far as there are any, without anything that could command a terminal.
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
    fn the_last_whole_lines_are_kept_and_nothing_that_commands_a_terminal() {
        let mut kept = Kept::default();
        for n in 0..2000 {
            kept.push(format!("line {n}\n").as_bytes());
        }
        kept.push(b"\x1b[31mred\x1b[0m\tbell\x07\n");
        let lines = kept.lines();
        assert!(lines.len() <= KEPT_BYTES && lines.starts_with("line "), "{lines}");
        assert!(lines.ends_with("line 1999\n [31mred [0m bell"), "{lines}");
        let whole: Vec<&str> = lines.lines().collect();
        assert!(whole[0].len() == "line 1500".len(), "the first one is whole: {}", whole[0]);
    }

    #[test]
    fn one_line_that_never_ends_is_told_as_far_as_it_goes() {
        let mut kept = Kept::default();
        kept.push(&vec![b'x'; 3 * KEPT_BYTES]);
        assert_eq!(kept.lines().len(), KEPT_BYTES);
    }
}

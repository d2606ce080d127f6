//! The prompt: a line editor with the usual keys and a history. Pasted text of several lines is one
//! message.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use owo_colors::OwoColorize as _;
use rustyline::DefaultEditor;
use rustyline::config::{Behavior, Config};
use rustyline::error::ReadlineError;

const PROMPT: &str = "you> ";
/// How many lines the history keeps.
const REMEMBERED: usize = 1000;

/// What the user typed.
pub(super) enum Entered {
    Message(String),
    /// Enter alone.
    Nothing,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D.
    End,
}

pub(super) struct Editor {
    // `None` while a read uses it.
    editor: Option<DefaultEditor>,
    history: Option<PathBuf>,
}

impl Editor {
    /// Opens the terminal itself, so that standard output holds only answers.
    pub(super) fn open(history: Option<String>) -> io::Result<Self> {
        let config = Config::builder()
            .behavior(Behavior::PreferTerm)
            .history_ignore_space(true)
            .max_history_size(REMEMBERED)
            .map_err(to_io)?
            .build();
        let mut editor = DefaultEditor::with_config(config).map_err(to_io)?;
        let history = history.map(PathBuf::from).or_else(default_history);
        let history = history.filter(|file| !file.as_os_str().is_empty());
        if let Some(file) = &history {
            // The file does not exist before the first use.
            let _ = editor.load_history(file);
        }
        Ok(Self { editor: Some(editor), history })
    }

    /// Reads the next message in another thread, because connections stay active on this one.
    pub(super) async fn read(&mut self) -> io::Result<Entered> {
        let Some(mut editor) = self.editor.take() else { return Ok(Entered::End) };
        let reading = tokio::task::spawn_blocking(move || {
            let line = editor.readline(&(PROMPT, PROMPT.bold().to_string()));
            (editor, line)
        });
        let (editor, line) = reading.await.map_err(io::Error::other)?;
        let editor = self.editor.insert(editor);
        match line {
            Ok(line) if line.trim().is_empty() => Ok(Entered::Nothing),
            Ok(line) => {
                remember(editor, &line, self.history.as_deref());
                Ok(Entered::Message(line.trim().to_owned()))
            }
            Err(ReadlineError::Interrupted) => Ok(Entered::Interrupt),
            Err(ReadlineError::Eof) => Ok(Entered::End),
            Err(error) => Err(to_io(error)),
        }
    }
}

/// Adds the line at once, so that it survives a crash. A history that cannot be written does not
/// end the conversation.
fn remember(editor: &mut DefaultEditor, line: &str, file: Option<&Path>) {
    let is_new = editor.add_history_entry(line).unwrap_or(false);
    let Some(file) = file.filter(|_| is_new) else { return };
    if let Some(folder) = file.parent() {
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    }
    // Creates the file for its owner alone.
    let _ = editor.append_history(file);
}

/// The usual folder for programs' state.
fn default_history() -> Option<PathBuf> {
    let folder =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join("capstan/history"))
}

fn to_io(error: ReadlineError) -> io::Error {
    if let ReadlineError::Io(error) = error { error } else { io::Error::other(error) }
}

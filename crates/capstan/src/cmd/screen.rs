//! The terminal output: text on standard output, everything else on standard error. A pipe gets the
//! text alone.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use capstan_client::{CapError, Notice};
use capstan_protocol::fault::Entry;
use capstan_protocol::{
    CitationBlock, Event, EventView, FaultKind, MediaCarousel, Payload, ProgressUpdate,
    StreamError, StreamPacket, Transcript, UserError,
};
use owo_colors::OwoColorize as _;

/// Remedies for the command line, in place of the catalogue's remedies for programmers.
const HERE: [(FaultKind, &str); 2] = [
    (FaultKind::TenantRequired, "give your tenant's key with --key or CAPSTAN_KEY"),
    (FaultKind::AgentNotFound, "`capstan agents` lists those that there are"),
];

/// A screen. Cheap to clone, because notices come from inside the client.
#[derive(Clone)]
pub(super) struct Screen {
    is_terminal: bool,
    /// The server's URL.
    url: Arc<str>,
    state: Arc<Mutex<State>>,
}

/// The position of the cursor.
#[derive(Default)]
struct State {
    /// Whether the cursor is inside a line of text.
    is_mid_line: bool,
    /// Whether the next status line may replace the current line.
    is_replaceable: bool,
}

impl Screen {
    pub(super) fn new(url: &str) -> Self {
        Self { is_terminal: io::stdout().is_terminal(), url: url.into(), state: Arc::default() }
    }

    /// Whether a user is at the terminal.
    pub(super) fn is_watched(&self) -> bool {
        self.is_terminal && io::stdin().is_terminal()
    }

    /// Prints a piece of the answer.
    fn text(&self, text: &str) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut state.is_replaceable) {
            anstream::eprintln!();
        }
        state.is_mid_line = text.chars().next_back().map_or(state.is_mid_line, |c| c != '\n');
        let mut out = io::stdout().lock();
        out.write_all(if self.is_terminal { harmless(text) } else { text.to_owned() }.as_bytes())?;
        out.flush()
    }

    /// Prints a packet. `so_far` contains it already.
    pub(super) fn packet(&self, packet: &StreamPacket, so_far: &Transcript) -> io::Result<()> {
        match &packet.payload {
            Payload::Delta(text) => self.text(text),
            Payload::Event(raw) => self.event(&Event::of(raw).view(), so_far),
            Payload::Error(error) => self.warning(error),
            Payload::Close(_) => Ok(()),
        }
    }

    /// Prints a line beside the text.
    fn line(&self, line: impl std::fmt::Display) {
        if !self.is_terminal {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let needs_break =
            std::mem::take(&mut state.is_mid_line) | std::mem::take(&mut state.is_replaceable);
        anstream::eprintln!("{}{line}", if needs_break { "\n" } else { "" });
    }

    /// Prints a status line, which replaces a status line before it.
    fn status(&self, line: impl std::fmt::Display) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let start = if std::mem::take(&mut state.is_mid_line) { "\n" } else { "\r\x1b[2K" };
        state.is_replaceable = true;
        anstream::eprint!("{start}{line}");
        let _ = io::stderr().flush();
    }

    pub(super) fn note(&self, text: &str) {
        self.line(text.dimmed());
    }

    /// Prints retries as one dim line, and ignores other notices.
    pub(super) fn notice(&self, notice: &Notice) {
        if let (true, Notice::Retrying { .. } | Notice::Gap { .. }) = (self.is_terminal, notice) {
            self.status(harmless(&notice.to_string()).dimmed());
        }
    }

    fn event(&self, view: &EventView, so_far: &Transcript) -> io::Result<()> {
        match view {
            EventView::Citations(block) => self.citations(block),
            EventView::Progress(update) => self.progress(update),
            EventView::Media(carousel) => self.media(carousel),
            // A block of the answer is part of the text.
            EventView::Markdown(block) => self.text(&format!("\n{}\n", block.content))?,
            EventView::Thought(trace) => self.line(harmless(&trace.thought).dimmed().italic()),
            EventView::UserError(error) => self.user_error(error),
            EventView::Reset(_) => self.reset(so_far)?,
            EventView::Interrupt(interrupt) => {
                let question = interrupt.message.as_deref().unwrap_or(&interrupt.reason);
                self.line(format!("{} {}", "?".yellow(), harmless(question)));
            }
            EventView::Other => {}
        }
        Ok(())
    }

    fn citations(&self, block: &CitationBlock) {
        for (index, citation) in block.citations.iter().enumerate() {
            let place = format!("[{}]", index + 1);
            let (title, uri) = (harmless(&citation.title), harmless(citation.uri.as_str()));
            self.line(format!("{} {title} {}", place.cyan(), uri.dimmed()));
        }
    }

    fn progress(&self, update: &ProgressUpdate) {
        const WIDTH: usize = 20;
        if !self.is_terminal {
            return;
        }
        let share = update.progress_percent.map(|share| share.clamp(0.0, 1.0));
        let bar = share.map_or_else(String::new, |share| {
            let filled = (share * WIDTH as f64).round() as usize;
            format!("{}{} {:.0} % ", "█".repeat(filled), "░".repeat(WIDTH - filled), share * 100.0)
        });
        self.status(format!("{}{}", bar.cyan(), harmless(&update.label)));
    }

    fn media(&self, carousel: &MediaCarousel) {
        for item in &carousel.items {
            let text = item.alt_text.as_deref().unwrap_or("media");
            self.line(format!("{} {}", harmless(text), harmless(item.url.as_str()).dimmed()));
        }
    }

    fn user_error(&self, error: &UserError) {
        let code = error.code.map_or_else(String::new, |code| format!(" {code}"));
        let retry = if error.retryable { " (worth another try)" } else { "" };
        let head = format!("{}{code}:", error.domain.as_str());
        self.line(format!("{} {}{retry}", head.yellow().bold(), harmless(&error.message)));
    }

    fn warning(&self, error: &StreamError) -> io::Result<()> {
        self.line(format!("{} {}", format!("{}:", error.code).yellow(), harmless(&error.message)));
        Ok(())
    }

    /// Handles a reset: it prints the text that is still valid again.
    fn reset(&self, transcript: &Transcript) -> io::Result<()> {
        if !self.is_terminal {
            let message =
                "a second attempt gave another answer: the printed text is void; ask again";
            return Err(io::Error::other(message));
        }
        self.line("the answer starts again here:".dimmed());
        self.text(transcript.text())
    }

    pub(super) fn end(&self, transcript: &Transcript) -> io::Result<()> {
        if !transcript.text().is_empty() && !transcript.text().ends_with('\n') {
            self.text("\n")?;
        }
        if let Some(reason) =
            transcript.close().map(|close| close.reason()).filter(|r| r != "completed")
        {
            let text = format!("the answer ended: {}", harmless(&reason));
            if self.is_terminal { self.note(&text) } else { anstream::eprintln!("{text}") }
        }
        Ok(())
    }

    /// Prints the failure as a block: what happened, what it means, what to do.
    pub(super) fn failure(&self, error: &CapError) -> io::Result<()> {
        let state = std::mem::take(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner));
        if state.is_mid_line && self.is_terminal {
            self.text("\n")?;
        } else if state.is_replaceable {
            anstream::eprintln!();
        }
        let code = error.as_runtime().map(|runtime| runtime.code().to_owned());
        let entry = code.as_deref().and_then(FaultKind::parse).map(FaultKind::entry);
        let title = entry.map_or("Failed", |entry| entry.title);
        anstream::eprintln!("{} {}", "✗".red().bold(), title.bold());
        anstream::eprintln!("  {}", harmless(&error.to_string()));
        if let Some(help) = self.help(error, entry) {
            anstream::eprintln!("  {} {help}", "help:".cyan());
        }
        Ok(())
    }

    /// The remedy for the command line, else the catalogue's.
    fn help(&self, error: &CapError, entry: Option<&Entry>) -> Option<String> {
        if let CapError::Connection(_) = error {
            let url = &self.url;
            return Some(format!(
                "does a server listen at {url}? `capstan serve` starts one, --url or CAPSTAN_URL \
                 names another"
            ));
        }
        let entry = entry?;
        let here = HERE.iter().find(|(kind, _)| *kind == entry.kind).map(|(_, help)| *help);
        Some(here.unwrap_or(entry.remedy).to_owned())
    }

    pub(super) fn countdown(&self, left: u64) -> io::Result<()> {
        match left {
            0 => self.status("trying again".dimmed()),
            _ => self.status(format!("trying again in {left} s; Ctrl-C ends the wait").dimmed()),
        }
        Ok(())
    }
}

/// Escapes control characters, so that an agent's text cannot control the terminal.
fn harmless(text: &str) -> String {
    let is_plain = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    text.chars().map(|c| if is_plain(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_command_the_terminal() {
        assert_eq!(harmless("a\u{1b}[2Jb\r\n\tc"), "a\u{fffd}[2Jb\u{fffd}\n\tc");
    }
}

//! What `capstan serve` prints once it listens: a line with the URL for programs, and commands to
//! try.

use std::fmt;

use owo_colors::OwoColorize as _;

/// The question in the commands to try.
const QUESTION: &str = "What is a capstan?";

pub(super) struct Greeting<'a> {
    /// The name under which the user started `capstan`.
    pub(super) program: &'a str,
    pub(super) listening: &'a str,
    /// The URL for this machine.
    pub(super) url: &'a str,
    /// The console's URL for this machine, if there is a console.
    pub(super) console: Option<&'a str>,
    pub(super) journal: &'a str,
    pub(super) needs_key: bool,
    /// Whether the default agent is the demo, which knows `/help`.
    pub(super) is_demo: bool,
    pub(super) agents: usize,
}

impl fmt::Display for Greeting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, url, .. } = self;
        let (flag, header) = if self.needs_key {
            (" --key \"$KEY\"", " -H \"authorization: Bearer $KEY\"")
        } else {
            ("", "")
        };
        let place = format!("--url {url}{flag}");
        writeln!(
            f,
            "{} listening on {}, journal {}\n",
            "capstan".bold(),
            self.listening,
            self.journal
        )?;
        match self.needs_key {
            true => writeln!(
                f,
                "Try, with a tenant's key in KEY (`{program} key new TENANT` makes one):"
            )?,
            false => writeln!(f, "Try:")?,
        }
        writeln!(f, "  {program} chat {place} '{QUESTION}'")?;
        if self.is_demo {
            writeln!(f, "  {program} chat {place} /help")?;
        }
        if self.agents > 1 {
            writeln!(f, "  {program} agents {place}")?;
        }
        let post =
            format!("curl -sN {url}/v1/assist -H 'content-type: application/json'{header} -d @-");
        writeln!(f, "  {program} request '{QUESTION}' | {post}")?;
        if let Some(console) = self.console {
            writeln!(f, "  {console}/console")?;
        }
        writeln!(f, "  {url}")
    }
}

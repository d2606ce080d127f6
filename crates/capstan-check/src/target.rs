//! The server under test, and the queries for it.

use std::fmt;
use std::time::Duration;

use url::Url;

/// The faces to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Faces {
    /// Whichever the server has.
    #[default]
    Auto,
    /// CAP alone.
    Cap,
    /// AG-UI alone.
    Agui,
}

/// The queries for the agent. The demo's are known; for other agents only the plain one is.
#[derive(Debug, Clone, Default)]
pub struct Queries {
    /// Any question; a short answer is best.
    pub plain: Option<String>,
    /// A question with a long answer, in many pieces.
    pub slow: Option<String>,
    /// A question at which the run fails.
    pub fault: Option<String>,
    /// A question at which the agent is silent for longer than the heartbeat interval.
    pub quiet: Option<String>,
}

/// Long enough for an agent that thinks, short enough to wait for.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// A server, and how to try it. It is plain data: set what differs from the default.
#[derive(Clone)]
pub struct Target {
    /// The base URL; paths of routes follow it.
    pub url: Url,
    /// The key of a tenant.
    pub key: Option<String>,
    /// The key of another one.
    pub other_key: Option<String>,
    /// The agent to ask, if not the default one.
    pub agent: Option<String>,
    /// The faces.
    pub faces: Faces,
    /// Whether to look for other faces, if all faces are to be checked.
    pub others: bool,
    /// The path of CAP requests, if it is not the usual one.
    pub assist_path: Option<String>,
    /// The path of AG-UI requests, if it is not the usual one.
    pub agui_path: Option<String>,
    /// The queries.
    pub queries: Queries,
    /// An origin of pages that may call the server.
    pub origin: String,
    /// The longest time of a complete response.
    pub timeout: Duration,
    /// Whether to make the checks that take half a minute.
    pub slow: bool,
    /// The checks to make; all if empty. What they depend on is made, too.
    pub only: Vec<String>,
}

impl Target {
    /// A server by its URL, with defaults.
    pub fn new(url: Url) -> Self {
        Self {
            url,
            key: None,
            other_key: None,
            agent: None,
            faces: Faces::Auto,
            others: true,
            assist_path: None,
            agui_path: None,
            queries: Queries::default(),
            origin: "http://localhost:3000".into(),
            timeout: DEFAULT_TIMEOUT,
            slow: false,
            only: Vec::new(),
        }
    }

    pub(crate) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    pub(crate) fn has_other_key(&self) -> bool {
        self.has_key() && self.other_key.is_some()
    }

    /// The URL of a path below the target's own.
    pub(crate) fn at(&self, path: &str) -> Result<Url, url::ParseError> {
        let base = self.url.as_str().split(['?', '#']).next().unwrap_or_default();
        format!("{}{path}", base.trim_end_matches('/')).parse()
    }
}

impl fmt::Debug for Target {
    /// Without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("url", &self.url.as_str())
            .field("faces", &self.faces)
            .finish_non_exhaustive()
    }
}

impl Queries {
    /// A plain sentence, for an agent that nothing is known of.
    pub(crate) const SENTENCE: &str = "What is a capstan? Answer in one or two sentences.";

    /// Fills in the demo's commands. The plain one contains the line separators at which some
    /// readers split lines.
    pub(crate) fn or_demo(self) -> Self {
        const PLAIN: &str = "/echo A capstan turns,\u{2028}and the rope comes in.\u{2029}It never \
         lets go:\u{85}what it holds, it holds.";
        let or = |given: Option<String>, command: &str| given.or_else(|| Some(command.to_owned()));
        Self {
            plain: or(self.plain, PLAIN),
            slow: or(self.slow, "/tokens 1500 --delay 20ms"),
            fault: or(self.fault, "/fault context_length_exceeded --retry-after 7"),
            quiet: or(self.quiet, "/hang"),
        }
    }
}

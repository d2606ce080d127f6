//! The type of a check: its row, its requirements, and the function that decides.

use std::fmt;
use std::pin::Pin;

use crate::lab::Lab;
use crate::outcome::Outcome;
use crate::target::Target;

/// The protocol that a check is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Face {
    /// CAP, and the HTTP around it.
    Cap,
    /// AG-UI.
    Agui,
    /// OpenAI's API.
    OpenAi,
    /// Anthropic's Messages.
    Messages,
    /// The AI SDK's UI message streams.
    AiSdk,
    /// A2A.
    A2a,
    /// Durable Streams, as far as they are read.
    Durable,
}

impl fmt::Display for Face {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cap => "cap",
            Self::Agui => "ag-ui",
            Self::OpenAi => "openai",
            Self::Messages => "messages",
            Self::AiSdk => "ai-sdk",
            Self::A2a => "a2a",
            Self::Durable => "durable",
        })
    }
}

/// What a check uses. Checks share runs: each run starts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A run of the plain query.
    Plain,
    /// A run that several clients start at once.
    Race,
    /// A run in profile v2.
    V2,
    /// A run that fails.
    Fault,
    /// A run that continues until it is stopped.
    Slow,
    /// A silent run, watched for longer than the heartbeat interval.
    Quiet,
    /// A run of the plain query in AG-UI.
    Agui,
    /// A run that fails, in AG-UI.
    AguiFault,
    /// A run of the plain query as a response of OpenAI's.
    OpenAi,
    /// And as a chat of theirs.
    Chat,
    /// A run of the plain query as a message of Anthropic's.
    Messages,
    /// A collected message.
    MessagesWhole,
    /// A message whose reader hangs up and comes back.
    MessagesCut,
    /// A message whose reader hangs up early and comes back.
    MessagesOnce,
    /// A run that fails, as a message of theirs.
    MessagesFault,
    /// A run of the plain query in a chat of the AI SDK's.
    AiSdk,
    /// A run that continues until it is stopped.
    AiSdkSlow,
    /// A run of the plain query as a task of A2A's.
    A2a,
    /// The key of a tenant.
    Key,
    /// The key of another tenant.
    OtherKey,
    /// A run of the other tenant.
    OtherRun,
}

impl Use {
    /// Whether it costs a run.
    pub fn is_run(self) -> bool {
        !matches!(self, Self::Key | Self::OtherKey)
    }

    /// The flags that it needs, as `docs/check.md` lists them; none if every server supports it.
    pub fn demand(self) -> Option<&'static str> {
        match self {
            Self::Plain | Self::Race | Self::V2 | Self::Agui => None,
            Self::OpenAi | Self::Chat | Self::AiSdk | Self::A2a => None,
            Self::Messages | Self::MessagesWhole | Self::MessagesCut | Self::MessagesOnce => None,
            Self::Fault | Self::AguiFault | Self::MessagesFault => Some("`--fault-query`"),
            Self::Slow | Self::AiSdkSlow => Some("`--slow-query`"),
            Self::Quiet => Some("`--quiet-query`, `--slow`"),
            Self::Key => Some("`--key`"),
            Self::OtherKey | Self::OtherRun => Some("`--other-key`"),
        }
    }

    /// Why it is impossible with this target.
    pub(crate) fn missing(self, target: &Target) -> Option<&'static str> {
        let queries = &target.queries;
        let (is_there, reason) = match self {
            Self::Plain | Self::Race | Self::V2 | Self::Agui => return None,
            Self::OpenAi | Self::Chat | Self::AiSdk | Self::A2a => return None,
            Self::Messages | Self::MessagesWhole | Self::MessagesCut | Self::MessagesOnce => {
                return None;
            }
            Self::Fault | Self::AguiFault | Self::MessagesFault => {
                (queries.fault.is_some(), "no query is known to fail: --fault-query")
            }
            Self::Slow | Self::AiSdkSlow => {
                (queries.slow.is_some(), "no query is known to take long: --slow-query")
            }
            Self::Quiet if !target.slow => (false, "takes 20 s: --slow"),
            Self::Quiet => {
                (queries.quiet.is_some(), "no query is known to be silent: --quiet-query")
            }
            Self::Key => (target.has_key(), "no tenant's key: --key"),
            Self::OtherKey | Self::OtherRun => {
                (target.has_other_key(), "no second tenant's key: --other-key")
            }
        };
        (!is_there).then_some(reason)
    }
}

pub(crate) type Judging<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// One promise, and the function that tests it.
pub struct Check {
    /// Its id, such as `cap.opening`.
    pub id: &'static str,
    /// The protocol that it is about.
    pub face: Face,
    /// The source of the promise: a section of PROTOCOL.md by its number, or a page in docs/ and
    /// its heading.
    pub clause: &'static str,
    /// The promise.
    pub title: &'static str,
    /// What it uses.
    pub uses: &'static [Use],
    /// Checks that it depends on. All of them stand before it in the table.
    pub after: &'static [&'static str],
    pub(crate) judge: for<'a> fn(&'a Lab) -> Judging<'a>,
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

//! The settings of the console.

use capstan_kit::identity::operators::Operators;
use schemars::JsonSchema;
use serde::Serialize;

/// The settings of the console.
#[derive(Debug, Clone)]
pub struct ConsoleSettings {
    /// Whether the console is on. A gateway that is open to everybody without tenants has none,
    /// unless there is an operator.
    pub enabled: bool,
    /// Whether runs can be stopped and erased there.
    pub actions: bool,
    /// Whether the console shows content. By default on request, and at once on a gateway without
    /// tenants.
    pub content: Option<ContentRule>,
    /// The URL of a trace, with `{trace_id}` in it.
    pub trace_url: Option<String>,
    /// The URL of a request's log, with `{request_id}` in it.
    pub logs_url: Option<String>,
}

impl Default for ConsoleSettings {
    fn default() -> Self {
        // On by default, because the console shows only what a key permits.
        Self { enabled: true, actions: true, content: None, trace_url: None, logs_url: None }
    }
}

impl ConsoleSettings {
    /// Whether the console is on: not on a gateway that is open to everybody without tenants,
    /// unless it has an operator.
    pub fn is_on(&self, is_local: bool, is_open: bool, operators: &Operators) -> bool {
        let is_for_all = is_local && is_open;
        self.enabled && (!is_for_all || !operators.current().is_empty())
    }

    /// Whether the console shows content: on a gateway without tenants at once, unless set
    /// otherwise.
    pub fn content_rule(&self, is_local: bool) -> ContentRule {
        let usual = if is_local { ContentRule::Shown } else { ContentRule::Asked };
        self.content.unwrap_or(usual)
    }
}

/// Whether the console shows content to visitors who may see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContentRule {
    /// Never.
    Never,
    /// On request.
    Asked,
    /// At once.
    Shown,
}

impl ContentRule {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::Never, Self::Asked, Self::Shown];

    /// The rule's name in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Asked => "asked",
            Self::Shown => "shown",
        }
    }

    /// Finds a rule by its name.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.word() == word)
    }
}

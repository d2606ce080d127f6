//! `[console]`: the page for operators.

use capstan_gateway::{ConsoleSettings, ContentRule};
use serde::Deserialize;
use url::Url;

use crate::cmd::Failure;

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ConsoleConfig {
    enabled: bool,
    /// A separate address.
    pub(super) listen: Option<String>,
    actions: bool,
    content: Option<String>,
    trace_url: Option<String>,
    logs_url: Option<String>,
}

impl Default for ConsoleConfig {
    fn default() -> Self {
        let ConsoleSettings { enabled, actions, .. } = ConsoleSettings::default();
        Self { enabled, listen: None, actions, content: None, trace_url: None, logs_url: None }
    }
}

impl ConsoleConfig {
    pub(super) fn settings(&self) -> Result<ConsoleSettings, Failure> {
        let of_word = |word: &String| {
            ContentRule::of_word(word).ok_or_else(|| {
                Failure::usage(format!(
                    "console.content: {word:?} is unknown; expected never, asked or shown"
                ))
            })
        };
        Ok(ConsoleSettings {
            enabled: self.enabled,
            actions: self.actions,
            content: self.content.as_ref().map(of_word).transpose()?,
            trace_url: template("trace_url", &self.trace_url, "{trace_id}")?,
            logs_url: template("logs_url", &self.logs_url, "{request_id}")?,
        })
    }

    /// Every key with its value. The default of `content` depends on other tables too.
    pub(super) fn values(&self, content: ContentRule) -> Vec<(&'static str, String)> {
        let shown = |word: &Option<String>| {
            word.as_ref().map_or_else(|| "none".into(), |word| format!("{word:?}"))
        };
        vec![
            ("enabled", self.enabled.to_string()),
            ("listen", shown(&self.listen)),
            ("actions", self.actions.to_string()),
            ("content", format!("{:?}", content.word())),
            ("trace_url", shown(&self.trace_url)),
            ("logs_url", shown(&self.logs_url)),
        ]
    }
}

/// Checks a URL with a place for an id. The console makes a link of it, so only https is allowed.
fn template(key: &str, url: &Option<String>, place: &str) -> Result<Option<String>, Failure> {
    let Some(url) = url else { return Ok(None) };
    let wrong = |what: &str| Failure::usage(format!("console.{key}: {what}"));
    if !url.contains(place) {
        return Err(wrong(&format!("{place} must stand in it")));
    }
    let parsed = Url::parse(&url.replace(place, "0")).map_err(|error| wrong(&error.to_string()))?;
    if parsed.scheme() != "https" {
        return Err(wrong("it must be https"));
    }
    Ok(Some(url.clone()))
}

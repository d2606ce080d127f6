//! Reads a table of the configuration into a kind's keys, and describes errors in it.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The keys of one agent's table, without `name` and `kind`.
pub(crate) type Keys = Map<String, Value>;

/// Reads a kind's own keys. An error names its key.
pub fn read_keys<T: DeserializeOwned>(keys: Map<String, Value>) -> Result<T, ConfigError> {
    serde_path_to_error::deserialize(Value::Object(keys)).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner().to_string();
        let words: Vec<&str> = inner.split('`').skip(1).step_by(2).collect();
        let (wrong, known) = match words.split_first() {
            Some((wrong, known)) if inner.starts_with("unknown field") => (Some(*wrong), known),
            Some((missing, _)) if inner.starts_with("missing field") => {
                return ConfigError::new(format!("the key `{missing}` is missing"));
            }
            _ => (None, &[][..]),
        };
        let top = path.split('.').next().filter(|top| *top != "?" && !top.is_empty());
        let key = wrong.or(top).map(str::to_owned);
        let message = wrong.map_or_else(|| inner.clone(), |wrong| format!("unknown key `{wrong}`"));
        let known = known.iter().map(|name| (*name).to_owned()).collect();
        ConfigError { key, value: None, message, known }
    })
}

/// An error in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    key: Option<String>,
    /// The wrong value, if it is a single word.
    value: Option<String>,
    message: String,
    known: Vec<String>,
}

impl ConfigError {
    /// An error about the table as a whole.
    pub fn new(message: impl Into<String>) -> Self {
        Self { key: None, value: None, message: message.into(), known: Vec::new() }
    }

    /// An error about a key.
    pub fn at(key: &str, message: impl Into<String>) -> Self {
        Self { key: Some(key.to_owned()), ..Self::new(message) }
    }

    /// Adds the wrong word, and the words that would be right.
    pub(crate) fn with_known(self, value: &str, known: Vec<String>) -> Self {
        Self { value: Some(value.to_owned()), known, ..self }
    }

    /// Removes words that are not right for this kind.
    pub(crate) fn without(mut self, names: &[&str]) -> Self {
        self.known.retain(|name| !names.contains(&name.as_str()));
        self
    }

    /// Adds further right words, if a key is wrong.
    pub(crate) fn with_also(mut self, names: &[&str]) -> Self {
        if !self.known.is_empty() && self.value.is_none() {
            self.known.extend(names.iter().map(|name| (*name).to_owned()));
        }
        self
    }

    /// The wrong key.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The wrong word of its value.
    pub fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }

    /// The words that would be right in place of an unknown one.
    pub fn known(&self) -> impl Iterator<Item = &str> {
        self.known.iter().map(String::as_str)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) if !self.message.contains(key.as_str()) => {
                write!(f, "{key}: {}", self.message)
            }
            _ => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ConfigError {}

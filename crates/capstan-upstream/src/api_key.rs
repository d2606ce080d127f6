//! API keys, from the environment or from a file. Their values are never printed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use reqwest::header::HeaderValue;

use crate::config::ConfigError;

/// The text that replaces a key.
const HIDDEN: &str = "[key]";

/// A variable whose name contains one of these words may hold a key.
const KEY_WORDS: [&str; 4] = ["KEY", "TOKEN", "SECRET", "PASSWORD"];
/// The shortest value that is treated as a key. Removing shorter ones would make a text unreadable.
const SHORTEST: usize = 8;

/// An API key. `Debug` does not show it, and `scrub` removes it from texts of others.
#[derive(Clone, Default)]
pub struct ApiKey {
    key: Option<String>,
    /// Other secrets of the same calls.
    others: Arc<[String]>,
}

impl ApiKey {
    /// No key.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds other secrets of the same calls, in headers or in the query.
    pub(crate) fn beside(self, others: Vec<String>) -> Self {
        Self { others: others.into_iter().filter(|other| !other.is_empty()).collect(), ..self }
    }

    /// Finds the key that a configuration names. `usual` is the variable to read if it names none.
    /// An empty name means that there is no key. An unset variable is no error:
    /// [`Kinds::key_warning`](crate::Kinds::key_warning) reports it.
    pub fn find(
        env: Option<&str>,
        file: Option<&str>,
        usual: Option<&str>,
    ) -> Result<Self, ConfigError> {
        let key = match (env, file) {
            (Some(env), Some(_)) if !env.is_empty() => {
                return Err(ConfigError::at("key_file", "give key_env or key_file, not both"));
            }
            (_, Some(path)) => Some(
                std::fs::read_to_string(path)
                    .map_err(|e| ConfigError::at("key_file", format!("{path}: {e}")))?,
            ),
            (env, None) => {
                env.or(usual).filter(|variable| !variable.is_empty()).and_then(in_variable)
            }
        };
        let key = key.map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
        let named = if file.is_some() { "key_file" } else { "key_env" };
        match key {
            None if file.is_some() => Err(ConfigError::at(named, "the key is empty")),
            Some(key) if HeaderValue::from_str(&key).is_err() => {
                Err(ConfigError::at(named, "the key holds characters that no header can carry"))
            }
            key => Ok(Self { key, ..Self::default() }),
        }
    }

    /// The keys in the environment of a process by name: from the gateway's own environment, and
    /// from the configured additions.
    pub(crate) fn in_environment(added: &BTreeMap<String, String>) -> Vec<Self> {
        let own = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let added = added.iter().map(|(name, value)| (name.clone(), value.clone()));
        let names_key =
            |name: &str| KEY_WORDS.iter().any(|word| name.to_ascii_uppercase().contains(word));
        own.chain(added)
            .filter(|(name, value)| names_key(name) && value.len() >= SHORTEST)
            .map(|(_, value)| Self { key: Some(value), ..Self::default() })
            .collect()
    }

    /// Whether there is a key.
    pub(crate) fn is_set(&self) -> bool {
        self.key.is_some() || !self.others.is_empty()
    }

    /// The key as a header value after a prefix. It is marked as sensitive, so that nothing prints
    /// it.
    pub(crate) fn header(&self, prefix: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("{prefix}{}", self.key.as_ref()?)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// The key itself, for a client that makes its own header. Empty if there is none.
    pub(crate) fn expose(&self) -> &str {
        self.key.as_deref().unwrap_or_default()
    }

    /// Removes the key from a text of another server: some servers repeat the key in errors.
    pub fn scrub(&self, text: &str) -> String {
        let secrets = self.key.iter().chain(self.others.iter());
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), HIDDEN))
    }
}

/// Reads a variable of the environment. Blanks count as unset. A value that is not Unicode is
/// converted lossily, because no header could carry it; the header then reports an error.
pub(crate) fn in_variable(name: &str) -> Option<String> {
    let held = std::env::var_os(name)?.to_string_lossy().trim().to_owned();
    (!held.is_empty()).then_some(held)
}

impl From<&str> for ApiKey {
    fn from(key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..Self::default() }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_set() { HIDDEN } else { "none" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_never_shows_itself() {
        let secret = ApiKey::from("sk-123");
        assert_eq!(format!("{secret:?}"), "[key]");
        assert_eq!(format!("{:?}", secret.header("Bearer ")), "Some(Sensitive)");
        assert_eq!(secret.scrub("bad key sk-123!"), "bad key [key]!");
    }

    #[test]
    fn a_key_comes_from_a_file_without_its_line_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "sk-9\n").unwrap();
        let secret = ApiKey::find(None, file.path().to_str(), None).unwrap();
        assert_eq!(secret.expose(), "sk-9");
    }

    #[test]
    fn a_variable_that_is_not_set_is_no_mistake_and_a_file_that_is_not_there_is_one() {
        assert_eq!(
            ApiKey::find(Some("CAPSTAN_NO_SUCH_KEY"), None, Some("PATH")).unwrap().expose(),
            ""
        );
        assert_eq!(ApiKey::find(None, None, Some("CAPSTAN_NO_SUCH_KEY")).unwrap().expose(), "");
        let missing = ApiKey::find(None, Some("/no/such/file"), Some("PATH")).unwrap_err();
        assert_eq!(missing.key(), Some("key_file"));
    }
}

//! Push notification configs: the address that a client names for a task.

use std::fmt;

use capstan_protocol::{DecodeError, Fault};
use http::{HeaderValue, Uri};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::version::{Version, with};
use capstan_engine::ask::invalid;

const LONGEST_URL: usize = 2048;
const LONGEST_WORD: usize = 1024;

/// A push notification config, in either version.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Config {
    #[serde(default)]
    pub(super) id: String,
    pub(super) url: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authentication: Option<Authentication>,
}

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Authentication {
    #[serde(skip_serializing_if = "String::is_empty")]
    scheme: String,
    /// In 0.3.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    schemes: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    credentials: String,
}

/// Token and credentials are the client's secrets.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("id", &self.id)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Checks the config and gives it an id. Without an id of its own it gets one from its address,
    /// so that a repeat has the same id.
    pub(super) fn checked(mut self) -> Result<Self, Fault> {
        let wrong =
            |place: &str, what: &str| Err(invalid(&DecodeError::value(place, what.to_owned())));
        if self.id.is_empty() {
            let hash = Sha256::digest(self.url.as_bytes());
            self.id = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        }
        if self.id.len() > LONGEST_WORD {
            return wrong("id", "is too long");
        }
        let url: Option<Uri> = self.url.parse().ok().filter(|_| self.url.len() <= LONGEST_URL);
        let is_plain = |url: &Uri| {
            matches!(url.scheme_str(), Some("http" | "https"))
                && url.authority().is_some_and(|a| !a.as_str().contains('@'))
        };
        if !url.as_ref().is_some_and(is_plain) {
            return wrong("url", "expected http://… or https://…, without a user");
        }
        let is_header =
            |word: &String| word.len() <= 4 * LONGEST_WORD && HeaderValue::from_str(word).is_ok();
        if !self.authorization().iter().chain([&self.token]).all(is_header) {
            return wrong("token", "and the credentials must fit into a header");
        }
        Ok(self)
    }

    pub(super) fn authorization(&self) -> Option<String> {
        let auth = self.authentication.as_ref().filter(|auth| !auth.credentials.is_empty())?;
        let scheme = Some(auth.scheme.as_str()).filter(|scheme| !scheme.is_empty());
        Some(format!(
            "{} {}",
            scheme.or(auth.schemes.first().map(String::as_str))?,
            auth.credentials
        ))
    }

    /// Encodes the config for an answer.
    pub(super) fn to_value(&self, version: Version, task: &str) -> Value {
        let own = serde_json::to_value(self).unwrap_or_default();
        match version {
            Version::V1 => with(own, "taskId", task),
            Version::V03 => json!({ "taskId": task, "pushNotificationConfig": own }),
            Version::Rest03 => {
                let name = format!("tasks/{task}/pushNotificationConfigs/{}", self.id);
                json!({ "name": name, "pushNotificationConfig": own })
            }
        }
    }
}

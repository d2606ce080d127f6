//! Headers and query parameters that an agent's table adds to its calls. Values from the
//! environment are secrets, so values are never printed.

use std::collections::BTreeMap;
use std::fmt;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use url::{Url, form_urlencoded};

use crate::api_key::in_variable;
use crate::config::ConfigError;

/// Headers that belong to the connection or to the adapter.
const OURS: [&str; 14] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// A header whose name contains one of these words has a secret, which may not be in the file.
const SECRET: [&str; 6] = ["authorization", "cookie", "key", "password", "secret", "token"];

/// A value: written in the file, or the name of a variable of the environment.
#[derive(Clone, Deserialize, Serialize)]
#[serde(untagged, expecting = "expected a string or { env = \"NAME\" }")]
enum Given {
    Text(String),
    Variable(Variable),
}

#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    env: String,
}

/// The pairs of a table `headers` or `query`, as they are written: a secret is named only.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct Pairs(BTreeMap<String, Given>);

/// `Debug` shows no values.
impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Pairs {
    /// Whether there is a header of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.keys().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// The pairs with their values. Adds values from the environment to `hidden`, so that they are
    /// removed from logs.
    fn read(
        &self,
        key: &str,
        hidden: &mut Vec<String>,
    ) -> Result<Vec<(&str, String)>, ConfigError> {
        let mut read = |(name, given): (&'_ String, &Given)| {
            let wrong = |why: String| ConfigError::at(key, format!("{name}: {why}"));
            match given {
                Given::Text(_) if is_secret(name) => {
                    Err(wrong("a secret must not be in the file; write { env = \"NAME\" }".into()))
                }
                Given::Text(text) => Ok(text.clone()),
                Given::Variable(Variable { env }) => {
                    let value =
                        in_variable(env).ok_or_else(|| wrong(format!("{env} is not set")))?;
                    hidden.push(value.clone());
                    Ok(value)
                }
            }
        };
        self.0.iter().map(|(name, given)| Ok((name.as_str(), read((name, given))?))).collect()
    }

    /// The pairs as headers, marked as sensitive.
    pub(crate) fn headers(&self, hidden: &mut Vec<String>) -> Result<HeaderMap, ConfigError> {
        let wrong = |name: &str, why: &str| ConfigError::at("headers", format!("{name}: {why}"));
        let mut headers = HeaderMap::new();
        for (text, value) in self.read("headers", hidden)? {
            let name: HeaderName = text.parse().map_err(|_| wrong(text, "is no header's name"))?;
            if OURS.contains(&name.as_str()) {
                return Err(wrong(text, "this header is the gateway's own"));
            }
            let mut value = HeaderValue::from_str(&value)
                .map_err(|_| wrong(text, "holds characters that no header can carry"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }

    /// Sets the pairs in the query of an address. Each name then occurs once.
    pub(crate) fn apply(&self, url: &mut Url, hidden: &mut Vec<String>) -> Result<(), ConfigError> {
        let before = hidden.len();
        for (name, value) in self.read("query", hidden)? {
            set_query(url, name, &value);
        }
        // An address contains the value in percent-encoding.
        let spelled = hidden
            .get(before..)
            .unwrap_or_default()
            .iter()
            .map(|value| form_urlencoded::byte_serialize(value.as_bytes()).collect::<String>());
        let spelled: Vec<String> = spelled.collect();
        hidden.extend(spelled);
        Ok(())
    }
}

/// Sets a query parameter, in place of an earlier one.
pub(crate) fn set_query(url: &mut Url, name: &str, value: &str) {
    let others: Vec<(String, String)> =
        url.query_pairs().into_owned().filter(|(known, _)| known != name).collect();
    url.query_pairs_mut().clear().extend_pairs(others).append_pair(name, value);
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pairs(value: serde_json::Value) -> Pairs {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn values_show_themselves_nowhere() {
        let pairs = pairs(json!({ "x-org": "org-123", "x-path": { "env": "PATH" } }));
        let mut hidden = Vec::new();
        let headers = pairs.headers(&mut hidden).unwrap();
        let path = std::env::var("PATH").unwrap();
        assert_eq!(
            (headers.get("x-path").unwrap().to_str().unwrap(), &hidden),
            (&*path, &vec![path.clone()])
        );
        for shown in [format!("{pairs:?}"), format!("{headers:?}")] {
            assert!(shown.contains("x-org"), "{shown}");
            assert!(!shown.contains("org-123") && !shown.contains(&path), "{shown}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_its_value_is_not() {
        for (given, why) in [
            (json!({ "Authorization": "Bearer sk-1" }), "must not be in the file"),
            (json!({ "Host": "sk-1" }), "the gateway's own"),
            (json!({ "a b": "sk-1" }), "no header's name"),
            (json!({ "x-a": "sk-1\n" }), "no header can carry"),
            (json!({ "x-a": { "env": "CAPSTAN_NO_SUCH" } }), "CAPSTAN_NO_SUCH is not set"),
        ] {
            let error = pairs(given).headers(&mut Vec::new()).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert_eq!(error.key(), Some("headers"));
            assert!(shown.contains(why) && !shown.contains("sk-1"), "{shown}");
        }
    }

    #[test]
    fn a_query_has_each_member_once() {
        let mut url: Url = "https://h/p?api-version=1&x=2".parse().unwrap();
        pairs(json!({ "api-version": "a b" })).apply(&mut url, &mut Vec::new()).unwrap();
        assert_eq!(url.as_str(), "https://h/p?x=2&api-version=a+b");
    }
}

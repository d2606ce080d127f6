//! The headers of the client's request. They are in the body, because only the body is stored with
//! a run.

use capstan_agent::Turn;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::Deserialize;

use super::{DIALECT, FILES_BETA, VERSION, content};

/// The members that replace headers, under the names that other hosts of the protocol use.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    anthropic_version: Option<String>,
    anthropic_beta: Vec<String>,
}

const BETA: &str = "anthropic-beta";

/// Returns the headers of a call. A configured version beats the client's. Betas add up.
pub(super) fn headers(turn: &Turn, configured: &HeaderMap) -> HeaderMap {
    let is_own = turn.dialect == Some(DIALECT);
    let head: Head = is_own.then(|| turn.payload.decode().ok()).flatten().unwrap_or_default();
    let mut headers = configured.clone();
    let version = head.anthropic_version.and_then(|version| HeaderValue::from_str(&version).ok());
    let version = version.unwrap_or(HeaderValue::from_static(VERSION));
    headers.entry("anthropic-version").or_insert(version);
    let mut switches: Vec<String> = Vec::new();
    let configured = configured.get_all(BETA).iter().filter_map(|value| value.to_str().ok());
    let listed = configured.flat_map(|value| value.split(',')).map(|item| item.trim().to_owned());
    let files = content::has_files(turn).then(|| FILES_BETA.to_owned());
    for switch in listed.chain(head.anthropic_beta).chain(files) {
        if !switch.is_empty() && !switches.contains(&switch) {
            switches.push(switch);
        }
    }
    if let Some(switches) =
        HeaderValue::from_str(&switches.join(",")).ok().filter(|value| !value.is_empty())
    {
        headers.insert(BETA, switches);
    }
    headers
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capstan_protocol::RawObject;

    use super::*;

    #[test]
    fn the_clients_headers_reach_the_provider() {
        let mut turn = Turn::new("Hi");
        let payload = r#"{"anthropic_version":"2026-10-21","anthropic_beta":["a","b"]}"#;
        turn.payload = Arc::new(RawObject::parse(payload).unwrap());
        let configured: HeaderMap =
            [(BETA.parse().unwrap(), HeaderValue::from_static("z, b"))].into_iter().collect();
        // Another protocol's member of that name is its own business.
        assert_eq!(headers(&turn, &HeaderMap::new())["anthropic-version"], VERSION);
        turn.dialect = Some(DIALECT);
        let told = headers(&turn, &configured);
        assert_eq!(
            (&told["anthropic-version"], &told[BETA]),
            (&"2026-10-21".parse().unwrap(), &"z,b,a".parse().unwrap())
        );
    }
}

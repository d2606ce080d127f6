//! `[cluster]`: this process among the gateways that share a journal.

use capstan_journal::Replica;
use serde::Deserialize;
use url::Url;

use super::overlay::Seconds;
use super::shown::Shown as _;
use crate::cmd::Failure;

/// All keys have defaults. A journal of one process ignores them.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClusterConfig {
    name: Option<String>,
    url: Option<String>,
    lease: Option<Seconds>,
    listen_url: Option<String>,
}

/// The shortest lease. A gateway sends ten heartbeats per lease, and each is a statement.
const SHORTEST: f64 = 0.5;

impl ClusterConfig {
    pub(super) fn advertise(&mut self, url: Option<String>) {
        self.url = url.or_else(|| self.url.take());
    }

    pub(super) fn replica(&self) -> Result<Replica, Failure> {
        let lease = self.lease.map_or(Replica::LEASE, Into::into);
        if lease.as_secs_f64() < SHORTEST {
            return Err(Failure::usage(format!(
                "cluster.lease: {} s is less than {SHORTEST} s",
                lease.as_secs_f64()
            )));
        }
        if let Some(url) = &self.url {
            let is_web = Url::parse(url)
                .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
            if !is_web {
                return Err(Failure::usage(format!(
                    "cluster.url: {url:?} is no http:// or https:// address"
                )));
            }
        }
        let name = self.name.clone().or_else(|| std::env::var("HOSTNAME").ok());
        let name = name.unwrap_or_else(|| Replica::default().name);
        Ok(Replica { name, url: self.url.clone(), lease, listen_url: self.listen_url.clone() })
    }

    /// Every key with its value.
    pub(super) fn values(&self) -> Vec<(&'static str, String)> {
        let quoted = |value: &Option<String>| {
            value.as_ref().map_or_else(|| "none".into(), |value| format!("{value:?}"))
        };
        vec![
            ("name", quoted(&self.name)),
            ("url", quoted(&self.url)),
            ("lease", self.lease.map_or(Replica::LEASE, Into::into).shown()),
            ("listen_url", quoted(&self.listen_url.as_deref().map(without_password))),
        ]
    }
}

impl std::fmt::Debug for ClusterConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.values()).finish()
    }
}

/// The URL without its password.
pub(super) fn without_password(url: &str) -> String {
    let Some(mut parsed) = Url::parse(url).ok().filter(|url| url.scheme().starts_with("postgres"))
    else {
        return url.to_owned();
    };
    let pairs: Vec<_> =
        parsed.query_pairs().into_owned().filter(|(name, _)| name != "password").collect();
    parsed.set_query(None);
    if !pairs.is_empty() {
        parsed.query_pairs_mut().extend_pairs(pairs);
    }
    let _ = parsed.set_password(None);
    parsed.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        for url in [
            "postgres://u:hunter2@h/db",
            "postgres://u@h/db?password=hunter2&host=x",
            "postgresql://u:hunter2@h:1/db",
        ] {
            assert!(!without_password(url).contains("hunter2"), "{url}");
        }
        assert_eq!(
            without_password("postgres://u:p@h/db?sslmode=disable"),
            "postgres://u@h/db?sslmode=disable"
        );
        assert_eq!(without_password("disk:./.capstan"), "disk:./.capstan");
    }
}

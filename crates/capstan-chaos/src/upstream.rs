//! Where requests are forwarded to: plain HTTP on a host and port.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// The server behind the proxy: `host:port` or `http://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// `host:port`, as sockets want it. Looked up at each connect, as names may move.
    address: String,
}

impl Upstream {
    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

/// Why a text names no upstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUpstream {
    /// TLS hides the frames.
    #[error(
        "only plain http can be broken on purpose, not {0}; expected HOST:PORT or http://HOST:PORT"
    )]
    NotPlain(String),
    /// Paths are the request's own.
    #[error("expected HOST:PORT or http://HOST:PORT, without the path {0}")]
    HasPath(String),
    /// There is no port, or none that can be read.
    #[error("expected HOST:PORT or http://HOST:PORT")]
    NoPort,
}

impl FromStr for Upstream {
    type Err = BadUpstream;

    fn from_str(text: &str) -> Result<Self, BadUpstream> {
        let rest = match text.split_once("://") {
            None => text,
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some((scheme, _)) => return Err(BadUpstream::NotPlain(scheme.to_owned())),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if let Some(start) = rest.find(['/', '?', '#']) {
            return Err(BadUpstream::HasPath(rest.get(start..).unwrap_or_default().to_owned()));
        }
        let (host, port) = rest.rsplit_once(':').ok_or(BadUpstream::NoPort)?;
        let is_host = !host.is_empty() && !host.contains(['@', ' ']);
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        if is_host && is_port {
            Ok(Self { address: rest.to_owned() })
        } else {
            Err(BadUpstream::NoPort)
        }
    }
}

impl From<SocketAddr> for Upstream {
    fn from(address: SocketAddr) -> Self {
        Self { address: address.to_string() }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_port_with_or_without_scheme() {
        for text in [
            "localhost:8787",
            "http://localhost:8787",
            "http://localhost:8787/",
            "HTTP://localhost:8787",
        ] {
            assert_eq!(text.parse::<Upstream>().unwrap().to_string(), "http://localhost:8787");
        }
        assert_eq!("[::1]:80".parse::<Upstream>().unwrap().address(), "[::1]:80");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |text: &str| text.parse::<Upstream>().unwrap_err();
        assert_eq!(error("https://example.com"), BadUpstream::NotPlain("https".into()));
        assert_eq!(error("http://localhost:1/v1"), BadUpstream::HasPath("/v1".into()));
        for text in
            ["", ":", "localhost", "localhost:", "localhost:0", "localhost:99999", "user@host:1"]
        {
            assert_eq!(error(text), BadUpstream::NoPort, "{text}");
        }
    }
}

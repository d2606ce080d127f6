//! The origin of a URL: scheme, host and port.

use http::Uri;

/// The origin of a URL, as browsers understand it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    scheme: String,
    host: String,
    port: u16,
}

impl Origin {
    /// Parses an origin without a path, such as `http://10.0.0.7:8080`.
    pub fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        Self::of_uri(&uri).filter(|_| is_bare)
    }

    /// The origin of a URL; `None` if it is not http or https, or names a user.
    pub fn of_url(url: &str) -> Option<Self> {
        Self::of_uri(&url.parse().ok()?)
    }

    fn of_uri(uri: &Uri) -> Option<Self> {
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let usual = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
        let host = authority.host().trim_end_matches('.').to_ascii_lowercase();
        Some(Self { scheme, host, port: authority.port_u16().unwrap_or(usual) })
            .filter(|o| !o.host.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_equal_by_scheme_host_and_port() {
        let own = Origin::parse("http://Hooks.internal:80").unwrap();
        for same in
            ["http://hooks.internal/", "http://hooks.internal/a?b", "HTTP://hooks.internal.:80/"]
        {
            assert_eq!(Origin::of_url(same).as_ref(), Some(&own), "{same}");
        }
        for other in [
            "https://hooks.internal/",
            "http://hooks.internal:8080/",
            "http://evil.example/",
            "http://hooks.internal@evil.example/",
            "http://hooks.internal.evil.example/",
            "ftp://hooks.internal/",
            "/a",
        ] {
            assert_ne!(Origin::of_url(other).as_ref(), Some(&own), "{other}");
        }
    }

    #[test]
    fn an_origin_alone_has_no_path_and_no_user() {
        for wrong in ["http://a/b", "http://a?b", "http://u@a", "a:80", "", "ws://a"] {
            assert_eq!(Origin::parse(wrong), None, "{wrong}");
        }
    }
}

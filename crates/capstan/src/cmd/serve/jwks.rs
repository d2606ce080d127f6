//! The public keys that check tokens: from a file, at the start and at each SIGHUP, or from a URL,
//! in the background. No request waits for either.

use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use capstan_gateway::{Jwt, KeySet, MOST_KEY_BYTES};
use url::Url;

use super::config::Config;
use crate::cmd::Failure;

/// The least time between two fetches because of unknown keys.
const MIN_INTERVAL: Duration = Duration::from_secs(60);
/// The time between two regular fetches.
const REFRESH_INTERVAL: Duration = Duration::from_secs(600);
/// The time between two fetches as long as there are no keys.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The source of the keys.
#[derive(Debug, Clone)]
pub(super) enum Source {
    File(PathBuf),
    Url(Url),
}

impl Source {
    /// The source, if tokens are configured.
    pub(super) fn of(config: &Config) -> Result<Option<Self>, Failure> {
        let Some(jwt) = config.jwt() else { return Ok(None) };
        match (jwt.jwks_file.clone(), jwt.jwks_url.clone()) {
            (Some(file), None) => Ok(Some(Self::File(file))),
            (None, Some(url)) if is_safe(&url) => Ok(Some(Self::Url(url))),
            (None, Some(_)) => {
                Err(Failure::usage("auth.jwt.jwks_url: must be https, or on this machine")
                    .with_help("somebody on the way could replace the keys, and make tokens"))
            }
            (None, None) | (Some(_), Some(_)) => {
                Err(Failure::usage("auth.jwt needs either jwks_file or jwks_url"))
            }
        }
    }

    /// Reads the keys from the file, if the source is a file.
    pub(super) fn read(&self, jwt: &Jwt) -> Result<(), Failure> {
        let Self::File(path) = self else { return Ok(()) };
        let wrong = |error: String| Failure::usage(format!("{}: {error}", path.display()));
        let file = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
        let mut text = Vec::new();
        let most = MOST_KEY_BYTES as u64 + 1;
        file.take(most).read_to_end(&mut text).map_err(|error| wrong(error.to_string()))?;
        jwt.replace(KeySet::parse(&text).map_err(wrong)?);
        Ok(())
    }

    /// Fetches the keys again and again, if the source is a URL, until the task is dropped.
    pub(super) async fn keep_fresh(self, jwt: Jwt) {
        let Self::Url(url) = self else { return };
        let mut has_keys = false;
        loop {
            match fetch(&url).await {
                Ok(keys) => {
                    tracing::debug!(keys = keys.len(), "the keys of tokens were fetched");
                    jwt.replace(keys);
                    has_keys = true;
                }
                Err(error) => {
                    tracing::warn!(
                        error,
                        "the keys of tokens cannot be fetched and stay as they were"
                    )
                }
            }
            tokio::time::sleep(if has_keys { MIN_INTERVAL } else { RETRY_INTERVAL }).await;
            if has_keys {
                let _ = tokio::time::timeout(REFRESH_INTERVAL - MIN_INTERVAL, jwt.wanted()).await;
            }
        }
    }
}

/// Anybody on the way could replace keys that travel without TLS.
fn is_safe(url: &Url) -> bool {
    let is_near = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && is_near)
}

/// Fetches a key set: with limits of size and time, and without redirects.
async fn fetch(url: &Url) -> Result<KeySet, String> {
    let client = capstan_client::transport::http_client()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(FETCH_TIMEOUT)
        .user_agent(concat!("capstan/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| error.without_url().to_string())?;
    let message_of = |error: reqwest::Error| error.without_url().to_string();
    let mut response = client.get(url.clone()).send().await.map_err(message_of)?;
    if response.status() != 200 {
        return Err(format!("it answers {}", response.status().as_u16()));
    }
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(message_of)? {
        text.extend_from_slice(&chunk);
        if text.len() > MOST_KEY_BYTES {
            break;
        }
    }
    KeySet::parse(&text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Fetches from a server with this response.
    async fn fetch_from(head: &str, body: Vec<u8>) -> Result<usize, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/keys", listener.local_addr().unwrap())).unwrap();
        let head = format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n").into_bytes();
        let serving = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.write_all(&head).await;
            let _ = socket.write_all(&body).await;
        });
        let keys = fetch(&url).await.map(|keys| keys.len());
        serving.await.unwrap();
        keys
    }

    #[tokio::test]
    async fn keys_are_fetched_within_bounds() {
        let keys = br#"{"keys":[{"kty":"RSA","kid":"a","n":"AQAB","e":"AQAB"}]}"#.to_vec();
        assert_eq!(fetch_from("200 OK", keys.clone()).await, Ok(1));
        assert!(fetch_from("500 No", keys).await.unwrap_err().contains("500"));
        let moved = fetch_from("302 Found\r\nlocation: http://127.0.0.1:1/", Vec::new()).await;
        assert!(moved.unwrap_err().contains("302"), "a redirect is not followed");
        assert!(
            fetch_from("200 OK", vec![b' '; 2 * MOST_KEY_BYTES])
                .await
                .unwrap_err()
                .contains("at most")
        );
    }

    #[test]
    fn keys_come_safely_or_from_this_machine() {
        let safe = |text: &str| is_safe(&Url::parse(text).unwrap());
        assert!(
            safe("https://id.example/keys")
                && safe("http://127.0.0.1:9/k")
                && safe("http://localhost/k")
        );
        assert!(
            !safe("http://id.example/keys")
                && !safe("file:///keys")
                && !safe("http://localhost.example/")
        );
    }
}

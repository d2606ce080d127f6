//! A receiver of webhooks, and the signature of the Standard Webhooks specification.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use capstan_agent::async_trait;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The specification's prefix of a secret.
const SECRET_PREFIX: &str = "whsec_";
/// The specification's bounds for the length of a secret.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A receiver of webhooks.
#[derive(Clone)]
pub struct Webhook {
    /// The receiver's URL.
    pub url: String,
    /// Whether the receiver may be on a private network.
    pub allow_private: bool,
    secret: Arc<[u8]>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Webhook {
    /// `secret` is `whsec_` and 24 to 64 bytes in base64; `None` if it is not.
    pub fn new(url: impl Into<String>, secret: &str) -> Option<Self> {
        let secret = BASE64_STANDARD.decode(secret.strip_prefix(SECRET_PREFIX)?).ok()?;
        let is_long_enough = SECRET_BYTES.contains(&secret.len());
        is_long_enough.then(|| Self {
            url: url.into(),
            allow_private: false,
            secret: secret.into(),
        })
    }

    /// A receiver that a client has named. Messages to it are not signed, because the tenant's
    /// secret is for the tenant's own webhook. The client knows them by its own token.
    pub fn unsigned(url: String, allow_private: bool) -> Self {
        Self { url, allow_private, secret: Arc::from([]) }
    }

    /// The headers of a message: an id, by which the receiver drops repeats, and with a secret the
    /// signature.
    pub fn headers(&self, id: &str, at: i64, body: &str) -> Vec<(&'static str, String)> {
        if self.secret.is_empty() {
            return vec![("webhook-id", id.to_owned())];
        }
        let signature = self.sign(id, at, body);
        vec![
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", at.to_string()),
            ("webhook-signature", signature),
        ]
    }

    /// The signature of a message.
    fn sign(&self, id: &str, at: i64, body: &str) -> String {
        // HMAC accepts a key of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.secret) else {
            return String::new();
        };
        mac.update(format!("{id}.{at}.{body}").as_bytes());
        format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// Posts webhooks. It follows no redirect. Unless the webhook allows private networks, it checks
/// the resolved address each time, and connects only to public addresses.
#[async_trait]
pub trait WebhookSender: Send + Sync + 'static {
    /// Returns the receiver's status, or why there is none.
    async fn post(
        &self,
        to: &Webhook,
        headers: &[(&'static str, String)],
        body: Bytes,
    ) -> Result<u16, String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_specifications() {
        // The example of the Standard Webhooks specification.
        let webhook =
            Webhook::new("https://a.example", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed =
            webhook.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(!format!("{webhook:?}").contains("MfKQ"));
        for wrong in ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!", "whsec_c2hvcnQ="] {
            assert!(Webhook::new("https://a.example", wrong).is_none(), "{wrong}");
        }
    }
}

//! The mark of a forwarded request: `<time>.<HMAC-SHA256 in hex>`, signed with the store's secret.

use axum::extract::Request;
use capstan_protocol::{Fault, FaultKind, Timestamp};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderName, HeaderValue};
use sha2::Sha256;

use capstan_engine::Engine;
use capstan_engine::faults::journal_fault;

pub(super) const HEADER: HeaderName = HeaderName::from_static("capstan-passed-on");

/// The greatest age of a mark, clock differences between gateways included.
const VALID_SECONDS: i64 = 60;
/// Separates these signatures from others with the same secret.
const PURPOSE: &[u8] = b"capstan passed on 1";

pub(super) struct Marks(Hmac<Sha256>);

impl Marks {
    /// The marks of the store that the gateway uses.
    pub(super) async fn of(engine: &Engine) -> Result<Self, Fault> {
        let secret = engine.store().secret().await.map_err(journal_fault)?;
        Self::new(secret.as_bytes())
    }

    fn new(secret: &[u8]) -> Result<Self, Fault> {
        let mac =
            Hmac::new_from_slice(secret).map_err(|_| Fault::new(FaultKind::JournalUnavailable))?;
        Ok(Self(mac))
    }

    pub(super) fn make(&self, tenant: &str, request: &Request, now: Timestamp) -> HeaderValue {
        let at = now.as_micros() / 1_000_000;
        let signature = self.signed(at, tenant, request).finalize().into_bytes();
        let hex = signature.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        HeaderValue::try_from(format!("{at}.{hex}")).unwrap_or(HeaderValue::from_static("-"))
    }

    /// Whether a gateway of this store made the mark for this request within the valid time.
    pub(super) fn is_ours(
        &self,
        mark: &HeaderValue,
        tenant: &str,
        request: &Request,
        now: Timestamp,
    ) -> bool {
        let read = || {
            let (at, hex) = mark.to_str().ok()?.split_once('.')?;
            let at: i64 = at.parse().ok()?;
            let byte = |from: usize| u8::from_str_radix(hex.get(from..from + 2)?, 16).ok();
            let signature: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
            let age = (now.as_micros() / 1_000_000).saturating_sub(at);
            let is_ours = self.signed(at, tenant, request).verify_slice(&signature?).is_ok();
            Some(is_ours && (-VALID_SECONDS..=VALID_SECONDS).contains(&age))
        };
        read().unwrap_or(false)
    }

    /// Each part is preceded by its length, so that no two requests have the same signed bytes.
    fn signed(&self, at: i64, tenant: &str, request: &Request) -> Hmac<Sha256> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let mac = self.0.clone().chain_update(PURPOSE).chain_update(at.to_be_bytes());
        [request.method().as_str(), tenant, path].into_iter().fold(mac, |mac, part| {
            mac.chain_update((part.len() as u64).to_be_bytes()).chain_update(part)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn request(method: &str, path: &str) -> Request {
        Request::builder().method(method).uri(path).body(Body::empty()).unwrap()
    }

    #[test]
    fn a_mark_is_for_one_request_of_one_tenant_for_a_minute() {
        let (marks, now) =
            (Marks::new(&[7; 32]).unwrap(), Timestamp::from_micros(1_000_000_000_000));
        let asked = request("POST", "/v1/assist?a=b");
        let mark = marks.make("acme", &asked, now);
        let later = |seconds: i64| Timestamp::from_micros(now.as_micros() + seconds * 1_000_000);
        for at in [-60, -5, 0, 5, 60] {
            assert!(marks.is_ours(&mark, "acme", &asked, later(at)), "{at}");
        }
        for at in [-61, 61] {
            assert!(!marks.is_ours(&mark, "acme", &asked, later(at)), "{at}");
        }
        assert!(!marks.is_ours(&mark, "acm", &asked, now));
        for (method, path) in
            [("GET", "/v1/assist?a=b"), ("POST", "/v1/assist?a=c"), ("POST", "/v1/assist")]
        {
            assert!(!marks.is_ours(&mark, "acme", &request(method, path), now), "{method} {path}");
        }
        assert!(!Marks::new(&[8; 32]).unwrap().is_ours(&mark, "acme", &asked, now));
    }

    #[test]
    fn an_invalid_mark_is_refused() {
        let (marks, now) = (Marks::new(&[7; 32]).unwrap(), Timestamp::from_micros(0));
        for mark in [
            &b""[..],
            b".",
            b"0.",
            b"0.zz",
            b"0.abc",
            b"x.ab",
            "0.äö".as_bytes(),
            b"\xff",
            b"9223372036854775807.00",
        ] {
            let mark = HeaderValue::from_bytes(mark).unwrap();
            assert!(!marks.is_ours(&mark, "acme", &request("GET", "/"), now), "{mark:?}");
        }
    }
}

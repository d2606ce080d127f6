//! Tickets for an EventSource, which cannot send a key. A ticket allows to read one stream for some
//! minutes.
//!
//! A ticket is `<end of validity>.<tenant in hex>.<HMAC-SHA256 in hex>`. The store's secret signs
//! it, so it survives a restart, and each process that shares the store can check it. The signature
//! covers the hash of the key for which it was issued. Without that key the ticket is invalid.

use capstan_journal::Run;
use capstan_protocol::{Fault, FaultKind, Timestamp};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderValue};
use sha2::Sha256;
use uuid::Uuid;

use crate::identity::tenants::KeyHash;
use capstan_engine::Engine;
use capstan_engine::faults::journal_fault;

/// How long a ticket is valid: long enough to open a page and to come back after a restart. A
/// ticket that leaks with a URL is soon worthless.
const VALID_SECONDS: i64 = 300;
/// How much the clocks of two processes, or of one before and after a restart, may differ.
const CLOCKS_APART: i64 = 60;
/// The response header with a ticket.
const HEADER: &str = "x-stream-ticket";

/// The route of a stream.
pub const STREAM: &str = "/v1/streams/{id}";

/// The route of the same stream in the Durable Streams protocol.
pub const DURABLE_STREAM: &str = "/v1/durable/{id}";

/// The routes that a ticket opens.
pub const OPENS: [&str; 2] = [STREAM, DURABLE_STREAM];

/// Separates these signatures from any other use of the secret.
const PURPOSE: &[u8] = b"capstan stream ticket 2";

/// Issues and checks tickets.
pub struct Tickets(Hmac<Sha256>);

/// The tenant and key for which a ticket is issued.
#[derive(Clone, Copy)]
pub struct Holder<'a> {
    pub tenant: &'a str,
    pub key: &'a KeyHash,
}

/// A ticket, and when it expires.
pub struct Ticket {
    pub text: String,
    pub expires_at: Timestamp,
}

impl Tickets {
    /// Loads the secret of the gateway's store.
    pub async fn load(engine: &Engine) -> Result<Self, Fault> {
        let secret = engine.store().secret().await.map_err(journal_fault)?;
        Self::new(secret.as_bytes())
    }

    fn new(secret: &[u8]) -> Result<Self, Fault> {
        let mac =
            Hmac::new_from_slice(secret).map_err(|_| Fault::new(FaultKind::JournalUnavailable))?;
        Ok(Self(mac))
    }

    /// Issues a ticket for a tenant's stream, valid from `now`.
    ///
    /// `now` is of a clock that cannot be set while the process runs. If it were set back, leaked
    /// tickets would stay valid for longer.
    pub fn issue(&self, holder: Holder<'_>, stream: Uuid, now: Timestamp) -> Ticket {
        let end = now.as_micros() / 1_000_000 + VALID_SECONDS;
        let signature = self.signed(holder, stream, end).finalize().into_bytes();
        let text = format!("{end}.{}.{}", hex(holder.tenant.as_bytes()), hex(&signature));
        Ticket { text, expires_at: Timestamp::from_micros(end * 1_000_000) }
    }

    /// Returns the tenant of a ticket, if it is for this stream, still valid, and issued for a key
    /// that the tenant has. Signatures are compared in constant time.
    pub fn check(
        &self,
        text: &str,
        stream: Uuid,
        now: Timestamp,
        keys_of: impl FnOnce(&str) -> Vec<KeyHash>,
    ) -> Option<String> {
        let mut parts = text.splitn(3, '.');
        let end: i64 = parts.next()?.parse().ok()?;
        let tenant = String::from_utf8(unhex(parts.next()?)?).ok()?;
        let signature = unhex(parts.next()?)?;
        let signed_by = |key: &KeyHash| {
            let holder = Holder { tenant: &tenant, key };
            self.signed(holder, stream, end).verify_slice(&signature).is_ok()
        };
        keys_of(&tenant).iter().find(|key| signed_by(key))?;
        // A longer rest means that the clock was set back since the ticket was issued.
        let left = end.saturating_sub(now.as_micros() / 1_000_000);
        (1..=VALID_SECONDS + CLOCKS_APART).contains(&left).then_some(tenant)
    }

    /// Only the last part has a variable length, so no two tickets sign the same bytes.
    fn signed(&self, holder: Holder<'_>, stream: Uuid, end: i64) -> Hmac<Sha256> {
        let mac = self.0.clone().chain_update(PURPOSE).chain_update(stream.as_bytes());
        let mac = mac.chain_update(end.to_be_bytes()).chain_update(holder.key.as_bytes());
        mac.chain_update(holder.tenant.as_bytes())
    }
}

/// Adds a ticket for the stream to the response, if the caller has sent a key. Without tenants no
/// ticket is needed.
pub async fn attach(
    engine: &Engine,
    run: &Run,
    key: Option<&KeyHash>,
    headers: &mut HeaderMap,
) -> Result<(), Fault> {
    if let Some(key) = key {
        let holder = Holder { tenant: &run.tenant, key };
        let ticket =
            Tickets::load(engine).await?.issue(holder, run.stream_id, engine.wall().unset());
        ticket.put_into(headers);
    }
    Ok(())
}

impl Ticket {
    pub fn put_into(&self, headers: &mut HeaderMap) {
        if let Ok(value) = HeaderValue::from_str(&self.text) {
            headers.insert(HEADER, value);
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(byte).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn a_ticket_is_for_one_stream_of_one_tenant_and_for_minutes() {
        let (tickets, stream, key) =
            (Tickets::new(b"secret").unwrap(), Uuid::now_v7(), KeyHash::of("k"));
        let keys = |_: &str| vec![KeyHash::of("other"), key.clone()];
        let ticket = tickets.issue(Holder { tenant: "acmé.1", key: &key }, stream, at(1000)).text;
        let last = 1000 + VALID_SECONDS - 1;
        assert_eq!(tickets.check(&ticket, stream, at(last), keys).as_deref(), Some("acmé.1"));
        assert_eq!(tickets.check(&ticket, stream, at(last + 1), keys), None);
        assert_eq!(
            tickets.check(&ticket, stream, at(1000 - CLOCKS_APART), keys).as_deref(),
            Some("acmé.1")
        );
        assert_eq!(
            tickets.check(&ticket, stream, at(1000 - CLOCKS_APART - 1), keys),
            None,
            "the clock was set back"
        );
        assert_eq!(tickets.check(&ticket, Uuid::now_v7(), at(1000), keys), None);
        assert_eq!(
            tickets.check(&ticket, stream, at(1000), |_| vec![KeyHash::of("other")]),
            None,
            "its key is gone"
        );
        assert_eq!(Tickets::new(b"another").unwrap().check(&ticket, stream, at(1000), keys), None);
    }

    #[test]
    fn a_ticket_that_was_changed_anywhere_is_none() {
        let (tickets, stream, key) =
            (Tickets::new(b"secret").unwrap(), Uuid::now_v7(), KeyHash::of("k"));
        let keys = |_: &str| vec![KeyHash::of("other"), key.clone()];
        let ticket = tickets.issue(Holder { tenant: "acme", key: &key }, stream, at(1000)).text;
        for place in 0..ticket.len() {
            let mut changed = ticket.clone().into_bytes();
            changed[place] = if changed[place] == b'1' { b'2' } else { b'1' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(tickets.check(&changed, stream, at(1000), keys), None, "{changed}");
        }
        for wrong in
            ["", ".", "..", "1..", "x.y.z", &ticket[..ticket.len() - 2], &format!("{ticket}00")]
        {
            assert_eq!(tickets.check(wrong, stream, at(1000), keys), None, "{wrong}");
        }
    }
}

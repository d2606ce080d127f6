//! Tickets: what an EventSource shows, since it cannot send a key. Read-only, for one stream, for
//! minutes.
//!
//! A ticket is `<end of validity>.<tenant in hex>.<HMAC-SHA256 in hex>`. It is signed with the
//! store's own secret, so it outlives a restart and every process that shares the store can check
//! it. Signed with it is the hash of the key that it stands in for: with that key it dies.

use capstan_journal::Run;
use capstan_protocol::{Fault, FaultKind, Timestamp};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderValue};
use sha2::Sha256;
use uuid::Uuid;

use crate::identity::tenants::KeyHash;
use capstan_engine::Engine;
use capstan_engine::faults::journal_fault;

/// Long enough to open a page and to come back after a restart; what leaks with a URL is soon worth
/// nothing.
const VALID_SECONDS: i64 = 300;
/// How much the clocks of two processes, or of one before and after a restart, may differ.
const CLOCKS_APART: i64 = 60;
/// The header in which a response brings one.
const HEADER: &str = "x-stream-ticket";

/// The route of a stream.
pub const STREAM: &str = "/v1/streams/{id}";

/// The route of the same stream in the Durable Streams protocol.
pub const DURABLE_STREAM: &str = "/v1/durable/{id}";

/// The routes that a ticket opens.
pub const OPENS: [&str; 2] = [STREAM, DURABLE_STREAM];

/// Keeps this signature apart from anything else that the secret may ever sign.
const PURPOSE: &[u8] = b"capstan stream ticket 2";

/// Signs and checks.
pub struct Tickets(Hmac<Sha256>);

/// Whose ticket it is to be, and for which of its keys.
#[derive(Clone, Copy)]
pub struct Holder<'a> {
    pub tenant: &'a str,
    pub key: &'a KeyHash,
}

/// A ticket, and until when it is valid.
pub struct Ticket {
    pub text: String,
    pub expires_at: Timestamp,
}

impl Tickets {
    /// Those of the store that the gateway uses.
    pub async fn load(engine: &Engine) -> Result<Self, Fault> {
        let secret = engine.journal.store().secret().await.map_err(journal_fault)?;
        Self::new(secret.as_bytes())
    }

    fn new(secret: &[u8]) -> Result<Self, Fault> {
        let mac =
            Hmac::new_from_slice(secret).map_err(|_| Fault::new(FaultKind::JournalUnavailable))?;
        Ok(Self(mac))
    }

    /// A ticket for a tenant's stream, valid from now on.
    ///
    /// By a clock that nobody sets while the process lives: set back, it would prolong what leaked.
    pub fn issue(&self, holder: Holder<'_>, stream: Uuid, now: Timestamp) -> Ticket {
        let end = now.as_micros() / 1_000_000 + VALID_SECONDS;
        let signature = self.signed(holder, stream, end).finalize().into_bytes();
        let text = format!("{end}.{}.{}", hex(holder.tenant.as_bytes()), hex(&signature));
        Ticket { text, expires_at: Timestamp::from_micros(end * 1_000_000) }
    }

    /// Whose ticket this is, if it is one for this stream, still valid, and of a key that its
    /// tenant has. Signatures are compared in constant time.
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
        // No ticket is valid for longer: one that seems to be is of a clock that was set back
        // since.
        let left = end.saturating_sub(now.as_micros() / 1_000_000);
        (1..=VALID_SECONDS + CLOCKS_APART).contains(&left).then_some(tenant)
    }

    /// Only the last part is of any length, so no two tickets are signed as the same bytes.
    fn signed(&self, holder: Holder<'_>, stream: Uuid, end: i64) -> Hmac<Sha256> {
        let mac = self.0.clone().chain_update(PURPOSE).chain_update(stream.as_bytes());
        let mac = mac.chain_update(end.to_be_bytes()).chain_update(holder.key.as_bytes());
        mac.chain_update(holder.tenant.as_bytes())
    }
}

/// Adds a ticket for its stream to the answer of one who has shown a key. Without tenants nobody
/// needs one.
pub async fn attach(
    engine: &Engine,
    run: &Run,
    key: Option<&KeyHash>,
    headers: &mut HeaderMap,
) -> Result<(), Fault> {
    if let Some(key) = key {
        let holder = Holder { tenant: &run.tenant, key };
        let ticket = Tickets::load(engine).await?.issue(holder, run.stream_id, engine.wall.unset());
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

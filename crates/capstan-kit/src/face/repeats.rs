//! Start once without a key. The SDKs send a request that failed again as it was, with nothing that
//! names it but a count; so a repeat is known by its body, and attaches to the run that it repeats
//! instead of starting, and paying for, another.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_journal::{NameKind, Named, Run, RunState};
use capstan_protocol::{Close, DecodeError, Fault};
use http::request::Parts;
use serde_json::json;
use uuid::Uuid;

use crate::face::FaceContext;
use crate::face::Request;
use crate::openapi::Header;
use capstan_engine::ask::{LONGEST_ID, invalid};
use capstan_engine::faults::journal_fault;
use capstan_engine::readers::ReaderGuard;
use capstan_engine::wall_clock::between;

/// As long as the SDKs wait for an answer unless told otherwise.
const WITHIN: Duration = Duration::from_secs(600);
/// So many runs of one body are looked at, the newest first.
const MOST: usize = 32;
/// What the keys of requests without one begin with. No header can hold the dot, so that no client
/// has such a key.
const KEYLESS: &str = "keyless\u{b7}";

/// Keeps the run that a repeat is for from others that repeat the same, until its answer has begun.
#[derive(Clone, Default)]
pub struct Held(Arc<Mutex<Option<ReaderGuard>>>);

impl Held {
    fn hold(&self, reading: ReaderGuard) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
    }

    /// The run is another's after all.
    pub fn release(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Whether its request repeats another one.
    pub fn is_repeat(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

pub const KEY: Header = Header {
    name: "Idempotency-Key",
    says: "The key under which the request runs at most once. The same request under the same key \
     attaches to its run and is answered under the same \
        id; another body is refused.",
    schema: || json!({ "type": "string", "maxLength": LONGEST_ID }),
};

/// The key that a request has in its head, if it has one.
pub fn key_of(parts: &Parts) -> Result<Option<&str>, Fault> {
    let Some(value) = parts.headers.get(KEY.name) else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| !key.is_empty() && key.len() <= LONGEST_ID);
    let wrong =
        || DecodeError::value(KEY.name, format!("must have 1 to {LONGEST_ID} plain characters"));
    key.map(Some).ok_or_else(|| invalid(&wrong()))
}

/// Which runs of the same body a request may be a repeat of.
pub type MayRepeat<'a> = &'a (dyn Fn(&Run) -> bool + Sync);

/// The key of a request: its own, that of the run which it repeats, or a new one. Without
/// `may_repeat` it repeats none.
pub async fn key(
    cx: &FaceContext,
    request: &Request<'_>,
    face: &str,
    may_repeat: Option<MayRepeat<'_>>,
) -> Result<String, Fault> {
    if let Some(key) = key_of(request.parts)? {
        return Ok(key.to_owned());
    }
    if let Some(may_repeat) = may_repeat
        && let Request { tenant, parts, hash, .. } = *request
        && let Some(run) = repeated(cx, tenant, parts, hash, face, may_repeat).await?
    {
        return Ok(run.key);
    }
    Ok(format!("{KEYLESS}{}", Uuid::now_v7()))
}

/// Whether nobody can name the run in a request: it was made up for one.
pub fn is_keyless(run: &Run) -> bool {
    run.key.starts_with(KEYLESS)
}

/// Whether an SDK says that it sends this request again.
pub fn is_repeat(parts: &Parts) -> bool {
    let count = parts.headers.get("x-stainless-retry-count").and_then(|count| count.to_str().ok());
    count.and_then(|count| count.parse::<u64>().ok()).is_some_and(|count| count > 0)
}

/// The newest run of this very body that may be what is repeated, and that nobody reads.
pub async fn repeated(
    cx: &FaceContext,
    tenant: &str,
    parts: &Parts,
    hash: [u8; 32],
    face: &str,
    may_repeat: MayRepeat<'_>,
) -> Result<Option<Run>, Fault> {
    let hash = hash.map(|byte| format!("{byte:02x}")).concat();
    let named = cx
        .engine
        .journal
        .store()
        .named(Named { limit: MOST, ..Named::all(tenant, NameKind::BodyHash, &hash) })
        .await;
    let now = cx.engine.wall.now();
    let is_candidate = |run: &Run| {
        run.face == face
            && is_keyless(run)
            && between(run.created_at, now) <= WITHIN
            && may_repeat(run)
    };
    for run in named.map_err(journal_fault)?.into_iter().filter(is_candidate) {
        if let Some(reading) = ReaderGuard::alone(&cx.engine, &run).await {
            if let Some(held) = parts.extensions.get::<Held>() {
                held.hold(reading);
            }
            return Ok(Some(run));
        }
    }
    Ok(None)
}

/// It runs, waits, or has an answer. After a failure a repeat is there to try again.
pub fn is_worth_it(run: &Run) -> bool {
    match run.state {
        RunState::Running | RunState::Waiting => true,
        RunState::Closed => run.fault.is_none() && run.reason.as_deref() != Some(Close::CANCELLED),
    }
}

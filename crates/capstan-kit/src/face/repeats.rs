//! Start once without a key. The SDKs repeat a failed request unchanged, with a retry count but
//! without an id. So the gateway knows a repeat by its body. It attaches the repeat to the first
//! run instead of starting, and billing, another one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_journal::{ArmedBy, NameKind, Named, Run, RunState};
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

/// A repeat comes within this time: the default timeout of the SDKs.
pub const WITHIN: Duration = Duration::from_secs(600);
/// How many runs with the same body are checked, the newest first.
const MOST: usize = 32;
/// The prefix of keys that the gateway makes up. No header can contain the dot, so no client can
/// send such a key.
const KEYLESS: &str = "keyless\u{b7}";

/// Holds the reader guard of the run to which a repeat attaches, until its answer has begun. So
/// two repeats of one request never share a run. It is an extension of the request.
#[derive(Clone, Default)]
pub struct ReaderGuardSlot(Arc<Mutex<Option<ReaderGuard>>>);

impl ReaderGuardSlot {
    fn set(&self, guard: ReaderGuard) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(guard);
    }

    /// Drops the guard: another request may have the run.
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

/// The key in the request's header, if it has one.
pub fn key_of(parts: &Parts) -> Result<Option<&str>, Fault> {
    let Some(value) = parts.headers.get(KEY.name) else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| !key.is_empty() && key.len() <= LONGEST_ID);
    let wrong =
        || DecodeError::value(KEY.name, format!("must have 1 to {LONGEST_ID} plain characters"));
    key.map(Some).ok_or_else(|| invalid(&wrong()))
}

/// Whether a request may repeat this run, which has the same body.
pub type MayRepeat<'a> = &'a (dyn Fn(&Run) -> bool + Sync);

/// Returns the request's own key, the key of the run that it repeats, or a new one. Without
/// `may_repeat` it repeats no run.
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
    Ok(new_key(""))
}

/// Makes up a key. A face may mark it, to read the mark from the run again.
pub fn new_key(mark: &str) -> String {
    format!("{KEYLESS}{mark}{}", Uuid::now_v7())
}

/// What a face has marked the run's key with, if the gateway made the key up.
pub fn mark_of(run: &Run) -> Option<&str> {
    let made = run.key.strip_prefix(KEYLESS)?;
    made.get(..made.len().checked_sub(uuid::fmt::Hyphenated::LENGTH)?)
}

/// Whether the gateway made up the run's key, so that no request can name it.
pub fn is_keyless(run: &Run) -> bool {
    run.key.starts_with(KEYLESS)
}

/// Whether an SDK marks this request as a repeat.
pub fn is_repeat(parts: &Parts) -> bool {
    let count = parts.headers.get("x-stainless-retry-count").and_then(|count| count.to_str().ok());
    count.and_then(|count| count.parse::<u64>().ok()).is_some_and(|count| count > 0)
}

/// Who starts the next attempt. An SDK retries a request that has a key and waits for one object,
/// so the client does. No client comes back for another run, so the gateway does.
pub fn armed_by(request: &Request<'_>) -> ArmedBy {
    let has_key = request.parts.headers.contains_key(KEY.name);
    if has_key && request.ask.wants.is_collected() { ArmedBy::Client } else { ArmedBy::Gateway }
}

/// Finds the newest run with this body that the request may repeat and that has no reader. `None`
/// if a newer run failed: then the request is another try.
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
        .store()
        .named(Named { limit: MOST, ..Named::all(tenant, NameKind::BodyHash, &hash) })
        .await;
    let now = cx.engine.now();
    let is_candidate =
        |run: &Run| run.face == face && is_keyless(run) && between(run.created_at, now) <= WITHIN;
    let runs = named.map_err(journal_fault)?.into_iter().filter(is_candidate);
    for run in runs.take_while(has_not_failed).filter(may_repeat) {
        if let Some(guard) = ReaderGuard::alone(&cx.engine, &run).await {
            if let Some(slot) = parts.extensions.get::<ReaderGuardSlot>() {
                slot.set(guard);
            }
            return Ok(Some(run));
        }
    }
    Ok(None)
}

fn has_not_failed(run: &Run) -> bool {
    match run.state {
        RunState::Running | RunState::Waiting => true,
        RunState::Closed => run.fault.is_none() && run.reason.as_deref() != Some(Close::CANCELLED),
    }
}

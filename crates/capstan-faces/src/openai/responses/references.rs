//! References to items of stored answers. An SDK sends them instead of the items. They are resolved
//! before anything else, so that the stored request is complete.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use capstan_journal::{Found, Run};
use capstan_protocol::{Fault, RawJson, decode};
use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::item::items;
use super::items::inputs;
use super::object::Echo;
use super::{NAME, fold};
use crate::face::FaceContext;
use crate::face::post::Posted;
use crate::text_or::TextOr;
use capstan_engine::cpu_offload;
use capstan_engine::faults::journal_fault;
use capstan_engine::lookup;

/// The number of answers that one request may refer to. Further references are refused.
const MOST_ANSWERS: usize = 64;
/// The type of a reference in JSON. A request without it is not parsed here.
const HINT: &[u8] = b"item_reference";

/// Replaces references in a request by the items that they name. References to unknown items stay,
/// and are refused later with their place.
///
/// A repeated request is recognised by its bytes before this. It gets the stored body of its run,
/// so that it attaches to that run even after the answers that it names have expired.
pub(super) async fn resolve(
    cx: &FaceContext,
    tenant: &str,
    key: Option<&str>,
    posted: Posted,
) -> Result<Posted, Fault> {
    let bytes = posted.body.bytes();
    if !bytes.windows(HINT.len()).any(|window| window == HINT) {
        return Ok(posted);
    }
    let hash = posted.hash.unwrap_or_else(|| posted.body.hash(None, NAME));
    let resolved = match repeated(cx, tenant, key, hash).await? {
        Some(stored) => Some(stored),
        None => with_items(cx, tenant, bytes).await?,
    };
    let read = |bytes: Bytes| cpu_offload::run(bytes.len(), || bytes.into());
    let body = resolved.map_or(posted.body, read);
    Ok(Posted { body, hash: Some(hash), load: posted.load })
}

/// The stored body of the run under a key, if the same request started the run.
async fn repeated(
    cx: &FaceContext,
    tenant: &str,
    key: Option<&str>,
    hash: [u8; 32],
) -> Result<Option<Bytes>, Fault> {
    let Some(key) = key else { return Ok(None) };
    let found = cx.engine.store().find(tenant, key).await.map_err(journal_fault)?;
    let Some(Found::Run(run)) = found else { return Ok(None) };
    if run.body_hash != hash {
        return Ok(None);
    }
    cx.engine.store().body(run.stream_id).await.map_err(journal_fault)
}

/// The body with the items that it refers to; `None` if it cannot be read.
async fn with_items(cx: &FaceContext, tenant: &str, body: &[u8]) -> Result<Option<Bytes>, Fault> {
    let Some((mut request, mut input)) = items_of(body) else { return Ok(None) };
    let mut answers = HashMap::new();
    for item in &mut input {
        let Some((id, stream)) = reference(item) else { continue };
        if !answers.contains_key(&stream) && answers.len() < MOST_ANSWERS {
            answers.insert(stream, items_in(cx, tenant, stream).await?);
        }
        let found = answers.get(&stream).and_then(|items| items.get(&id));
        if let Some(found) = found {
            *item = found.clone();
        }
    }
    let Ok(input) = serde_json::value::to_raw_value(&input) else { return Ok(None) };
    request.insert("input".to_owned(), input);
    Ok(serde_json::to_vec(&request).ok().map(Bytes::from))
}

type Members = BTreeMap<String, Box<RawValue>>;

/// The members of a request, and its items. A request that cannot be read is refused later, with
/// the place.
fn items_of(body: &[u8]) -> Option<(Members, Vec<Box<RawValue>>)> {
    let request: Members = serde_json::from_slice(body).ok()?;
    let items = serde_json::from_str(request.get("input")?.get()).ok()?;
    Some((request, items))
}

/// The id that a reference names, and the stream of its answer.
fn reference(item: &RawValue) -> Option<(String, Uuid)> {
    #[derive(Deserialize)]
    struct Head {
        #[serde(rename = "type")]
        kind: String,
        id: String,
    }
    let Head { kind, id } = serde_json::from_str(item.get()).ok()?;
    let stream = id.split('_').nth(1).and_then(|stream| stream.parse().ok())?;
    (kind == "item_reference").then_some((id, stream))
}

/// The input and output items of an answer, by id; none if another tenant or face has it.
async fn items_in(
    cx: &FaceContext,
    tenant: &str,
    stream: Uuid,
) -> Result<HashMap<String, Box<RawValue>>, Fault> {
    let found = lookup::by_stream(&cx.engine, tenant, &stream.to_string()).await.ok();
    let Some(run) = found.filter(|run| run.face == NAME) else { return Ok(HashMap::new()) };
    let all = items_of_run(cx, &run).await?;
    Ok(all
        .into_iter()
        .filter_map(|(id, item)| Some((id, RawValue::from_string(item).ok()?)))
        .collect())
}

/// The input and output items of a run, in their order.
pub(super) async fn items_of_run(
    cx: &FaceContext,
    run: &Run,
) -> Result<Vec<(String, String)>, Fault> {
    let stream = run.stream_id;
    let body = cx.engine.store().body(stream).await.map_err(journal_fault)?.unwrap_or_default();
    let echo = Echo::of(cx, &String::from_utf8_lossy(&body));
    let whole = fold::so_far(cx, run, &echo.offered).await?;
    let output = items(stream, &whole.transcript, echo.form(), "completed");
    let output = output
        .iter()
        .filter_map(|item| Some((item.id().to_owned(), serde_json::to_string(item).ok()?)));
    Ok(input_items(stream, &body).into_iter().chain(output).collect())
}

fn input_items(stream: Uuid, body: &[u8]) -> Vec<(String, String)> {
    #[derive(Deserialize)]
    struct Request {
        input: TextOr<RawJson>,
    }
    decode::from_slice::<Request>(body)
        .map(|request| inputs(stream, request.input))
        .unwrap_or_default()
}

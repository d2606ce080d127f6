//! Payloads other than packets. Each begins with a summary that contains no text. Footers repeat
//! the summaries, so that a journal opens without reading records.

use std::collections::BTreeSet;

use capstan_journal::backend::{faults_of, request_ids_of, trace_ids_of};
use capstan_journal::{
    ErrorKind, JournalError, NameKind, Run, RunState, Spent, StoredTurn, Tokens,
};
use capstan_protocol::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::format::In;
use super::names::{GlobalKey, Name, Names};

/// A run's record. `last_seq` and `bytes` are correct unless it is running: then its last packets
/// have the numbers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) run: Run,
    pub(crate) body_bytes: u64,
    /// The boot in which it was written; `None` if packets are synced, or the boot is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) boot: Option<String>,
    /// The session's id. A new session of the same name has another one.
    #[serde(default)]
    pub(crate) session_id: Uuid,
    /// The number of the run's turn; 0 if it has none.
    #[serde(default)]
    pub(crate) turn: u64,
    /// The stream whose questions the claim has answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answers: Option<Uuid>,
    /// The revision of the record.
    #[serde(default)]
    pub(crate) revision: u64,
    /// Members that a later build has added.
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
}

/// The part of a record that the index needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunSummary {
    pub(crate) state: RunState,
    pub(crate) updated_at: Timestamp,
    pub(crate) closed_at: Option<Timestamp>,
    /// The size of packets and body.
    pub(crate) size: u64,
    pub(crate) session_id: Uuid,
    pub(crate) turn: u64,
    pub(crate) lost_after: Option<u64>,
    pub(crate) tenant: Name,
    pub(crate) key: Name,
    /// The other names of the run, its session first.
    pub(crate) others: Vec<Name>,
}

/// The mark of a deleted owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GoneSummary {
    pub(crate) at: Timestamp,
    /// It was purged on request, so its bytes are overwritten.
    pub(crate) is_purged: bool,
    /// The claim that is still held; `None` for sessions and withdrawn claims.
    pub(crate) claim: Option<Name>,
    pub(crate) tenant: Name,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionSummary {
    pub(crate) name: Name,
    pub(crate) tenant: Name,
    pub(crate) used_at: Timestamp,
}

impl Record {
    /// The size of the stream.
    pub(crate) fn size(&self) -> u64 {
        self.run.bytes.saturating_add(self.body_bytes)
    }

    /// Encodes summary and record as a payload.
    pub(crate) fn encode(&self, names: &Names) -> Result<(Vec<u8>, Vec<u8>), JournalError> {
        Ok((self.summary(names).encode(), json(self)?))
    }

    pub(crate) fn read(payload: &[u8]) -> Option<Self> {
        let (_, json) = split_summary(payload)?;
        serde_json::from_slice(json).ok()
    }

    pub(crate) fn summary(&self, names: &Names) -> RunSummary {
        let run = &self.run;
        let mut others = vec![names.of(&run.tenant, NameKind::Session, &run.session)];
        for id in distinct(request_ids_of(run)) {
            others.extend([
                names.of(&run.tenant, NameKind::RequestId, id),
                names.global_key(GlobalKey::RequestId, id),
            ]);
        }
        others
            .extend(distinct(trace_ids_of(run)).map(|id| names.global_key(GlobalKey::TraceId, id)));
        others
            .extend(distinct(faults_of(run)).map(|code| names.global_key(GlobalKey::Fault, code)));
        others.extend(run.chat.as_deref().map(|chat| names.of(&run.tenant, NameKind::Chat, chat)));
        if run.body_hash != [0; 32] {
            others.push(names.of(&run.tenant, NameKind::BodyHash, &run.body_hash_text()));
        }
        RunSummary {
            state: run.state,
            updated_at: run.updated_at,
            closed_at: run.closed_at,
            size: self.size(),
            session_id: self.session_id,
            turn: self.turn,
            lost_after: run.lost_after,
            tenant: names.tenant(&run.tenant),
            key: names.of(&run.tenant, NameKind::Key, &run.key),
            others,
        }
    }
}

impl RunSummary {
    /// The name of its session.
    pub(crate) fn session(&self) -> Option<Name> {
        self.others.first().copied()
    }

    fn encode(&self) -> Vec<u8> {
        let state = match self.state {
            RunState::Running => 0,
            RunState::Waiting => 1,
            RunState::Closed => 2,
        };
        let mut bytes = vec![0, 0, state, u8::try_from(self.others.len()).unwrap_or(u8::MAX)];
        bytes.extend(self.updated_at.as_micros().to_le_bytes());
        bytes.extend(self.closed_at.map_or(i64::MIN, Timestamp::as_micros).to_le_bytes());
        bytes.extend(self.size.to_le_bytes());
        bytes.extend(self.session_id.as_bytes());
        bytes.extend(self.turn.to_le_bytes());
        bytes.extend(self.lost_after.unwrap_or(u64::MAX).to_le_bytes());
        let names = [&self.tenant, &self.key]
            .into_iter()
            .chain(&self.others)
            .take(2 + usize::from(u8::MAX));
        names.for_each(|name| bytes.extend(name));
        with_length(bytes)
    }

    pub(crate) fn read(summary: &[u8]) -> Option<Self> {
        let mut from = In(summary);
        let [state, count] = from.take()?;
        let state = match state {
            0 => RunState::Running,
            1 => RunState::Waiting,
            2 => RunState::Closed,
            _ => return None,
        };
        let updated_at = Timestamp::from_micros(i64::from_le_bytes(from.take()?));
        let closed_at = Some(i64::from_le_bytes(from.take()?)).filter(|at| *at != i64::MIN);
        Some(Self {
            state,
            updated_at,
            closed_at: closed_at.map(Timestamp::from_micros),
            size: u64::from_le_bytes(from.take()?),
            session_id: Uuid::from_bytes(from.take()?),
            turn: u64::from_le_bytes(from.take()?),
            lost_after: Some(u64::from_le_bytes(from.take()?)).filter(|lost| *lost != u64::MAX),
            tenant: from.take()?,
            key: from.take()?,
            others: (0..count).map(|_| from.take()).collect::<Option<_>>()?,
        })
    }
}

impl GoneSummary {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0, 0, u8::from(self.is_purged), u8::from(self.claim.is_some())];
        bytes.extend(self.at.as_micros().to_le_bytes());
        bytes.extend(self.tenant);
        bytes.extend(self.claim.unwrap_or_default());
        with_length(bytes)
    }

    pub(crate) fn read(summary: &[u8]) -> Option<Self> {
        let mut from = In(summary);
        let [is_purged, has_claim] = from.take()?;
        let at = Timestamp::from_micros(i64::from_le_bytes(from.take()?));
        let (tenant, claim) = (from.take()?, from.take()?);
        Some(Self {
            at,
            is_purged: is_purged == 1,
            claim: (has_claim == 1).then_some(claim),
            tenant,
        })
    }
}

impl SessionSummary {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0, 0];
        bytes.extend(self.used_at.as_micros().to_le_bytes());
        bytes.extend(self.name);
        bytes.extend(self.tenant);
        with_length(bytes)
    }

    pub(crate) fn read(summary: &[u8]) -> Option<Self> {
        let mut from = In(summary);
        let used_at = Timestamp::from_micros(i64::from_le_bytes(from.take()?));
        Some(Self { used_at, name: from.take()?, tenant: from.take()? })
    }
}

/// Encodes used tokens as a summary, which is the whole payload.
pub(crate) fn tokens_summary(tokens: &Tokens) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    for spent in [tokens.minute, tokens.day] {
        bytes.extend(spent.window.to_le_bytes());
        bytes.extend(spent.tokens.to_le_bytes());
    }
    with_length(bytes)
}

pub(crate) fn read_tokens(summary: &[u8]) -> Option<Tokens> {
    let mut from = In(summary);
    let mut spent = || {
        let window = i64::from_le_bytes(from.take()?);
        Some(Spent { window, tokens: u64::from_le_bytes(from.take()?) })
    };
    Some(Tokens { minute: spent()?, day: spent()? })
}

/// Encodes a time or a number as a summary, for turns and deleted turns.
pub(crate) fn number_summary(number: u64) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(number.to_le_bytes());
    with_length(bytes)
}

pub(crate) fn read_number(summary: &[u8]) -> Option<u64> {
    In(summary).take().map(u64::from_le_bytes)
}

/// Each text once.
fn distinct<'a>(words: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    words.collect::<BTreeSet<_>>().into_iter()
}

/// Writes the summary's length into its first two bytes.
fn with_length(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = u16::try_from(bytes.len().saturating_sub(2)).unwrap_or(u16::MAX).to_le_bytes();
    if let Some(place) = bytes.first_chunk_mut::<2>() {
        *place = length;
    }
    bytes
}

/// Splits a payload into its summary and the rest.
pub(crate) fn split_summary(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = payload.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))
}

pub(crate) fn json(value: &impl Serialize) -> Result<Vec<u8>, JournalError> {
    serde_json::to_vec(value).map_err(|error| {
        JournalError::new(ErrorKind::Unsupported, "cannot be stored").caused_by(error)
    })
}

/// An encoded turn without its number, which only the writer knows. Encoding a long turn takes
/// time, so it is done before the writer is called.
pub(crate) struct WrittenTurn {
    pub(crate) closed_at: Timestamp,
    json: Vec<u8>,
}

/// The beginning of an encoded turn without a number.
const UNNUMBERED: &[u8] = br#"{"number":0"#;

impl WrittenTurn {
    pub(crate) fn new(turn: StoredTurn) -> Result<Self, JournalError> {
        let json = json(&StoredTurn { number: 0, ..turn })?;
        debug_assert!(json.starts_with(UNNUMBERED));
        Ok(Self { closed_at: turn.closed_at, json })
    }

    /// The turn's text with this number, in two parts.
    pub(crate) fn numbered(&self, number: u64) -> (Vec<u8>, &[u8]) {
        let begin = format!(r#"{{"number":{number}"#).into_bytes();
        (begin, self.json.get(UNNUMBERED.len()..).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capstan_journal::{Attempt, Claim};

    #[test]
    fn turn_encoded_without_number_equals_numbered_turn() {
        let more = Map::from_iter([("later".to_owned(), Value::from(1))]);
        let (closed_at, said) = (Timestamp::from_micros(7), Value::from("a \"turn\""));
        let turn = StoredTurn { more, ..StoredTurn::new(Uuid::from_u128(3), closed_at, 2, said) };
        let written = WrittenTurn::new(turn.clone()).unwrap();
        let (begin, rest) = written.numbered(41);
        assert_eq!([&begin, rest].concat(), json(&StoredTurn { number: 41, ..turn }).unwrap());
    }

    #[test]
    fn summaries_round_trip() {
        let names = Names { salt: [7; 16] };
        let mut claim = Claim::new("local", "k", Uuid::now_v7(), Timestamp::now());
        (claim.chat, claim.request_id, claim.body_hash) =
            (Some("c".into()), Some("r".into()), [1; 32]);
        let mut run = claim.to_run();
        run.attempts
            .push(Attempt { request_id: Some("r2".into()), ..Attempt::new(1, claim.created_at) });
        let record = Record {
            run,
            body_bytes: 3,
            boot: None,
            session_id: Uuid::now_v7(),
            turn: 4,
            answers: None,
            revision: 5,
            more: Map::new(),
        };
        let (summary, json) = record.encode(&names).unwrap();
        let payload = [summary, json].concat();
        let (summary, _) = split_summary(&payload).unwrap();
        assert_eq!(RunSummary::read(summary).unwrap(), record.summary(&names));
        assert_eq!(
            record.summary(&names).others.len(),
            7,
            "session, two request ids twice, chat, body"
        );
        assert_eq!(Record::read(&payload).unwrap().run, record.run);
        let gone = GoneSummary {
            at: Timestamp::now(),
            is_purged: true,
            claim: Some([1; 16]),
            tenant: [2; 16],
        };
        assert_eq!(GoneSummary::read(split_summary(&gone.encode()).unwrap().0), Some(gone));
        let session = SessionSummary { used_at: Timestamp::now(), name: [1; 16], tenant: [2; 16] };
        assert_eq!(
            SessionSummary::read(split_summary(&session.encode()).unwrap().0),
            Some(session)
        );
        let tokens = Tokens {
            minute: Spent { window: 3, tokens: 4 },
            day: Spent { window: -5, tokens: u64::MAX },
        };
        assert_eq!(read_tokens(split_summary(&tokens_summary(&tokens)).unwrap().0), Some(tokens));
        assert_eq!(read_number(split_summary(&number_summary(9)).unwrap().0), Some(9));
    }
}

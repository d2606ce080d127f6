//! The JSON objects of the console's routes. Their doc comments become descriptions in
//! `/openapi.json`.

use capstan_journal::{Attempt, ContinuedBy, Run, RunState, Status, Viewers};
use capstan_protocol::{AguiErrorCode, CATALOGUE, ErrorDomain, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::sentence;
use super::visitor::{Act, Visitor, VisitorKind};
use crate::Console;
use crate::settings::ContentRule;
use capstan_engine::live::{Parting, Viewer};
use capstan_kit::identity::operators::Right;

/// The visitor, and the visitor's rights.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Me {
    pub(crate) who: VisitorKind,
    /// The tenant's or the operator's name.
    pub(crate) name: String,
    /// The tenants whose runs are visible; `*` for all.
    pub(crate) tenants: Vec<String>,
    pub(crate) may: Vec<Right>,
    pub(crate) content: ContentRule,
    /// Whether runs can be stopped and erased here.
    pub(crate) actions: bool,
    /// The URL of a trace, with `{trace_id}` in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace_url: Option<String>,
    /// The URL of a request's log, with `{request_id}` in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logs_url: Option<String>,
    pub(crate) version: &'static str,
    /// Whether several gateways may share the journal.
    pub(crate) replicas: bool,
}

/// The health of this process.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Health {
    pub(crate) state: ServerState,
    /// Running runs.
    pub(crate) running: u64,
    /// Waiting runs.
    pub(crate) waiting: u64,
    /// Open responses.
    pub(crate) responses: u64,
    /// The 95th percentile of the time from a packet to its commit. Null without recent packets.
    pub(crate) append_p95_ms: Option<f64>,
    /// Faults of the last five minutes.
    pub(crate) faults_5m: u64,
    pub(crate) version: &'static str,
    pub(crate) uptime_seconds: f64,
    /// The number of this gateway, if several share the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replica: Option<ReplicaPlace>,
}

/// Whether the server accepts runs.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ServerState {
    /// It accepts runs.
    Ready,
    /// It shuts down: runs end, and none begins.
    Draining,
    /// It cannot write its journal.
    JournalBroken,
}

/// The number of a gateway among those that share the journal.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ReplicaPlace {
    pub(crate) name: String,
    /// From 1, by age.
    pub(crate) n: usize,
    /// The number of live gateways.
    pub(crate) of: usize,
}

/// A run in a list, without content.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct RunRow {
    pub(crate) stream_id: Uuid,
    pub(crate) tenant: String,
    pub(crate) agent: String,
    /// The protocol of the request.
    pub(crate) face: String,
    /// The session; null if its name is not visible.
    pub(crate) session: Option<String>,
    /// The key under which it was started.
    pub(crate) key: String,
    pub(crate) state: Status,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) closed_at: Option<Timestamp>,
    /// Milliseconds from the request to the first packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_packet_ms: Option<u64>,
    /// Milliseconds from the request to the end, or to now.
    pub(crate) duration_ms: u64,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Tokens, as limits count them.
    pub(crate) tokens: u64,
    /// The fault of the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<String>,
    /// The fault's headline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault_title: Option<&'static str>,
    pub(crate) attempts: Vec<AttemptDot>,
    /// When the last packet was written, while this process writes the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_packet_at: Option<Timestamp>,
    /// The model that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    /// The gateway that runs it, if several share the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
}

/// An attempt in a list.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct AttemptDot {
    pub(crate) n: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<String>,
}

/// Milliseconds from one time to another, at least zero.
pub(super) fn ms_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from((to.as_micros() - from.as_micros()) / 1000).unwrap_or(0)
}

impl RunRow {
    pub(crate) fn new(console: &Console, visitor: &Visitor, run: &Run) -> Self {
        let session = visitor.sees_sessions_of(console, &run.tenant).then(|| run.session.clone());
        let first = run.attempts.iter().find_map(|attempt| attempt.first_packet_at);
        let fault = shown_fault(run);
        Self {
            stream_id: run.stream_id,
            tenant: run.tenant.clone(),
            agent: run.agent.clone(),
            face: run.face.clone(),
            session,
            key: run.key.clone(),
            state: Status::of(run),
            created_at: run.created_at,
            updated_at: run.updated_at,
            closed_at: run.closed_at,
            first_packet_ms: first.map(|first| ms_between(run.created_at, first)),
            duration_ms: ms_between(
                run.created_at,
                run.closed_at.unwrap_or_else(|| console.engine.now()),
            ),
            packets: run.last_seq,
            bytes: run.bytes,
            tokens: run.tokens,
            fault: fault.map(str::to_owned),
            fault_title: fault.and_then(sentence::title_of),
            attempts: run
                .attempts
                .iter()
                .map(|attempt| AttemptDot { n: attempt.n, fault: attempt.fault.clone() })
                .collect(),
            last_packet_at: console
                .engine
                .live(run.stream_id)
                .and_then(|facts| facts.last_append()),
            model: run.model.clone(),
            owner: run.owner.clone().filter(|_| visitor.sees_server()),
        }
    }
}

/// The fault of a run. For an open run, the fault of its last failed attempt.
pub(super) fn shown_fault(run: &Run) -> Option<&str> {
    let earlier = || run.attempts.iter().rev().find_map(|attempt| attempt.fault.as_deref());
    match run.state {
        RunState::Running => run.fault.as_deref().or_else(earlier),
        RunState::Waiting | RunState::Closed => run.fault.as_deref(),
    }
}

/// A page of runs, newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunRows {
    pub(crate) runs: Vec<RunRow>,
    /// `before` of the next page, if there may be one.
    pub(crate) next: Option<Uuid>,
    /// The oldest record that was examined; null if all were.
    pub(crate) looked_back_to: Option<Timestamp>,
    /// Whether all records were examined.
    pub(crate) complete: bool,
}

/// A request that was refused, without anything that it sent.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Refusal {
    pub(crate) at: Timestamp,
    /// Its X-Request-ID.
    pub(crate) request_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// The route; empty if no route matched.
    pub(crate) route: String,
    pub(crate) code: &'static str,
    pub(crate) title: &'static str,
    /// The member or limit, if the name contains nothing that the request sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    pub(crate) status: u16,
    /// The seconds of `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after: Option<u64>,
    pub(crate) ms: u64,
}

/// The results of a search for an id.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Findings {
    pub(crate) hits: Vec<Hit>,
    pub(crate) refusals: Vec<Refusal>,
    /// What was searched, and how far back.
    pub(crate) looked: Vec<Looked>,
}

/// One result of a search.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Hit {
    pub(crate) kind: HitKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stream_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
    /// The packet that a cursor names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seq: Option<u64>,
}

/// The kind of id that matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HitKind {
    Stream,
    Cursor,
    Key,
    RequestId,
    Session,
    Trace,
}

/// A place that was searched.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Looked {
    /// What was searched.
    #[serde(rename = "where")]
    pub(crate) place: &'static str,
    /// How far back the search went; null if to the beginning.
    pub(crate) back_to: Option<Timestamp>,
}

/// All details of a run except content.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunDetails {
    pub(crate) row: RunRow,
    /// The state of the run in a sentence.
    pub(crate) sentence: String,
    pub(crate) attempts: Vec<AttemptDetails>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<FaultDetails>,
    /// The X-Request-ID of the request that started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace_id: Option<String>,
    pub(crate) max_attempts: u32,
    /// The next attempt does not begin before this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) not_before: Option<Timestamp>,
    /// The reason that CLOSE gives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Map<String, Value>>,
    /// The viewers of the run in this process, present and recent.
    pub(crate) viewers: Vec<ViewerDetails>,
    /// A summary of its viewers up to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) viewers_sum: Option<Viewers>,
    pub(crate) may: May,
}

/// A viewer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ViewerDetails {
    pub(crate) joined_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<Parting>,
    pub(crate) cursor_at_start: u64,
    /// If its request repeats an earlier one: the number of complete blocks or items of the answer
    /// that the client had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attached_behind: Option<u64>,
    /// The last packet that was written to its socket.
    pub(crate) cursor: u64,
}

impl From<Viewer> for ViewerDetails {
    fn from(viewer: Viewer) -> Self {
        Self {
            joined_at: viewer.joined_at,
            left_at: viewer.left.map(|(at, _)| at),
            ended: viewer.left.map(|(_, parting)| parting),
            cursor_at_start: viewer.start,
            attached_behind: viewer.attached_behind,
            cursor: viewer.cursor(),
        }
    }
}

/// What the visitor may do with this run.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct May {
    pub(crate) content: bool,
    pub(crate) act: bool,
}

/// An attempt, from the run's record.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AttemptDetails {
    pub(crate) n: u32,
    pub(crate) began_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_packet_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from_seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to_seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault_title: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) severity: Option<String>,
    /// The packet with the fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault_seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after: Option<f64>,
    /// The packet to which the attempt reset the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reset_to: Option<u64>,
    /// How much it repeated of the earlier attempt, which was not written again.
    pub(crate) swallowed_bytes: u64,
    /// How the attempt continued an answer that had broken off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) continued_by: Option<ContinuedBy>,
    /// Calls of upstreams.
    pub(crate) calls: u64,
    /// The members of a route that the attempt called.
    pub(crate) members: Vec<MemberDetails>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace_id: Option<String>,
}

/// An attempt's calls of one member of a route.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MemberDetails {
    pub(crate) name: String,
    pub(crate) calls: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Map<String, Value>>,
}

impl From<&Attempt> for AttemptDetails {
    fn from(attempt: &Attempt) -> Self {
        let members = attempt.members.iter().map(|member| MemberDetails {
            name: member.name.clone(),
            calls: member.calls,
            fault: member.fault.clone(),
            usage: member.usage.clone(),
        });
        Self {
            n: attempt.n,
            began_at: attempt.began_at,
            first_packet_at: attempt.first_packet_at,
            ended_at: attempt.ended_at,
            from_seq: attempt.from_seq,
            to_seq: attempt.to_seq,
            fault: attempt.fault.clone(),
            fault_title: attempt.fault.as_deref().and_then(sentence::title_of),
            severity: attempt.severity.clone(),
            fault_seq: attempt.fault_seq,
            retry_after: attempt.retry_after,
            reset_to: attempt.reset_to,
            swallowed_bytes: attempt.swallowed_bytes,
            continued_by: attempt.continued_by,
            calls: attempt.calls,
            members: members.collect(),
            usage: attempt.usage.clone(),
            request_id: attempt.request_id.clone(),
            trace_id: attempt.trace_id.clone(),
        }
    }
}

/// A fault, with its entry in the catalogue. Faults of an agent's own have no entry.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct FaultDetails {
    pub(crate) code: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) severity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) domain: Option<ErrorDomain>,
    /// The meaning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) meaning: Option<&'static str>,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<&'static str>,
    /// The HTTP status that clients see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// The code that clients of AG-UI see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agui_code: Option<AguiErrorCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after: Option<f64>,
    /// The message of the run's error, for visitors who may see content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<Value>,
    /// How many other visible runs of the last hour had it, at most 100.
    pub(crate) others_last_hour: u64,
}

impl FaultDetails {
    fn new(code: &str, attempt: Option<&Attempt>) -> Self {
        let entry = CATALOGUE.iter().find(|entry| entry.code == code);
        let severity = attempt.and_then(|attempt| attempt.severity.clone());
        Self {
            code: code.to_owned(),
            title: entry.map(|entry| entry.title),
            severity: severity.or_else(|| entry.map(|entry| entry.severity.to_string())),
            domain: entry.map(|entry| entry.domain),
            meaning: entry.map(|entry| entry.meaning),
            remedy: entry.map(|entry| entry.remedy),
            status: entry.map(|entry| entry.status),
            agui_code: entry.map(|entry| entry.agui),
            retry_after: attempt.and_then(|attempt| attempt.retry_after),
            ..Self::default()
        }
    }
}

impl RunDetails {
    /// Builds the answer from the record.
    pub(crate) fn new(console: &Console, visitor: &Visitor, run: &Run) -> Self {
        let facts = console.engine.live(run.stream_id);
        let viewers = facts.map(|facts| facts.viewers()).unwrap_or_default();
        let of_fault = |code: &str| {
            let severity =
                run.attempts.iter().rev().find(|attempt| attempt.fault.as_deref() == Some(code));
            FaultDetails::new(code, severity)
        };
        Self {
            row: RunRow::new(console, visitor, run),
            sentence: sentence::of(run, console.engine.now()),
            attempts: run.attempts.iter().map(AttemptDetails::from).collect(),
            fault: shown_fault(run).map(of_fault),
            request_id: run.request_id.clone(),
            trace_id: run.trace_id.clone(),
            max_attempts: run.max_attempts,
            not_before: run.not_before,
            reason: run.reason.clone(),
            usage: run.usage.clone(),
            viewers: viewers.into_iter().map(ViewerDetails::from).collect(),
            viewers_sum: run.viewers,
            may: May {
                content: visitor.may_read(console, &run.tenant),
                act: visitor.may_act(console, Act::Stop, &run.tenant),
            },
        }
    }
}

/// The state of a run after a stop.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StoppedRun {
    pub(crate) state: Status,
    /// The reason that CLOSE gives.
    pub(crate) reason: Option<String>,
}

/// The packets of a run without content: seq, milliseconds since the run's request, op, type of an
/// event, bytes.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Marks {
    pub(crate) marks: Vec<Mark>,
    /// Whether the whole range was examined.
    pub(crate) complete: bool,
    /// The last packet that was examined.
    pub(crate) read_to: u64,
    /// Whether packets between these were left out.
    pub(crate) sampled: bool,
}

/// One packet.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Mark(
    pub(crate) u64,
    pub(crate) i64,
    pub(crate) &'static str,
    pub(crate) Option<String>,
    pub(crate) usize,
);

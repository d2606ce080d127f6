//! The gateway's metrics, for Prometheus.

mod journal;
mod routes;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use capstan_protocol::{Close, FaultKind, StreamOpCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use serde_json::Value;

use crate::face::{FaceObserver, Faces};
use capstan_engine::Engine;
use capstan_engine::events::{Happened, RunEvent, RunObserver};
pub(crate) use journal::JournalMetrics;
pub(crate) use routes::RouteMetrics;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Label {
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    outcome: &'static str,
    agent: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failed {
    code: &'static str,
    agent: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Passed {
    outcome: &'static str,
}

/// The label of a fault without an agent: a refused request.
pub(crate) const NO_AGENT: &str = "";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FaceLabel {
    face: &'static str,
    name: String,
}

impl FaceLabel {
    fn new(face: &'static str, name: &str) -> Self {
        Self { face, name: name.to_owned() }
    }
}

/// The gateway's numbers.
pub(crate) struct Metrics {
    registry: Registry,
    runs: Family<Ended, Counter>,
    faults: Family<Failed, Counter>,
    tokens: Family<Label, Counter>,
    packets: [Counter; 4],
    /// By face and event type.
    face_events: HashMap<(&'static str, &'static str), Counter>,
    face_errors: Family<FaceLabel, Counter>,
    attempts: Family<Label, Counter>,
    resumes: Counter,
    replayed: Counter<u64, AtomicU64>,
    attached: Counter,
    undelivered: Counter,
    pub(crate) stalled_readers: Counter,
    damaged_reads: Counter,
    pub(crate) active_runs: Gauge,
    active_readers: Gauge,
    append_seconds: Histogram,
    first_packet_seconds: Family<Label, Histogram, fn() -> Histogram>,
    clock_steps: Counter,
    console: Family<Label, Counter>,
    forwarded: Family<Passed, Counter>,
    dropped_events: Family<Label, Counter<u64, AtomicU64>>,
    pub(crate) journal: JournalMetrics,
    pub(crate) routes: RouteMetrics,
}

/// The label values for the end of a run: our own reasons, and those of the adapters.
const OUTCOMES: [&str; 6] =
    [Close::COMPLETED, Close::CANCELLED, "error", "length", "tool_calls", "interrupt"];

impl Metrics {
    pub(crate) fn new(faces: &Faces) -> Self {
        let mut registry = Registry::with_prefix("capstan");
        let (runs, faults) =
            (Family::<Ended, Counter>::default(), Family::<Failed, Counter>::default());
        registry.register("runs", "Runs that ended, by outcome and agent", runs.clone());
        registry.register("faults", "Faults, by code and agent", faults.clone());
        let tokens = Family::<Label, Counter>::default();
        registry.register(
            "tokens",
            "Tokens of runs that ended, as limits count them, by agent",
            tokens.clone(),
        );
        let forwarded = Family::<Passed, Counter>::default();
        registry.register(
            "cluster_passed_on",
            "Requests forwarded to another process, by outcome",
            forwarded.clone(),
        );
        let dropped_events = Family::<Label, Counter<u64, AtomicU64>>::default();
        registry.register(
            "dropped_events",
            "Events of runs dropped because an observer was too slow, by observer",
            dropped_events.clone(),
        );
        let by_op = Family::<Label, Counter>::default();
        registry.register("packets", "Packets written, by op", by_op.clone());
        // Looked up once, because a packet must not cost a search.
        let packets = StreamOpCode::ALL
            .map(|op| by_op.get_or_create_owned(&Label { name: op.as_str().to_owned() }));
        let by_type = Family::<FaceLabel, Counter>::default();
        registry.register("face_events", "Events of faces sent, by face and type", by_type.clone());
        let types = faces
            .iter()
            .flat_map(|face| face.event_types().iter().map(|kind| (face.name(), *kind)));
        let face_events = types
            .map(|(face, kind)| {
                ((face, kind), by_type.get_or_create_owned(&FaceLabel::new(face, kind)))
            })
            .collect();
        let face_errors = Family::<FaceLabel, Counter>::default();
        registry.register(
            "face_errors",
            "Errors sent in a face's own format, by face and code",
            face_errors.clone(),
        );
        let attempts = Family::<Label, Counter>::default();
        registry.register("attempts", "Attempts started, by agent", attempts.clone());
        let mut counter = |name, help| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let resumes = counter("resumes", "Requests that resumed at a cursor");
        let replayed = counter("replayed_packets", "Packets sent to readers that had missed them");
        let attached = counter("attached_duplicates", "Requests that attached to an existing run");
        let undelivered = counter(
            "undelivered",
            "Webhooks and push notifications dropped because too many were open",
        );
        let stalled_readers =
            counter("stalled_readers", "Connections cut because the client read nothing");
        let damaged_reads =
            counter("damaged_reads", "Readers that reached a damaged place in the journal");
        let clock_steps = counter("clock_steps", "Steps of the system clock while the server ran");
        let console = Family::<Label, Counter>::default();
        registry.register(
            "console",
            "Content shown and actions done in the console, by kind",
            console.clone(),
        );
        let journal = JournalMetrics::new(&mut registry);
        let routes = RouteMetrics::new(&mut registry);
        let mut gauge = |name, help| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let active_runs = gauge("active_runs", "Running runs");
        let active_readers = gauge("active_readers", "Open responses");
        let append_seconds = Histogram::new(exponential_buckets(0.000_02, 2.0, 18));
        registry.register(
            "append_seconds",
            "Time from a packet to its commit",
            append_seconds.clone(),
        );
        let first_packet_seconds: Family<Label, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_5, 2.0, 18)));
        let help = "Time from a run's start to its first packet, by agent";
        registry.register("first_packet_seconds", help, first_packet_seconds.clone());
        Self {
            registry,
            runs,
            faults,
            tokens,
            packets,
            face_events,
            face_errors,
            attempts,
            resumes,
            replayed,
            attached,
            undelivered,
            stalled_readers,
            damaged_reads,
            active_runs,
            active_readers,
            append_seconds,
            first_packet_seconds,
            clock_steps,
            console,
            forwarded,
            dropped_events,
            journal,
            routes,
        }
    }

    /// Counts the end of a run. Reasons that an agent invented share one label, so that they cannot
    /// fill the memory.
    fn run_ended(&self, outcome: &str, agent: &str) {
        let outcome = OUTCOMES.into_iter().find(|known| *known == outcome).unwrap_or("other");
        self.runs.get_or_create(&Ended { outcome, agent: agent.to_owned() }).inc();
    }

    /// Counts the begin of an attempt.
    fn attempt_began(&self, agent: &str) {
        self.attempts.get_or_create(&Label { name: agent.to_owned() }).inc();
    }

    /// Records the time to the first packet of a run.
    fn first_packet(&self, agent: &str, after: Duration) {
        self.first_packet_seconds
            .get_or_create(&Label { name: agent.to_owned() })
            .observe(after.as_secs_f64());
    }

    /// Counts the tokens of a run that ended.
    fn tokens(&self, agent: &str, tokens: u64) {
        self.tokens.get_or_create(&Label { name: agent.to_owned() }).inc_by(tokens);
    }

    /// Counts a request that was forwarded to the host of its tenant.
    pub(crate) fn forwarded(&self, outcome: &'static str) {
        self.forwarded.get_or_create(&Passed { outcome }).inc();
    }

    /// Counts a failed attempt or a refused request.
    pub(crate) fn fault(&self, kind: FaultKind, agent: &str) {
        self.faults
            .get_or_create(&Failed { code: kind.entry().code, agent: agent.to_owned() })
            .inc();
    }

    /// Copies the engine's own counts.
    pub(crate) fn read(&self, engine: &Engine) {
        for (counter, count) in self.packets.iter().zip(engine.packets().all()) {
            counter.inner().store(count, Ordering::Relaxed);
        }
        self.resumes.inner().store(engine.viewers().resumed_count(), Ordering::Relaxed);
        self.replayed.inner().store(engine.viewers().replayed_count(), Ordering::Relaxed);
        self.active_readers.set(engine.viewers().open_count());
        for (observer, count) in engine.dropped_events() {
            let dropped = self.dropped_events.get_or_create(&Label { name: observer.to_owned() });
            dropped.inner().store(count, Ordering::Relaxed);
        }
        self.clock_steps.inner().store(engine.wall().step_count(), Ordering::Relaxed);
    }

    /// Counts an operator's action in the console.
    pub(crate) fn console(&self, what: &'static str) {
        self.console.get_or_create(&Label { name: what.to_owned() }).inc();
    }

    pub(crate) fn encode(&self) -> String {
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

impl FaceObserver for Metrics {
    fn event(&self, face: &'static str, kind: &'static str, code: Option<&str>) {
        if let Some(counter) = self.face_events.get(&(face, kind)) {
            counter.inc();
        }
        if let Some(code) = code {
            self.face_errors.get_or_create(&FaceLabel::new(face, code)).inc();
        }
    }

    fn refused(&self, kind: FaultKind) {
        self.fault(kind, NO_AGENT);
    }

    fn delivery_refused(&self) {
        self.undelivered.inc();
    }
}

impl RunObserver for Metrics {
    fn name(&self) -> &'static str {
        "metrics"
    }

    fn appended(&self, took: Duration) {
        self.append_seconds.observe(took.as_secs_f64());
    }

    fn observe(&self, RunEvent { run, agent, what, .. }: &RunEvent) {
        match what {
            Happened::Attached { .. } => drop(self.attached.inc()),
            Happened::TakenUp => drop(self.active_runs.inc()),
            Happened::LetGo => drop(self.active_runs.dec()),
            Happened::AttemptBegan => self.attempt_began(agent),
            Happened::FirstPacket { after } => self.first_packet(agent, *after),
            Happened::CallEnded { call, usage, .. } => {
                let tokens = usage.as_ref().and_then(|usage| usage.get("output_tokens"));
                self.routes.call_ended(agent, call, tokens.and_then(Value::as_u64));
            }
            Happened::AttemptFailed { fault } => self.fault(fault.kind(), agent),
            Happened::JournalRefused { kind } => self.fault(*kind, agent),
            Happened::ReadDamage => {
                self.damaged_reads.inc();
                self.fault(FaultKind::StreamLost, agent);
            }
            Happened::Ended => {
                self.run_ended(run.reason.as_deref().unwrap_or_default(), agent);
                self.tokens(agent, run.tokens);
            }
            Happened::Started
            | Happened::CallBegan { .. }
            | Happened::AttemptEnded { .. }
            | Happened::Retried
            | Happened::Waiting
            | Happened::Resumed => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capstan_faces::FaceSettings;

    use crate::faces;

    #[test]
    fn reasons_that_an_agent_made_up_are_counted_together() {
        let metrics = Metrics::new(&faces::all(&FaceSettings::default()));
        for n in 0..100 {
            metrics.run_ended(&format!("reason {n}"), "a");
        }
        metrics.run_ended(Close::COMPLETED, "a");
        let text = metrics.encode();
        assert!(text.contains("capstan_runs_total{outcome=\"other\",agent=\"a\"} 100"), "{text}");
        assert_eq!(text.matches("capstan_runs_total{").count(), 2, "{text}");
    }

    const PAGE: &str = include_str!("../../../docs/observability.md");

    /// The row for the documentation, from a metric's description.
    fn row(name: &str, help: &str, kind: &str) -> String {
        // Metrics with labels have the labels at the end of their description.
        let help = help.trim_end_matches('.');
        let label = match help.rsplit_once(", by ") {
            Some((_, by)) if by.starts_with("face and ") => "{face,name}".to_owned(),
            Some((_, by)) if by.contains(" and ") => format!("{{{}}}", by.replace(" and ", ", ")),
            Some((_, "outcome")) => "{outcome}".to_owned(),
            Some(_) => "{name}".to_owned(),
            None => String::new(),
        };
        let total = if kind == "counter" { "_total" } else { "" };
        format!("| `{name}{total}{label}` | {kind} | {help} |")
    }

    #[test]
    fn the_documentation_lists_every_metric_as_it_describes_itself() {
        let metrics = Metrics::new(&faces::all(&FaceSettings::default()));
        // A family appears once it has a member.
        metrics.run_ended("completed", "a");
        metrics.fault(FaultKind::Timeout, "a");
        metrics.tokens("a", 1);
        metrics.console("frames");
        metrics.forwarded("passed");
        drop(metrics.dropped_events.get_or_create(&Label { name: "log".to_owned() }));
        metrics.attempt_began("a");
        metrics.first_packet("a", Duration::from_secs(1));
        metrics.event("ag-ui", "RUN_ERROR", Some("TIMEOUT"));
        let second = std::time::Duration::from_secs(1);
        let call = capstan_agent::CallEnded {
            member: "m".into(),
            outcome: capstan_agent::CallOutcome::Answered,
            first_token: Some(second),
            took: second * 3,
            pieces: 60,
            usage: None,
            is_left: true,
        };
        metrics.routes.call_ended("r", &call, None);
        let state = capstan_agent::MemberState {
            name: "m".into(),
            breaker: capstan_agent::BreakerState::Open,
        };
        metrics.routes.set_states("r", &[state]);
        let text = metrics.encode();
        let described = |mark: &str| {
            let lines: Vec<(String, String)> = text
                .lines()
                .filter_map(|line| line.strip_prefix(mark)?.split_once(' '))
                .map(|(name, rest)| (name.to_owned(), rest.to_owned()))
                .collect();
            lines
        };
        let (helps, kinds) = (described("# HELP "), described("# TYPE "));
        assert!(!helps.is_empty() && helps.len() == kinds.len());
        for ((name, help), (_, kind)) in helps.iter().zip(&kinds) {
            let row = row(name, help, kind);
            assert!(PAGE.contains(&row), "docs/observability.md lacks\n{row}");
        }
        assert_eq!(PAGE.matches("| `capstan_").count(), helps.len(), "and no other");
    }
}

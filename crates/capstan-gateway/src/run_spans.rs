//! Runs and attempts as spans, with the attributes of OpenTelemetry's GenAI conventions.
//!
//! These are plain `tracing` spans under a target of their own, for a [`TraceCollector`]. They are
//! held, never entered: a run outlives its requests, and log lines keep the span of their request.
//! There is no work per packet, and no span contains text of a conversation. Of an agent it has
//! only the names of its model, its finish reason and its faults.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use capstan_agent::{About, CallEnded, CallOutcome, TraceParent, Work};
use capstan_engine::events::{Happened, RunEvent, RunTracer};
use capstan_journal::Run;
use serde_json::{Map, Value};
use tracing::Span;
use tracing::field::Empty;
use uuid::Uuid;

/// The target of a run's spans and span events. Collectors select it, and the log leaves it out.
pub const SPANS: &str = "capstan::spans";

/// Callers choose their ids, so longer ones are cut before they reach a collector.
const LONGEST_ID: usize = 256;

/// The operations of a collector of spans that `tracing` does not have.
pub trait TraceCollector: Send + Sync + 'static {
    /// Continues a trace that began in another process.
    fn continue_from(&self, span: &Span, context: &TraceParent);

    /// Links the span to a second trace.
    fn link(&self, span: &Span, context: &TraceParent);

    /// The span's own context, for calls that are made within it.
    fn context(&self, span: &Span) -> Option<TraceParent>;
}

/// Makes the spans of the runs that this process has, or had until they began to wait.
pub(crate) struct RunSpans {
    collector: Arc<dyn TraceCollector>,
    runs: Mutex<HashMap<Uuid, RunTrace>>,
}

/// The open spans of a run.
struct RunTrace {
    run: Span,
    attempt: Span,
    /// The calls to members of a route.
    calls: Vec<(Arc<str>, Span)>,
    about: About,
    /// The trace of the request that started the relay.
    request: Option<TraceParent>,
    /// Whether the run had a trace before that request. Then its first attempt has a link to the
    /// request.
    is_resumed: bool,
    /// How many relays of this process have the run: two while one hands it to the next.
    relays: usize,
    /// Since when the run waits for its client.
    waiting: Option<Instant>,
}

impl RunSpans {
    pub(crate) fn new(collector: Arc<dyn TraceCollector>) -> Self {
        Self { collector, runs: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, RunTrace>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run without a relay stays only while it waits.
    fn let_go(&self, stream: Uuid) {
        let mut runs = self.lock();
        if let Some(trace) = runs.get_mut(&stream) {
            trace.relays = trace.relays.saturating_sub(1);
            if trace.relays == 0 && trace.waiting.is_none() {
                runs.remove(&stream);
            }
        }
    }
}

impl RunTracer for RunSpans {
    fn observe(&self, event: &RunEvent) {
        let run = &event.run;
        let with = |act: &dyn Fn(&mut RunTrace)| {
            self.lock().get_mut(&run.stream_id).map(act).unwrap_or_default();
        };
        match &event.what {
            Happened::LetGo => self.let_go(run.stream_id),
            Happened::AttemptEnded { code, model, usage } => with(&|trace| {
                trace.end_attempt(code.as_deref(), model.as_deref(), usage.as_ref());
            }),
            Happened::CallBegan { member, about } => with(&|trace| {
                let span = call_span(&trace.attempt, run, about, member);
                trace.calls.push((Arc::clone(member), span));
            }),
            Happened::CallEnded { call, model, usage } => {
                with(&|trace| trace.end_call(call, model.as_deref(), usage.as_ref()));
            }
            Happened::JournalRefused { kind } => {
                with(&|trace| failed(&trace.run, kind.entry().code));
            }
            Happened::Waiting => with(&|trace| trace.waiting = Some(Instant::now())),
            Happened::Ended => {
                if let Some(trace) = self.lock().remove(&run.stream_id) {
                    ended(&trace.run, run);
                }
            }
            Happened::Started
            | Happened::Attached { .. }
            | Happened::TakenUp
            | Happened::AttemptBegan
            | Happened::FirstPacket { .. }
            | Happened::AttemptFailed { .. }
            | Happened::ReadDamage
            | Happened::Retried
            | Happened::Resumed => {}
        }
    }

    /// Continues the span of a run that waited, or begins a new one in the trace of the request.
    fn begin_run(&self, run: &Run, about: &About, request: Option<&TraceParent>) {
        let mut runs = self.lock();
        let trace = runs.entry(run.stream_id).or_insert_with(|| {
            let span = run_span(run, about);
            if let Some(context) = request {
                self.collector.continue_from(&span, context);
            }
            RunTrace::new(span, about)
        });
        let has_waited = trace.waiting.take().is_some();
        trace.is_resumed = has_waited || trace.relays > 0;
        trace.request = request.cloned();
        trace.relays += 1;
    }

    fn begin_attempt(&self, run: &Run) -> Option<TraceParent> {
        let mut runs = self.lock();
        let trace = runs.get_mut(&run.stream_id)?;
        trace.attempt = attempt_span(&trace.run, run, &trace.about);
        if std::mem::take(&mut trace.is_resumed)
            && let Some(context) = &trace.request
        {
            self.collector.link(&trace.attempt, context);
        }
        self.collector.context(&trace.attempt)
    }

    fn warned(&self, stream: Uuid, code: &str) {
        if let Some(trace) = self.lock().get(&stream) {
            tracing::info!(target: SPANS, parent: &trace.attempt,
                { "error.type" = short(code) }, "warning");
        }
    }

    fn forget_waiting(&self, longer_than: Duration) {
        self.lock().retain(|_, trace| {
            trace.relays > 0 || trace.waiting.is_some_and(|since| since.elapsed() < longer_than)
        });
    }
}

impl RunTrace {
    fn new(run: Span, about: &About) -> Self {
        Self {
            run,
            attempt: Span::none(),
            calls: Vec::new(),
            about: about.clone(),
            request: None,
            is_resumed: false,
            relays: 0,
            waiting: None,
        }
    }

    fn end_attempt(
        &mut self,
        code: Option<&str>,
        model: Option<&str>,
        usage: Option<&Map<String, Value>>,
    ) {
        self.calls.clear();
        let span = std::mem::replace(&mut self.attempt, Span::none());
        answered(&span, model, usage);
        if let Some(code) = code {
            failed(&span, code);
        }
    }

    fn end_call(
        &mut self,
        call: &CallEnded,
        model: Option<&str>,
        usage: Option<&Map<String, Value>>,
    ) {
        let at = self.calls.iter().position(|(member, _)| *member == call.member);
        let Some((_, span)) = at.map(|at| self.calls.swap_remove(at)) else { return };
        span.record("capstan.call_outcome", call.outcome.as_str());
        match &call.outcome {
            CallOutcome::Answered => answered(&span, model, usage),
            CallOutcome::Stopped => answered(&span, None, call.usage.as_ref()),
            CallOutcome::Failed { code, .. } => failed(&span, code),
        }
    }
}

fn run_span(run: &Run, about: &About) -> Span {
    tracing::info_span!(
        target: SPANS,
        parent: None,
        "run",
        otel.name = format!("invoke_agent {}", run.agent),
        otel.kind = "internal",
        otel.status_code = Empty,
        otel.status_description = Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.provider.name = about.provider,
        gen_ai.agent.name = run.agent,
        gen_ai.conversation.id = short(&run.session),
        gen_ai.request.model = about.model,
        gen_ai.response.model = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        error.type = Empty,
        capstan.stream_id = %run.stream_id,
        capstan.request_id = short(&run.key),
        capstan.attempts = Empty,
        capstan.packets = Empty,
        capstan.close_reason = Empty,
    )
}

/// The span of an attempt. A model's attempt is the operation `chat`. Other attempts have no
/// operation, so that nothing is counted twice.
fn attempt_span(parent: &Span, run: &Run, about: &About) -> Span {
    let is_chat = about.work == Work::Chat;
    let name = match &about.model {
        Some(model) if is_chat => format!("chat {model}"),
        _ => format!("attempt {}", run.agent),
    };
    tracing::info_span!(
        target: SPANS,
        parent: parent,
        "attempt",
        otel.name = name,
        otel.kind = if about.work == Work::Local { "internal" } else { "client" },
        otel.status_code = Empty,
        otel.status_description = Empty,
        gen_ai.operation.name = is_chat.then_some("chat"),
        gen_ai.provider.name = about.provider,
        gen_ai.agent.name = run.agent,
        gen_ai.conversation.id = short(&run.session),
        gen_ai.request.model = about.model,
        gen_ai.response.model = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        error.type = Empty,
        capstan.stream_id = %run.stream_id,
        capstan.attempt = i64::from(run.attempt),
    )
}

/// The span of a call to a member of a route. The route's attempt has no operation, but its calls
/// do.
fn call_span(parent: &Span, run: &Run, about: &About, member: &str) -> Span {
    let is_chat = about.work == Work::Chat;
    let name = match &about.model {
        Some(model) if is_chat => format!("chat {model}"),
        _ => format!("call {member}"),
    };
    tracing::info_span!(
        target: SPANS,
        parent: parent,
        "call",
        otel.name = name,
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
        gen_ai.operation.name = is_chat.then_some("chat"),
        gen_ai.provider.name = about.provider,
        gen_ai.agent.name = member,
        gen_ai.request.model = about.model,
        gen_ai.response.model = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        error.type = Empty,
        capstan.stream_id = %run.stream_id,
        capstan.attempt = i64::from(run.attempt),
        capstan.call_outcome = Empty,
    )
}

fn short(id: &str) -> String {
    id.chars().take(LONGEST_ID).collect()
}

/// Records the end of a run.
fn ended(span: &Span, run: &Run) {
    span.record("capstan.close_reason", run.reason.as_deref().map(short));
    span.record("capstan.attempts", i64::from(run.attempt));
    span.record("capstan.packets", i64::try_from(run.last_seq).unwrap_or(i64::MAX));
    answered(span, run.model.as_deref(), run.usage.as_ref());
    if let Some(code) = &run.fault {
        failed(span, code);
    }
}

/// Records the model and its token counts.
fn answered(span: &Span, model: Option<&str>, usage: Option<&Map<String, Value>>) {
    let count = |name| usage.and_then(|usage| usage.get(name)).and_then(Value::as_i64);
    span.record("gen_ai.response.model", model.map(short));
    span.record("gen_ai.usage.input_tokens", count("input_tokens"));
    span.record("gen_ai.usage.output_tokens", count("output_tokens"));
}

/// Records a fault, by its code only.
fn failed(span: &Span, code: &str) {
    let code = short(code);
    span.record("error.type", &code);
    span.record("otel.status_code", "error");
    span.record("otel.status_description", &code);
}

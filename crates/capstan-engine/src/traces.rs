//! Runs and attempts as spans, with the attributes of OpenTelemetry's GenAI conventions.
//!
//! These are plain `tracing` spans under a target of their own. They exist only if a
//! [`TraceCollector`] wants them. They are held, never entered: a run outlives its requests, and
//! log lines keep the span of their request. There is no work per packet, and no span contains text
//! of a conversation. Of an agent it has only the names of its model, its finish reason and its
//! faults.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use capstan_agent::{About, TraceParent, Work};
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

/// The trace spans of a gateway.
#[derive(Default)]
pub struct Traces {
    collector: Option<Arc<dyn TraceCollector>>,
    /// The spans of runs that wait for their client, and since when they wait.
    waiting: Mutex<HashMap<Uuid, (Instant, Span)>>,
}

/// The trace of a run while this process has its relay.
pub(crate) struct RunTrace {
    span: Span,
    about: About,
    /// The trace of the request that started the relay.
    request: Option<TraceParent>,
    /// Whether the run had a trace before that request. Then its first attempt has a link to the
    /// request.
    is_resumed: bool,
}

impl Traces {
    /// Creates the spans for this collector, if there is one.
    pub fn new(collector: Option<Arc<dyn TraceCollector>>) -> Self {
        Self { collector, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, (Instant, Span)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Continues the span of a run that waited, or begins a new one in the trace of the request.
    pub(crate) fn begin(&self, run: &Run, about: About, request: Option<TraceParent>) -> RunTrace {
        let mut trace = RunTrace { span: Span::none(), about, request, is_resumed: false };
        let Some(collector) = &self.collector else { return trace };
        if let Some(span) = self.take(run.stream_id) {
            return RunTrace { span, is_resumed: true, ..trace };
        }
        trace.span = run_span(run, &trace.about);
        if let Some(context) = &trace.request {
            collector.continue_from(&trace.span, context);
        }
        trace
    }

    /// Begins the span of an attempt. Returns it with the context for the agent's calls, which is
    /// the request's context if there is no collector.
    pub(crate) fn attempt(&self, trace: &mut RunTrace, run: &Run) -> (Span, Option<TraceParent>) {
        let Some(collector) = &self.collector else { return (Span::none(), trace.request.clone()) };
        let span = attempt_span(&trace.span, run, &trace.about);
        if std::mem::take(&mut trace.is_resumed)
            && let Some(context) = &trace.request
        {
            collector.link(&span, context);
        }
        let context = collector.context(&span);
        (span, context)
    }

    /// Begins the span of a call to a member of a route.
    pub(crate) fn call(&self, attempt: &Span, run: &Run, about: &About, member: &str) -> Span {
        if self.collector.is_some() { call_span(attempt, run, about, member) } else { Span::none() }
    }

    /// Keeps the span of a waiting run open until the run goes on or ends.
    pub(crate) fn keep(&self, stream: Uuid, trace: &RunTrace) {
        if self.collector.is_some() {
            self.lock().insert(stream, (Instant::now(), trace.span.clone()));
        }
    }

    /// Takes the span of a run that waited.
    pub(crate) fn take(&self, stream: Uuid) -> Option<Span> {
        self.lock().remove(&stream).map(|(_, span)| span)
    }

    /// Ends the spans of runs that waited longer than this: another process owns them now.
    pub fn forget(&self, timeout: Duration) {
        self.lock().retain(|_, (since, _)| since.elapsed() < timeout);
    }
}

impl RunTrace {
    pub(crate) fn span(&self) -> &Span {
        &self.span
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
pub(crate) fn ended(span: &Span, run: &Run) {
    span.record("capstan.close_reason", run.reason.as_deref().map(short));
    span.record("capstan.attempts", i64::from(run.attempt));
    span.record("capstan.packets", i64::try_from(run.last_seq).unwrap_or(i64::MAX));
    answered(span, run.model.as_deref(), run.usage.as_ref());
    if let Some(code) = &run.fault {
        failed(span, code);
    }
}

/// Records the model and its token counts.
pub(crate) fn answered(span: &Span, model: Option<&str>, usage: Option<&Map<String, Value>>) {
    let count = |name| usage.and_then(|usage| usage.get(name)).and_then(Value::as_i64);
    span.record("gen_ai.response.model", model.map(short));
    span.record("gen_ai.usage.input_tokens", count("input_tokens"));
    span.record("gen_ai.usage.output_tokens", count("output_tokens"));
}

/// Records a fault, by its code only.
pub(crate) fn failed(span: &Span, code: &str) {
    let code = short(code);
    span.record("error.type", &code);
    span.record("otel.status_code", "error");
    span.record("otel.status_description", &code);
}

/// Records a warning of an agent that goes on.
pub(crate) fn warned(span: &Span, code: &str) {
    tracing::info!(target: SPANS, parent: span, { "error.type" = short(code) }, "warning");
}

//! Runs and attempts as spans, with the attributes of OpenTelemetry's GenAI conventions.
//!
//! They are plain `tracing` spans under a target of their own, made only if a [`TraceCollector`]
//! wants them. They are held, never entered: a run outlives the requests that ask for it, and log
//! lines keep the span of their request. Nothing here happens per packet, and nothing that was said
//! is ever in a span: of an agent, only the short names of its model, its reason to end and its
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

/// The target of every span and span event of a run: what a collector takes, and a log leaves out.
pub const SPANS: &str = "capstan::spans";

/// Ids are the caller's; longer ones are somebody's attempt to fill a collector.
const LONGEST_ID: usize = 256;

/// Whoever collects spans, as far as `tracing` has no words for what it must be told.
pub trait TraceCollector: Send + Sync + 'static {
    /// The span continues a trace that began elsewhere.
    fn continue_from(&self, span: &Span, context: &TraceParent);

    /// The span has a cause in another trace as well.
    fn link(&self, span: &Span, context: &TraceParent);

    /// The span's own place in its trace, for whatever is called within it.
    fn context(&self, span: &Span) -> Option<TraceParent>;
}

/// The spans of a gateway.
#[derive(Default)]
pub struct Traces {
    collector: Option<Arc<dyn TraceCollector>>,
    /// Of runs that wait for their client, and since when.
    waiting: Mutex<HashMap<Uuid, (Instant, Span)>>,
}

/// A run as traces see it, while this process works on it.
pub(crate) struct RunTrace {
    span: Span,
    about: About,
    /// The request that set the relay to work.
    request: Option<TraceParent>,
    /// Whether that request came to a run with a trace of its own: its first attempt is linked to
    /// it.
    is_resumed: bool,
}

impl Traces {
    /// For this collector, if there is one.
    pub fn new(collector: Option<Arc<dyn TraceCollector>>) -> Self {
        Self { collector, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, (Instant, Span)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run goes on with the span that it waited with, or begins one as a part of the request's
    /// trace.
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

    /// An attempt within its run, and the context for what it calls: its own, or without a
    /// collector the request's.
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

    /// A call of a route's member within its attempt.
    pub(crate) fn call(&self, attempt: &Span, run: &Run, about: &About, member: &str) -> Span {
        if self.collector.is_some() { call_span(attempt, run, about, member) } else { Span::none() }
    }

    /// The run waits: its span stays open until somebody takes it up or ends it.
    pub(crate) fn keep(&self, stream: Uuid, trace: &RunTrace) {
        if self.collector.is_some() {
            self.lock().insert(stream, (Instant::now(), trace.span.clone()));
        }
    }

    /// Takes the span of a run that waited.
    pub(crate) fn take(&self, stream: Uuid) -> Option<Span> {
        self.lock().remove(&stream).map(|(_, span)| span)
    }

    /// Ends the spans of runs that waited longer than any may: another process has taken them up.
    pub fn forget(&self, patience: Duration) {
        self.lock().retain(|_, (since, _)| since.elapsed() < patience);
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

/// A model's attempt is a `chat`. Any other has no operation's name of its own, so that nothing is
/// counted twice.
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

/// A route's attempt has no operation of its own: its calls have.
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

/// The run has ended, as its record says.
pub(crate) fn ended(span: &Span, run: &Run) {
    span.record("capstan.close_reason", run.reason.as_deref().map(short));
    span.record("capstan.attempts", i64::from(run.attempt));
    span.record("capstan.packets", i64::try_from(run.last_seq).unwrap_or(i64::MAX));
    answered(span, run.model.as_deref(), run.usage.as_ref());
    if let Some(code) = &run.fault {
        failed(span, code);
    }
}

/// Which model answered, and what it took.
pub(crate) fn answered(span: &Span, model: Option<&str>, usage: Option<&Map<String, Value>>) {
    let count = |name| usage.and_then(|usage| usage.get(name)).and_then(Value::as_i64);
    span.record("gen_ai.response.model", model.map(short));
    span.record("gen_ai.usage.input_tokens", count("input_tokens"));
    span.record("gen_ai.usage.output_tokens", count("output_tokens"));
}

/// It ended in a fault, which is told by its code alone.
pub(crate) fn failed(span: &Span, code: &str) {
    let code = short(code);
    span.record("error.type", &code);
    span.record("otel.status_code", "error");
    span.record("otel.status_description", &code);
}

/// The agent warned and went on.
pub(crate) fn warned(span: &Span, code: &str) {
    tracing::info!(target: SPANS, parent: span, { "error.type" = short(code) }, "warning");
}

//! The client's state machine for I/O in Python: for the driver of the caller's own HTTP client,
//! and for replays of the machine's traces.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use capstan_client::machine::{self, Action, Head, Policy, Refusal};
use capstan_client::{CapError, ConnectionError, Notice};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde_json::{Value, json};

use crate::packet::Packet;
use crate::reader::{End, Item, Sink};
use crate::runtime::lock;
use crate::settings::{Settings, duration};
use crate::{failure, json};

/// The next action of the driver.
pub(crate) enum Step {
    Connect(Option<String>),
    Read,
    /// Wait for this many seconds.
    Wait(f64),
}

impl Step {
    /// `(action, argument)`.
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        match self {
            Self::Connect(last_event_id) => ("connect", last_event_id).into_pyobject(py),
            Self::Read => ("read", py.None()).into_pyobject(py),
            Self::Wait(seconds) => ("wait", seconds).into_pyobject(py),
        }
    }
}

/// The state of one call, without its I/O. Times are seconds. Without `now` it uses the machine's
/// own clock.
#[pyclass(frozen, module = "coreason_client._core")]
#[derive(Debug)]
pub(crate) struct Machine {
    state: Mutex<machine::Machine>,
    epoch: Instant,
    /// The server's address, for failures.
    address: Option<String>,
}

impl Machine {
    fn now(&self, now: Option<f64>) -> Duration {
        now.and_then(|s| Duration::try_from_secs_f64(s).ok())
            .unwrap_or_else(|| self.epoch.elapsed())
    }

    fn placed(&self, error: CapError) -> CapError {
        match error {
            CapError::Connection(e) => {
                CapError::Connection(ConnectionError { address: self.address.clone(), ..e })
            }
            other @ (CapError::Protocol(_) | CapError::Runtime(_)) => other,
        }
    }

    /// Moves the machine's items for the caller into `items`. Returns the next action.
    pub(crate) fn advance(&self, items: &mut impl Sink, end: &mut Option<End>) -> Option<Step> {
        let mut state = lock(&self.state);
        // A machine that has ended reports that again and again. The first report counts.
        while end.is_none() {
            let now = self.epoch.elapsed();
            match state.poll(now) {
                Action::Packet(packet) => items.put(Item::Packet(packet)),
                Action::Notice(notice) => items.put(Item::Notice(notice)),
                Action::Connect { last_event_id } => return Some(Step::Connect(last_event_id)),
                Action::Read => return Some(Step::Read),
                Action::Wait { until } => {
                    return Some(Step::Wait(until.saturating_sub(now).as_secs_f64()));
                }
                Action::Done => *end = Some(Ok(())),
                Action::Fail(error) => *end = Some(Err(self.placed(error))),
            }
        }
        None
    }
}

#[pymethods]
impl Machine {
    #[new]
    #[pyo3(signature = (settings, *, address = None, last_event_id = None, viewer = false,
    jitter = true, seed = None))]
    fn new(
        settings: Settings,
        address: Option<String>,
        last_event_id: Option<String>,
        viewer: bool,
        jitter: bool,
        seed: Option<u64>,
    ) -> PyResult<Self> {
        let mut policy = Policy {
            max_retries: settings.max_retries,
            max_wait: duration(Some(settings.max_wait))?,
            resume_patience: duration(Some(settings.resume_patience))?,
            deadline: settings.deadline.map(|limit| duration(Some(limit))).transpose()?,
            is_strict: settings.strict,
            profile: settings.profile()?,
            is_viewer: viewer,
            ..Policy::default()
        };
        policy.backoff.first = duration(Some(settings.backoff_first))?;
        policy.backoff.max = duration(Some(settings.backoff_max))?;
        policy.backoff.least = duration(Some(settings.least_wait))?;
        policy.backoff.jitter = jitter;
        let seed = seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
        let state = Mutex::new(machine::Machine::attach(policy, seed, last_event_id));
        Ok(Self { state, epoch: Instant::now(), address })
    }

    /// The next action: `(action, argument)`.
    #[pyo3(signature = (now = None))]
    fn poll<'py>(&self, py: Python<'py>, now: Option<f64>) -> PyResult<Bound<'py, PyTuple>> {
        let now = self.now(now);
        let action = lock(&self.state).poll(now);
        match action {
            Action::Connect { last_event_id } => Step::Connect(last_event_id).into_python(py),
            Action::Read => Step::Read.into_python(py),
            Action::Wait { until } => Step::Wait(until.as_secs_f64()).into_python(py),
            Action::Packet(packet) => ("packet", Packet::from(packet)).into_pyobject(py),
            Action::Notice(notice) => {
                ("notice", json::read(py, &notice_json(&notice).to_string())?).into_pyobject(py)
            }
            Action::Done => ("done", py.None()).into_pyobject(py),
            Action::Fail(error) => {
                ("fail", failure::raised(py, &self.placed(error))).into_pyobject(py)
            }
        }
    }

    /// The server answered with a success or a redirect.
    #[pyo3(signature = (status, content_type, location = None))]
    fn opened(&self, status: u16, content_type: &str, location: Option<&str>) {
        lock(&self.state).opened(Head { status, content_type, location });
    }

    /// The remaining seconds of the call's deadline, if it has one.
    fn left(&self) -> Option<f64> {
        let end = lock(&self.state).deadline()?;
        Some(end.saturating_sub(self.epoch.elapsed()).as_secs_f64())
    }

    /// The server refused.
    #[pyo3(signature = (status, retry_after, body, now = None))]
    fn refused(&self, status: u16, retry_after: Option<&str>, body: &[u8], now: Option<f64>) {
        let now = self.now(now);
        lock(&self.state).refused(Refusal { status, retry_after, body }, now);
    }

    /// Bytes of the body.
    fn bytes(&self, data: &[u8]) {
        lock(&self.state).bytes(data);
    }

    /// The body ended without an error.
    #[pyo3(signature = (now = None))]
    fn ended(&self, now: Option<f64>) {
        let now = self.now(now);
        lock(&self.state).ended(now);
    }

    /// The request or the body failed.
    #[pyo3(signature = (why, now = None))]
    fn failed(&self, why: String, now: Option<f64>) {
        let now = self.now(now);
        lock(&self.state).failed(why, now);
    }

    /// The server was silent for too long.
    #[pyo3(signature = (why, now = None))]
    fn timed_out(&self, why: String, now: Option<f64>) {
        let now = self.now(now);
        lock(&self.state).timed_out(why, now);
    }
}

/// A notice in the form of the machine's traces.
fn notice_json(notice: &Notice) -> Value {
    match notice {
        Notice::Connecting { cursor } => json!({ "connecting": { "cursor": cursor } }),
        Notice::Connected => json!("connected"),
        Notice::Resumed { cursor } => json!({ "resumed": { "cursor": cursor } }),
        Notice::Retrying { wait, .. } => json!({ "retrying": { "wait": wait.as_secs_f64() } }),
        Notice::Duplicate { seq } => json!({ "duplicate": { "seq": seq } }),
        Notice::Gap { expected, found } => {
            json!({ "gap": { "expected": expected, "found": found } })
        }
        Notice::AttemptFailed { error } => json!({ "attempt_failed": { "error": error } }),
        Notice::Warning { error } => json!({ "warning": { "error": error } }),
        other => json!(other.to_string()),
    }
}

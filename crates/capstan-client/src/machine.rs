//! The client without its I/O: inputs are what arrived and the time, outputs are what to do next.
//! It is RFC 004's loop without its gaps.
//!
//! A shell calls [`Machine::poll`], does the action, and reports the result. That is enough to
//! drive a call over async sockets, blocking ones, another language's HTTP client, or a simulation.
//!
//! ```
//! use std::time::Duration;
//! use capstan_client::machine::{Action, Machine, Policy};
//!
//! let mut machine = Machine::new(Policy::default(), 7);
//! let now = Duration::ZERO;
//! assert!(matches!(machine.poll(now), Action::Notice(_)));
//! assert!(matches!(machine.poll(now), Action::Connect { last_event_id: None }));
//! machine.failed("refused", now);
//! assert!(matches!(machine.poll(now), Action::Notice(_)));
//! assert!(matches!(machine.poll(now), Action::Wait { .. }));
//! ```

mod packets;
mod policy;
mod seen;

use std::collections::VecDeque;
use std::time::Duration;

use capstan_protocol::cursor::LOST_TAIL_GAP;
use capstan_protocol::{ErrorSeverity, FaultKind, Payload, Problem, StreamError, StreamPacket};

pub use capstan_protocol::Backoff;
use packets::Packets;
pub use policy::Policy;
use seen::{Order, Seen};

use crate::error::{CapError, ConnectionError};
use crate::notice::Notice;

/// The shell's next action.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send the request, the same bytes each time. Then call [`Machine::opened`],
    /// [`Machine::refused`] or [`Machine::failed`].
    Connect {
        /// The header `Last-Event-ID`, if there is one to send.
        last_event_id: Option<String>,
    },
    /// Read from the body. Then call [`Machine::bytes`], [`Machine::ended`] or [`Machine::failed`].
    Read,
    /// Do nothing until this time, then poll again.
    Wait {
        /// On the clock that `now` is read from.
        until: Duration,
    },
    /// Hand this packet to the caller.
    Packet(StreamPacket),
    /// Report this to the application.
    Notice(Notice),
    /// The stream is complete.
    Done,
    /// The call failed.
    Fail(CapError),
}

/// The head of a response that was not refused.
#[derive(Debug, Clone, Copy, Default)]
pub struct Head<'a> {
    /// 200, or another success, or a redirect that was not followed.
    pub status: u16,
    /// The header `Content-Type`.
    pub content_type: &'a str,
    /// The header `Location`.
    pub location: Option<&'a str>,
}

/// A response of status 400 or above.
#[derive(Debug, Clone, Copy, Default)]
pub struct Refusal<'a> {
    /// The status.
    pub status: u16,
    /// The header `Retry-After`.
    pub retry_after: Option<&'a str>,
    /// The body, or the beginning of it.
    pub body: &'a [u8],
}

#[derive(Debug)]
enum State {
    /// A request is due.
    Due,
    /// It is under way.
    Connecting,
    /// A body is being read.
    Reading,
    /// Nothing is to be done before this time.
    Waiting(Duration),
    /// The call is over.
    Over,
}

/// The state of one call.
#[derive(Debug)]
pub struct Machine {
    policy: Policy,
    random: fastrand::Rng,
    state: State,
    packets: Packets,
    seen: Seen,
    queue: VecDeque<Action>,
    /// A stream was received before: from now on refusals that a deploy causes are interruptions.
    was_open: bool,
    /// Interruptions since the last new packet.
    retries: u32,
    /// TRANSIENT errors that took effect in this call.
    transients: u32,
    /// When the call began.
    began_at: Option<Duration>,
    /// When the last new packet came, or the call began.
    progress_at: Option<Duration>,
    /// A TRANSIENT error that takes effect if nothing follows it.
    pending: Option<Box<StreamError>>,
}

impl Machine {
    /// A call that is about to begin. The seed decides the jitter.
    pub fn new(policy: Policy, seed: u64) -> Self {
        Self {
            packets: Packets::new(policy.profile),
            policy,
            random: fastrand::Rng::with_seed(seed),
            state: State::Due,
            seen: Seen::default(),
            queue: VecDeque::new(),
            was_open: false,
            retries: 0,
            transients: 0,
            began_at: None,
            progress_at: None,
            pending: None,
        }
    }

    /// A call that follows a known stream from a cursor on, or all of it.
    pub fn attach(policy: Policy, seed: u64, last_event_id: Option<String>) -> Self {
        let mut machine = Self::new(policy, seed);
        machine.packets.start_at(last_event_id);
        machine
    }

    /// The next action. Call it again after each action.
    pub fn poll(&mut self, now: Duration) -> Action {
        self.began_at.get_or_insert(now);
        self.progress_at.get_or_insert(now);
        self.check_deadline(now);
        if let Some(action) = self.queue.pop_front() {
            return action;
        }
        match self.state {
            State::Due => self.connect(),
            State::Waiting(until) if until <= now => self.connect(),
            State::Waiting(until) => {
                Action::Wait { until: self.deadline().map_or(until, |end| end.min(until)) }
            }
            State::Connecting => Action::Connect { last_event_id: self.packets.last_event_id() },
            State::Reading => self.read(now),
            State::Over => Action::Done,
        }
    }

    /// The next packet of the bytes so far, if no other action comes before it; otherwise call
    /// [`Self::poll`]. It serves batches: all packets that arrived together share one time.
    pub fn poll_packet(&mut self, now: Duration) -> Option<StreamPacket> {
        if !matches!(self.state, State::Reading) || !self.queue.is_empty() {
            return None;
        }
        match self.read(now) {
            Action::Packet(packet) => Some(packet),
            Action::Read => None,
            other @ (Action::Notice(_)
            | Action::Connect { .. }
            | Action::Wait { .. }
            | Action::Done
            | Action::Fail(_)) => {
                self.queue.push_front(other);
                None
            }
        }
    }

    /// When the call has to be over, on the clock that `now` is read from. A shell neither sends
    /// nor reads beyond it.
    pub fn deadline(&self) -> Option<Duration> {
        Some(self.began_at?.saturating_add(self.policy.deadline?))
    }

    fn check_deadline(&mut self, now: Duration) {
        let is_late =
            self.deadline().is_some_and(|end| end <= now) && !matches!(self.state, State::Over);
        if let (true, Some(limit)) = (is_late, self.policy.deadline) {
            self.queue.clear();
            self.fail(CapError::late(limit, self.retries));
        }
    }

    fn connect(&mut self) -> Action {
        self.state = State::Connecting;
        Action::Notice(Notice::Connecting { cursor: self.packets.last_event_id() })
    }

    /// The server answered with a success.
    pub fn opened(&mut self, head: Head<'_>) {
        let essence = head.content_type.split(';').next().unwrap_or_default().trim();
        if head.status == 204 && self.policy.is_viewer {
            // The stream is over and all of it was seen.
            self.state = State::Over;
        } else if (300..400).contains(&head.status) {
            self.fail(CapError::redirected(head.status, head.location));
        } else if !essence.eq_ignore_ascii_case("text/event-stream") {
            let found = if essence.is_empty() { "none" } else { essence };
            let message = format!(
                "status {}, content type: expected text/event-stream, found {found}",
                head.status
            );
            self.fail(CapError::protocol(message));
        } else {
            self.was_open = true;
            self.state = State::Reading;
            let resumed = self.packets.last_event_id();
            self.packets.open();
            let notice = resumed.map_or(Notice::Connected, |cursor| Notice::Resumed { cursor });
            self.queue.push_back(Action::Notice(notice));
        }
    }

    /// The server refused. On the first connection that is final; on a later one a deploy or a
    /// proxy may have answered.
    pub fn refused(&mut self, refusal: Refusal<'_>, now: Duration) {
        let problem = serde_json::from_slice::<Problem>(refusal.body).ok();
        let header =
            refusal.retry_after.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
        let error = CapError::refused(refusal.status, problem, header);
        let passes = self.was_open && matches!(refusal.status, 429 | 502 | 503 | 504);
        let wait = error.retry_after();
        if !passes || self.is_too_long(wait) {
            return self.fail(error);
        }
        let why = ConnectionError::new(format!("status {}", refusal.status));
        self.interrupted(why, wait, now);
    }

    /// Bytes of the body.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.packets.push(bytes);
    }

    /// The body ended without an error.
    pub fn ended(&mut self, now: Duration) {
        self.lost(ConnectionError::new("the stream ended without CLOSE"), now);
    }

    /// The request or the body failed: refused, or reset.
    pub fn failed(&mut self, why: impl Into<String>, now: Duration) {
        self.lost(ConnectionError::new(why), now);
    }

    /// The server was silent for too long.
    pub fn timed_out(&mut self, why: impl Into<String>, now: Duration) {
        self.lost(ConnectionError::timeout(why), now);
    }

    /// The connection is gone. Frames that the caller has not taken come again, because the cursor
    /// is before them.
    fn lost(&mut self, why: ConnectionError, now: Duration) {
        self.check_deadline(now);
        if matches!(self.state, State::Over) {
            return;
        }
        self.packets.close();
        if !self.packets.can_resume() {
            let message = format!("{}, and the server gives no place to resume at", why.message);
            return self.fail(CapError::Connection(ConnectionError { message, ..why }));
        }
        match self.pending.take() {
            Some(error) => self.transient(*error, now),
            None => self.interrupted(why, None, now),
        }
    }

    /// The body ended after a TRANSIENT error: the run waits for this client.
    fn transient(&mut self, error: StreamError, now: Duration) {
        self.transients += 1;
        let wait =
            error.retry_after().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        if self.transients > self.policy.max_retries || self.is_too_long(wait) {
            return self.fail(CapError::stream(error));
        }
        self.wait(error.to_string(), wait, now);
    }

    fn interrupted(&mut self, why: ConnectionError, floor: Option<Duration>, now: Duration) {
        let since = now.saturating_sub(self.progress_at.unwrap_or(now));
        let is_patient = self.was_open && since < self.policy.resume_patience;
        if self.retries >= self.policy.max_retries && !is_patient {
            let retries = self.retries;
            return self.fail(CapError::Connection(ConnectionError { retries, ..why }));
        }
        self.wait(why.message, floor, now);
        self.retries += 1;
    }

    fn wait(&mut self, because: String, floor: Option<Duration>, now: Duration) {
        let policy = &self.policy;
        let delay = policy.backoff.delay(self.retries, self.random.f64());
        let floors =
            [floor, self.packets.retry()].into_iter().flatten().map(|floor| policy.clamp(floor));
        let wait = floors.fold(delay, Duration::max);
        self.state = State::Waiting(now.saturating_add(wait));
        self.queue.push_back(Action::Notice(Notice::Retrying { wait, because }));
    }

    fn is_too_long(&self, wait: Option<Duration>) -> bool {
        wait.is_some_and(|wait| wait > self.policy.max_wait)
    }

    fn fail(&mut self, error: CapError) {
        self.state = State::Over;
        self.queue.push_back(Action::Fail(error));
    }

    /// The next thing that the bytes so far hold.
    fn read(&mut self, now: Duration) -> Action {
        match self.packets.next() {
            Ok(Some(packet)) => self.take(packet, now),
            Ok(None) => Action::Read,
            Err(error) => self.over(Action::Fail(error)),
        }
    }

    fn over(&mut self, action: Action) -> Action {
        self.state = State::Over;
        action
    }

    fn take(&mut self, packet: StreamPacket, now: Duration) -> Action {
        match self.seen.order(&packet) {
            Order::Repeat if matches!(packet.payload, Payload::Close(_)) => {
                return self.over(Action::Done);
            }
            Order::Repeat => return Action::Notice(Notice::Duplicate { seq: packet.seq }),
            Order::Next => {}
            Order::Gap { expected } => {
                let found = packet.seq;
                if self.policy.is_strict {
                    let message = format!("seq: packet {found} came where {expected} was due");
                    return self.over(Action::Fail(CapError::protocol(message)));
                }
                let action = self.accept(packet, now);
                self.queue.push_front(action);
                return Action::Notice(Notice::Gap { expected, found });
            }
        }
        self.accept(packet, now)
    }

    /// A packet that was not seen before.
    fn accept(&mut self, packet: StreamPacket, now: Duration) -> Action {
        self.retries = 0;
        self.progress_at = Some(now);
        let pending = self.pending.take();
        match (&packet.payload, pending) {
            (Payload::Error(_), _) if self.policy.is_observer => Action::Packet(packet),
            (Payload::Close(_), Some(error)) => self.over(Action::Fail(CapError::stream(*error))),
            (Payload::Close(_), None) => self.over(Action::Packet(packet)),
            (Payload::Error(error), _) => match error.severity {
                ErrorSeverity::Fatal => self.over(Action::Fail(CapError::stream(*error.clone()))),
                ErrorSeverity::Warning => {
                    let error = error.clone();
                    self.queue.push_back(Action::Packet(packet));
                    Action::Notice(Notice::Warning { error })
                }
                ErrorSeverity::Transient => {
                    self.pending = Some(error.clone());
                    Action::Notice(Notice::AttemptFailed { error: error.clone() })
                }
            },
            (Payload::Delta(_) | Payload::Event(_), _) => Action::Packet(packet),
        }
    }
}

/// The jump before `stream_lost`, the only one that the protocol itself makes.
fn is_lost_tail(packet: &StreamPacket, expected: u64) -> bool {
    let is_told = matches!(&packet.payload,
    Payload::Error(e) if FaultKind::parse(&e.code) == Some(FaultKind::StreamLost));
    is_told && packet.seq - expected >= LOST_TAIL_GAP - 1
}

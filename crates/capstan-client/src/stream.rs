//! The async shell: carries out the machine's actions.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use capstan_protocol::{Cursor, StreamPacket};
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderName, HeaderValue, header};
use tokio::time::{Instant, Sleep};
use uuid::Uuid;

use crate::error::CapError;
use crate::machine::{Action, Head, Machine, Policy, Refusal};
use crate::notice::Notice;
use crate::options::Listener;
use crate::transport::{Body, Request, Response, Transport, TransportError};

/// A refusal's body is read up to this: a problem is small.
pub(crate) const PROBLEM_BYTES: usize = 64 * 1024;

type Sending = Pin<Box<dyn Future<Output = Result<Answer, TransportError>> + Send>>;

/// The result of a request.
enum Answer {
    Open(Response),
    Refused {
        status: u16,
        retry_after: Option<String>,
        body: Vec<u8>,
    },
    /// No answer within this time.
    Silence(Duration),
}

/// The pending I/O between two polls. It lives here and not in a future, so that a dropped `next`
/// loses nothing.
enum Under {
    Nothing,
    Sending(Sending),
    /// With a timer that is not moved with every read: when it fires, it may be too early.
    Reading(Body, Pin<Box<Sleep>>),
    Sleeping(Pin<Box<Sleep>>),
}

/// The packets of one run, over reconnections. Dropping it closes the connection; the run
/// continues.
///
/// [`next`](Self::next) is cancel-safe.
pub struct PacketStream {
    machine: Machine,
    transport: Arc<dyn Transport>,
    request: Request,
    read_timeout: Duration,
    listener: Option<Listener>,
    epoch: Instant,
    /// The time of the machine's last poll.
    polled_at: Duration,
    under: Under,
    stream_id: Option<Uuid>,
    cursor: Option<Cursor>,
    is_over: bool,
}

/// The settings of a call.
pub(crate) struct Call {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) request: Request,
    pub(crate) policy: Policy,
    pub(crate) read_timeout: Duration,
    pub(crate) listener: Option<Listener>,
    pub(crate) last_event_id: Option<String>,
}

impl PacketStream {
    pub(crate) fn new(call: Call) -> Self {
        Self {
            // From the operating system: forked processes would all share their parent's seed.
            machine: Machine::attach(
                call.policy,
                Uuid::new_v4().as_u64_pair().0,
                call.last_event_id,
            ),
            transport: call.transport,
            request: call.request,
            read_timeout: call.read_timeout,
            listener: call.listener,
            epoch: Instant::now(),
            polled_at: Duration::ZERO,
            under: Under::Nothing,
            stream_id: None,
            cursor: None,
            is_over: false,
        }
    }

    /// The next packet; `None` after CLOSE. WARNINGs are among the packets, other errors are
    /// returned.
    pub async fn next(&mut self) -> Result<Option<StreamPacket>, CapError> {
        while !self.is_over {
            self.polled_at = self.epoch.elapsed();
            match self.machine.poll(self.polled_at) {
                Action::Packet(packet) => {
                    self.cursor = Some(packet.cursor());
                    self.stream_id = Some(packet.stream_id);
                    return Ok(Some(packet));
                }
                Action::Notice(notice) => self.notify(&notice),
                Action::Connect { last_event_id } => self.connect(last_event_id).await,
                Action::Read => self.read().await,
                Action::Wait { until } => self.sleep(until).await,
                Action::Done => self.is_over = true,
                Action::Fail(error) => {
                    self.is_over = true;
                    self.under = Under::Nothing;
                    return Err(error.at(&self.request.url));
                }
            }
        }
        self.under = Under::Nothing;
        Ok(None)
    }

    /// The next packet if it arrived with the last one and no other action comes before it. It
    /// never waits. After `None` call [`next`](Self::next). It serves batches.
    pub fn next_buffered(&mut self) -> Option<StreamPacket> {
        let packet = self.machine.poll_packet(self.polled_at)?;
        self.cursor = Some(packet.cursor());
        self.stream_id = Some(packet.stream_id);
        Some(packet)
    }

    /// Calls `listener` with what happens between the packets of this stream, instead of the
    /// client's own.
    pub fn listen(&mut self, listener: impl Fn(&Notice) + Send + Sync + 'static) {
        self.listener = Some(Arc::new(listener));
    }

    /// The packets as a [`Stream`], for combinators.
    pub fn into_stream(self) -> impl Stream<Item = Result<StreamPacket, CapError>> + Send {
        stream::unfold(self, |mut packets| async move {
            let next = packets.next().await.transpose()?;
            Some((next, packets))
        })
    }

    /// The stream that is read, as soon as the server has named it.
    pub fn stream_id(&self) -> Option<Uuid> {
        self.stream_id
    }

    /// The cursor after the last returned packet. [`CapClient::attach`](crate::CapClient::attach)
    /// continues there.
    pub fn cursor(&self) -> Option<Cursor> {
        self.cursor
    }

    fn notify(&self, notice: &Notice) {
        let stream = self.stream_id.map(tracing::field::display);
        if notice.is_warning() {
            tracing::warn!(stream, "{notice}");
        } else {
            tracing::debug!(stream, "{notice}");
        }
        if let Some(listener) = &self.listener {
            listener(notice);
        }
    }

    async fn connect(&mut self, last_event_id: Option<String>) {
        if !matches!(self.under, Under::Sending(_)) {
            self.under = Under::Sending(self.send(last_event_id));
        }
        let Under::Sending(sending) = &mut self.under else { return };
        let answer = sending.await;
        self.under = Under::Nothing;
        match answer {
            Ok(Answer::Open(response)) => self.open(response),
            Ok(Answer::Refused { status, retry_after, body }) => {
                let refusal = Refusal { status, retry_after: retry_after.as_deref(), body: &body };
                self.machine.refused(refusal, self.epoch.elapsed());
            }
            Ok(Answer::Silence(limit)) => {
                let why = format!("no answer within {} s", limit.as_secs_f64());
                self.machine.timed_out(why, self.epoch.elapsed());
            }
            Err(error) => self.machine.failed(error.to_string(), self.epoch.elapsed()),
        }
    }

    fn open(&mut self, response: Response) {
        let text =
            |name| response.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let named = text(HeaderName::from_static("x-stream-id")).and_then(|id| id.parse().ok());
        self.stream_id = named.or(self.stream_id);
        let content_type = text(header::CONTENT_TYPE).unwrap_or_default();
        let location = text(header::LOCATION);
        self.machine.opened(Head { status: response.status, content_type, location });
        self.under = Under::Reading(response.body, Box::pin(tokio::time::sleep(self.read_limit())));
    }

    /// How long a response may be silent: at most until the deadline.
    fn read_limit(&self) -> Duration {
        let left = self.machine.deadline().map(|end| end.saturating_sub(self.epoch.elapsed()));
        left.map_or(self.read_timeout, |left| left.min(self.read_timeout))
    }

    /// Sends the request and, if it is refused, reads why.
    fn send(&self, last_event_id: Option<String>) -> Sending {
        let (transport, mut request, limit) =
            (Arc::clone(&self.transport), self.request.clone(), self.read_limit());
        if let Some(id) = last_event_id.and_then(|id| HeaderValue::from_str(&id).ok()) {
            request.headers.insert("last-event-id", id);
        }
        Box::pin(async move {
            let Ok(response) = tokio::time::timeout(limit, transport.send(request)).await else {
                return Ok(Answer::Silence(limit));
            };
            let response = response?;
            if response.status < 400 {
                return Ok(Answer::Open(response));
            }
            let retry_after = response.headers.get(header::RETRY_AFTER);
            let retry_after = retry_after.and_then(|value| value.to_str().ok()).map(str::to_owned);
            let status = response.status;
            let body = tokio::time::timeout(limit, read_up_to(response.body, PROBLEM_BYTES))
                .await
                .unwrap_or_default();
            Ok(Answer::Refused { status, retry_after, body })
        })
    }

    async fn read(&mut self) {
        let limit = self.read_limit();
        let due = self.epoch + self.polled_at + limit;
        let Under::Reading(body, timer) = &mut self.under else {
            return self.machine.failed("the body is gone", self.epoch.elapsed());
        };
        let read = poll_fn(|cx| {
            if let Poll::Ready(read) = body.poll_next_unpin(cx) {
                return Poll::Ready(Some(read));
            }
            while timer.as_mut().poll(cx).is_ready() {
                if due <= Instant::now() {
                    return Poll::Ready(None);
                }
                timer.as_mut().reset(due);
            }
            Poll::Pending
        });
        let read = read.await;
        let now = self.epoch.elapsed();
        match read {
            Some(Some(Ok(bytes))) => return self.machine.bytes(&bytes),
            Some(Some(Err(error))) => self.machine.failed(error.to_string(), now),
            Some(None) => self.machine.ended(now),
            None => {
                let why = format!("nothing came for {} s", limit.as_secs_f64());
                self.machine.timed_out(why, now);
            }
        }
        self.under = Under::Nothing;
    }

    async fn sleep(&mut self, until: Duration) {
        if !matches!(self.under, Under::Sleeping(_)) {
            self.under = Under::Sleeping(Box::pin(tokio::time::sleep(
                until.saturating_sub(self.epoch.elapsed()),
            )));
        }
        let Under::Sleeping(sleep) = &mut self.under else { return };
        sleep.await;
        self.under = Under::Nothing;
    }
}

impl std::fmt::Debug for PacketStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacketStream").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

/// The beginning of a body; what fails is simply not there.
pub(crate) async fn read_up_to(mut body: Body, limit: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(Ok(chunk)) = body.next().await {
        bytes.extend_from_slice(&chunk);
        if bytes.len() >= limit {
            bytes.truncate(limit);
            break;
        }
    }
    bytes
}

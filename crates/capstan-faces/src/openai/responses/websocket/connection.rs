//! Serves one connection: reads frames and writes answers, one at a time.

use std::pin::Pin;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use axum::response::Response;
use capstan_engine::limits::Slot;
use capstan_protocol::{Fault, FaultKind};
use futures_util::SinkExt as _;
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, interval_at, sleep};

use super::super::super::errors::CODE;
use super::answer::{Answer, Piece, refusal};
use super::client::{Client, Started};
use super::create::Memory;

/// The number of unanswered pings after which a peer counts as gone.
const UNANSWERED: u32 = 3;
/// The time that a peer has to close its side.
const FAREWELL: Duration = Duration::from_millis(500);
/// The interval of pings if they are switched off.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Codes of RFC 6455.
mod code {
    pub(super) const NORMAL: u16 = 1000;
    pub(super) const GOING_AWAY: u16 = 1001;
    pub(super) const UNSUPPORTED: u16 = 1003;
    pub(super) const TOO_BIG: u16 = 1009;
    pub(super) const BROKEN: u16 = 1011;
}

pub(super) struct Connection {
    client: Client,
    socket: WebSocket,
    answer: Option<Answer>,
    memory: Option<Memory>,
    pings: Interval,
    unanswered: u32,
    /// Fires when the connection has been idle for too long.
    idle: Pin<Box<Sleep>>,
    _slot: Slot,
}

/// The reason for the end of a connection.
enum Ending {
    /// The peer closed the connection, or is gone.
    Gone,
    /// The server closes with this code and reason.
    Closed(u16, &'static str),
}

enum Step {
    Piece(Piece),
    Message(Option<Result<Message, axum::Error>>),
    Ping,
}

impl Connection {
    pub(super) fn new(client: Client, socket: WebSocket, slot: Slot) -> Self {
        let timeouts = &client.cx.engine.settings().timeouts;
        let every = if timeouts.ping.is_zero() { NEVER } else { timeouts.ping };
        let mut pings = interval_at(Instant::now() + every, every);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let idle = Box::pin(sleep(timeouts.waiting));
        let (answer, memory, unanswered) = (None, None, 0);
        Self { client, socket, answer, memory, pings, unanswered, idle, _slot: slot }
    }

    /// Serves the connection to its end.
    pub(super) async fn serve(mut self) {
        let Err(Ending::Closed(code, reason)) = self.exchange().await else { return };
        // Drop the reader of an open answer. Its run continues.
        self.answer = None;
        let farewell = async {
            let close = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
            self.socket.send(Message::Close(Some(close))).await?;
            while let Some(Ok(_)) = self.socket.recv().await {}
            Ok::<_, axum::Error>(())
        };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
    }

    async fn exchange(&mut self) -> Result<(), Ending> {
        let engine = self.client.cx.engine.clone();
        loop {
            let is_free = self.answer.is_none();
            let step = tokio::select! {
                piece = piece_of(&mut self.answer) => Step::Piece(piece),
                message = self.socket.recv() => Step::Message(message),
                _ = self.pings.tick() => Step::Ping,
                () = self.idle.as_mut(), if is_free => {
                    return Err(Ending::Closed(code::NORMAL, "the connection was idle for too \
                        long"));
                }
                () = engine.until_draining(), if is_free => return Err(LEAVING),
                () = engine.until_closing() => return Err(LEAVING),
            };
            match step {
                Step::Piece(Piece::Frames(frames)) => self.write(frames).await?,
                Step::Piece(Piece::End(frames)) => {
                    self.finish();
                    self.write(frames).await?;
                }
                Step::Piece(Piece::Cut) => return Err(self.broken()),
                Step::Message(message) => {
                    self.unanswered = 0;
                    self.message(message).await?;
                }
                Step::Ping if self.unanswered == UNANSWERED => return Err(Ending::Gone),
                Step::Ping => {
                    self.unanswered += 1;
                    self.send(Message::Ping(Default::default())).await?;
                }
            }
        }
    }

    /// The ending after an answer that broke off, which must not look complete.
    fn broken(&self) -> Ending {
        if self.client.cx.engine.is_draining() {
            LEAVING
        } else {
            Ending::Closed(code::BROKEN, "the answer broke off")
        }
    }

    fn finish(&mut self) {
        self.memory = self.answer.take().and_then(Answer::into_memory);
        self.idle
            .as_mut()
            .reset(Instant::now() + self.client.cx.engine.settings().timeouts.waiting);
    }

    async fn message(
        &mut self,
        message: Option<Result<Message, axum::Error>>,
    ) -> Result<(), Ending> {
        match message {
            Some(Ok(Message::Text(frame))) => self.create(&frame).await,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
            Some(Ok(Message::Binary(_))) => {
                Err(Ending::Closed(code::UNSUPPORTED, "frames are text"))
            }
            Some(Ok(Message::Close(_))) | None => Err(Ending::Gone),
            Some(Err(error)) => Err(unreadable(&error)),
        }
    }

    async fn create(&mut self, frame: &str) -> Result<(), Ending> {
        if self.answer.is_some() {
            let fault = Fault::new(FaultKind::RequestConflict)
                .with_message("One response at a time: the last one is still being answered.")
                .with_detail(CODE, "response_in_progress");
            return self.refuse(self.client.refusal(fault)).await;
        }
        // Boxed, because most connections wait most of the time.
        match Box::pin(self.client.start(frame, self.memory.as_ref())).await {
            Ok(Started::Answer(answer)) => self.answer = Some(*answer),
            Ok(Started::WarmedUp(memory, frames)) => {
                self.write(frames.into()).await?;
                self.memory = Some(memory);
            }
            Err(refused) => return self.refuse(refused).await,
        }
        Ok(())
    }

    /// Sends a refusal, and reports it to metrics and the log like any other.
    async fn refuse(&mut self, refused: Response) -> Result<(), Ending> {
        if let Some(fault) = refused.extensions().get::<Fault>() {
            self.client.cx.observer.refused(fault.kind());
            let cause = self.client.cx.engine.loggable(fault);
            tracing::info!(code = fault.code(), status = fault.status(), cause, "refused");
        }
        self.send(Message::Text(refusal(refused).await.into())).await
    }

    async fn write(&mut self, frames: Vec<String>) -> Result<(), Ending> {
        for frame in frames {
            self.socket.feed(Message::Text(frame.into())).await.map_err(|_| Ending::Gone)?;
        }
        self.socket.flush().await.map_err(|_| Ending::Gone)
    }

    async fn send(&mut self, message: Message) -> Result<(), Ending> {
        self.socket.send(message).await.map_err(|_| Ending::Gone)
    }
}

const LEAVING: Ending = Ending::Closed(code::GOING_AWAY, "the server shuts down");

async fn piece_of(answer: &mut Option<Answer>) -> Piece {
    match answer {
        Some(answer) => answer.next().await,
        None => std::future::pending().await,
    }
}

/// The ending after a frame that cannot be read: too large, or not a WebSocket's.
fn unreadable(error: &axum::Error) -> Ending {
    use std::error::Error as _;
    let is_too_big = error.source().is_some_and(|cause| cause.to_string().contains("too long"));
    if is_too_big {
        Ending::Closed(code::TOO_BIG, "the frame is larger than a request may be")
    } else {
        Ending::Gone
    }
}

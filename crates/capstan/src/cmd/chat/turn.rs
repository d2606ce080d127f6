//! One message and its answer, with the waits that a person sees.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use capstan_client::{CapClient, CapError, PacketStream};
use capstan_protocol::{ErrorSeverity, ServiceRequest, StreamPacket, Transcript};

use super::screen::Screen;

/// What a shell expects of a program that Ctrl-C ended.
pub(in crate::cmd) const INTERRUPTED: u8 = 130;

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cmd) enum Outcome {
    Complete,
    Failed,
    NoConnection,
    NoProtocol,
    /// Ctrl-C.
    Stopped,
    /// Ctrl-C, twice.
    Left,
}

impl Outcome {
    pub(in crate::cmd) fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Complete => 0,
            Self::Failed => 1,
            Self::NoConnection => 3,
            Self::NoProtocol => 4,
            Self::Stopped | Self::Left => INTERRUPTED,
        })
    }

    pub(super) fn is_leaving(self) -> bool {
        self == Self::Left
    }

    pub(in crate::cmd) fn of(error: &CapError) -> Self {
        match error {
            CapError::Connection(_) => Self::NoConnection,
            CapError::Protocol(_) => Self::NoProtocol,
            CapError::Runtime(_) => Self::Failed,
        }
    }
}

pub(super) struct Turn<'a> {
    client: &'a CapClient,
    screen: &'a Screen,
    request: ServiceRequest,
    transcript: Transcript,
    /// The last packet that is on the screen.
    shown: u64,
    is_stopping: bool,
}

/// What comes first.
enum News {
    Packet(Result<Option<StreamPacket>, CapError>),
    Interrupt,
}

impl<'a> Turn<'a> {
    pub(super) fn new(client: &'a CapClient, screen: &'a Screen, request: ServiceRequest) -> Self {
        Self { client, screen, request, transcript: Transcript::default(), shown: 0, is_stopping: false }
    }

    /// Shows the answer. A failure that passes is counted down, then the same request goes out again: it arms the run
    /// that waits for it, and starts no second one.
    pub(super) async fn play(mut self) -> io::Result<Outcome> {
        loop {
            let mut packets = self.client.assist(&self.request);
            let error = match self.follow(&mut packets).await? {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            self.screen.failure(&error)?;
            match wait_of(&error).filter(|_| self.screen.is_watched()) {
                Some(wait) if self.count_down(wait).await? => {}
                Some(_) => return Ok(Outcome::Left),
                None => return Ok(Outcome::of(&error)),
            }
        }
    }

    async fn follow(&mut self, packets: &mut PacketStream) -> io::Result<Result<Outcome, CapError>> {
        loop {
            let news = tokio::select! {
                biased;
                _ = tokio::signal::ctrl_c() => News::Interrupt,
                packet = packets.next() => News::Packet(packet),
            };
            match news {
                News::Packet(Ok(Some(packet))) => self.show(&packet)?,
                News::Packet(Ok(None)) => {
                    self.screen.end(&self.transcript)?;
                    return Ok(Ok(if self.is_stopping { Outcome::Stopped } else { Outcome::Complete }));
                }
                News::Packet(Err(error)) => return Ok(Err(error)),
                News::Interrupt if self.is_stopping => return Ok(Ok(Outcome::Left)),
                News::Interrupt => {
                    if let Err(error) = self.stop(packets).await {
                        return Ok(Err(error));
                    }
                }
            }
        }
    }

    /// The run ends on purpose; its CLOSE comes with the packets.
    async fn stop(&mut self, packets: &PacketStream) -> Result<(), CapError> {
        self.is_stopping = true;
        self.screen.note("stopping; Ctrl-C again to leave");
        match packets.stream_id() {
            Some(stream) => self.client.stop(stream).await,
            None => Ok(()),
        }
    }

    fn show(&mut self, packet: &StreamPacket) -> io::Result<()> {
        // After a countdown the run is told from its start.
        if packet.seq <= self.shown {
            return Ok(());
        }
        self.shown = packet.seq;
        self.transcript.take(packet);
        self.screen.packet(packet, &self.transcript)
    }

    /// Counts down; false if the person does not want to wait.
    async fn count_down(&self, wait: Duration) -> io::Result<bool> {
        for left in (1..=wait.as_secs_f64().ceil() as u64).rev() {
            self.screen.countdown(left)?;
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
                _ = tokio::signal::ctrl_c() => return Ok(false),
            }
        }
        self.screen.countdown(0)?;
        Ok(true)
    }
}

/// How long until the same request is worth sending again.
fn wait_of(error: &CapError) -> Option<Duration> {
    let runtime = error.as_runtime()?;
    runtime.retry_after.filter(|_| runtime.severity() == ErrorSeverity::Transient)
}

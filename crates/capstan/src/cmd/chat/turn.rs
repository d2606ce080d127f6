//! One message and its answer, with the waits that the user sees.

use std::io;
use std::time::Duration;

use capstan_client::{CapClient, CapError, PacketStream};
use capstan_protocol::{
    Close, Cursor, ErrorSeverity, Payload, ServiceRequest, StreamPacket, Transcript,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use uuid::Uuid;

use crate::cmd::outcome::Outcome;
use crate::cmd::screen::Screen;

pub(super) struct ChatTurn<'a> {
    client: &'a CapClient,
    screen: &'a Screen,
    request: ServiceRequest,
    transcript: Transcript,
    /// The run's stream, once it is known.
    stream: Option<Uuid>,
    /// The last packet on the screen.
    shown: u64,
}

/// The next thing that happens.
enum News {
    Packet(Result<Option<StreamPacket>, CapError>),
    Interrupt,
}

impl<'a> ChatTurn<'a> {
    pub(super) fn new(client: &'a CapClient, screen: &'a Screen, request: ServiceRequest) -> Self {
        Self { client, screen, request, transcript: Transcript::default(), stream: None, shown: 0 }
    }

    /// Shows the answer. After a TRANSIENT failure it counts down and sends the same request again,
    /// which starts the next attempt of the waiting run.
    pub(super) async fn play(mut self) -> io::Result<Outcome> {
        let mut interrupts = signal(SignalKind::interrupt())?;
        loop {
            let error = match self.follow(&mut interrupts).await? {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            self.screen.failure(&error)?;
            match wait_of(&error).filter(|_| self.screen.is_watched()) {
                Some(wait) if self.count_down(wait, &mut interrupts).await? => {}
                Some(_) => return self.stop(&mut interrupts).await,
                None => return Ok(Outcome::of(&error)),
            }
        }
    }

    async fn follow(&mut self, interrupts: &mut Signal) -> io::Result<Result<Outcome, CapError>> {
        let mut packets = self.client.assist(&self.request);
        loop {
            let news = tokio::select! {
                biased;
                _ = interrupts.recv() => News::Interrupt,
                packet = packets.next() => News::Packet(packet),
            };
            self.stream = packets.stream_id().or(self.stream);
            match news {
                News::Packet(Ok(Some(packet))) => self.show(&packet)?,
                News::Packet(Ok(None)) => {
                    self.screen.end(&self.transcript)?;
                    return Ok(Ok(self.outcome()));
                }
                News::Packet(Err(error)) => return Ok(Err(error)),
                // The current wait, for an answer or for another try, ends.
                News::Interrupt => return self.stop(interrupts).await.map(Ok),
            }
        }
    }

    /// An answer that another client stopped, or that was cut at its length limit, is incomplete.
    fn outcome(&self) -> Outcome {
        let reason = self.transcript.close().map(|close| close.reason());
        let is_cut = reason.is_some_and(|reason| matches!(&*reason, Close::CANCELLED | "length"));
        if is_cut { Outcome::Failed } else { Outcome::Complete }
    }

    /// Stops the run and shows its last text. A second Ctrl-C ends that wait too.
    async fn stop(&mut self, interrupts: &mut Signal) -> io::Result<Outcome> {
        let Some(stream) = self.stream else {
            self.screen.note("not waiting any longer");
            return Ok(Outcome::Interrupted);
        };
        self.screen.note("stopping");
        let stopped = tokio::select! {
            biased;
            _ = interrupts.recv() => return Ok(Outcome::Interrupted),
            stopped = self.client.stop(stream) => stopped,
        };
        if let Err(error) = stopped {
            self.screen.failure(&error)?;
            return Ok(Outcome::Interrupted);
        }
        // The end is in the journal, so the rest is readable.
        let rest = self.client.observe(Cursor::new(stream, self.shown));
        tokio::select! {
            biased;
            _ = interrupts.recv() => {}
            shown = self.show_rest(rest) => shown?,
        }
        self.screen.end(&self.transcript)?;
        Ok(Outcome::Interrupted)
    }

    async fn show_rest(&mut self, mut rest: PacketStream) -> io::Result<()> {
        while let Ok(Some(packet)) = rest.next().await {
            // The user has seen the TRANSIENT failure already.
            if !matches!(packet.payload, Payload::Error(_)) {
                self.show(&packet)?;
            }
        }
        Ok(())
    }

    fn show(&mut self, packet: &StreamPacket) -> io::Result<()> {
        // After a countdown the server sends the run from its start.
        if packet.seq <= self.shown {
            return Ok(());
        }
        self.shown = packet.seq;
        self.transcript.take(packet);
        self.screen.packet(packet, &self.transcript)
    }

    /// Counts down. Returns false if the user ends the wait.
    async fn count_down(&self, wait: Duration, interrupts: &mut Signal) -> io::Result<bool> {
        for left in (1..=wait.as_secs_f64().ceil() as u64).rev() {
            self.screen.countdown(left)?;
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
                _ = interrupts.recv() => return Ok(false),
            }
        }
        self.screen.countdown(0)?;
        Ok(true)
    }
}

/// How long to wait before the same request may succeed.
fn wait_of(error: &CapError) -> Option<Duration> {
    let runtime = error.as_runtime()?;
    runtime.retry_after.filter(|_| runtime.severity() == ErrorSeverity::Transient)
}

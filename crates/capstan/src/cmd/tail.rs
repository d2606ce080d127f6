//! `capstan tail`: watches a stream, from its start or from a packet on, until it ends.

use std::io::{self, Write as _};
use std::process::ExitCode;

use capstan_client::{CapClient, CapError, PacketStream};
use capstan_protocol::{Cursor, ErrorSeverity, Payload, StreamError, StreamPacket, Transcript};

use super::Failure;
use super::connection::{Connection, Which, block_on, failed, nothing_there};
use super::outcome::INTERRUPTED;
use super::screen::Screen;

/// Watch a stream until it ends, over reconnections
///
/// The text goes to standard output, everything else to standard error; a pipe gets plain text
/// only. Ctrl-C stops watching, not the run.
///
/// Exit codes: 0 the stream ended; 1 the run failed, or was refused; 2 wrong usage; 3 no
/// connection; 4 the server does not speak the protocol; 130 interrupted.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The stream's id, or `latest`
    stream: Which,

    /// The first packet to show
    #[arg(long, default_value_t = 1, value_name = "SEQ")]
    from: u64,

    /// Print every packet as a line of JSON; a failure of the run also goes to standard error
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: Connection,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let screen = self.connection.screen();
        let client = self.connection.client(&screen)?;
        block_on(self.watch(&client, &screen))
    }

    async fn watch(&self, client: &CapClient, screen: &Screen) -> Result<ExitCode, Failure> {
        let stream = match self.stream.find(client).await {
            Ok(stream) => stream.ok_or_else(nothing_there)?,
            Err(error) => return failed(screen, &error),
        };
        let cursor = Cursor::new(stream, self.from.saturating_sub(1));
        let packets = if self.json { client.observe(cursor) } else { client.attach(cursor) };
        self.follow(packets, screen).await
    }

    async fn follow(
        &self,
        mut packets: PacketStream,
        screen: &Screen,
    ) -> Result<ExitCode, Failure> {
        let mut transcript = Transcript::default();
        let mut failure = None;
        loop {
            let next = tokio::select! {
                biased;
                _ = tokio::signal::ctrl_c() => return Ok(ExitCode::from(INTERRUPTED)),
                next = packets.next() => next,
            };
            match next {
                Ok(Some(packet)) => {
                    transcript.take(&packet);
                    self.show(&packet, &transcript, screen)?;
                    failure = failure_after(packet, failure);
                }
                Ok(None) if self.json => {
                    return failure.map_or(Ok(ExitCode::SUCCESS), |error| {
                        failed(screen, &CapError::stream(*error))
                    });
                }
                Ok(None) => {
                    screen.end(&transcript)?;
                    return Ok(ExitCode::SUCCESS);
                }
                Err(error) => return failed(screen, &error),
            }
        }
    }

    fn show(&self, packet: &StreamPacket, so_far: &Transcript, screen: &Screen) -> io::Result<()> {
        if !self.json {
            return screen.packet(packet, so_far);
        }
        // Flush each line at once: a program may wait for it.
        let mut out = io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(packet).unwrap_or_default())?;
        out.flush()
    }
}

/// The error with which the run failed, if only its CLOSE follows.
fn failure_after(
    packet: StreamPacket,
    before: Option<Box<StreamError>>,
) -> Option<Box<StreamError>> {
    match packet.payload {
        Payload::Error(error) => {
            Some(error).filter(|error| error.severity != ErrorSeverity::Warning)
        }
        Payload::Close(_) => before,
        Payload::Delta(_) | Payload::Event(_) => None,
    }
}

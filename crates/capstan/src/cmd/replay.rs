//! `capstan replay`: a run that was taken home, served again at its own pace, so that a bug report
//! runs.

mod recording;
mod server;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use tokio::net::TcpListener;

use self::recording::Recording;
use self::server::Server;
use super::Failure;
use super::chaos::refused;

/// Serve a downloaded run again, at its own pace
///
/// The file is what `GET /v1/streams/ID` answers, or what the console's *Take home* gives as
/// `.sse`. Every POST, and every GET of the stream, gets the very packets of the file;
/// `Last-Event-ID` goes on after a packet.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The run, as server-sent events
    #[arg(value_name = "RUN.SSE")]
    file: PathBuf,

    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8787")]
    listen: String,

    /// How many times faster; 0 is at once
    #[arg(long, value_name = "TIMES", default_value_t = 1.0)]
    speed: f64,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if !self.speed.is_finite() || self.speed < 0.0 {
            return Err(Failure::usage("--speed takes a number from 0 on, such as 4"));
        }
        let recording = Recording::read(&self.file)?;
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(run(&self.listen, recording, self.speed))?;
        Ok(ExitCode::SUCCESS)
    }
}

async fn run(listen: &str, recording: Recording, speed: f64) -> Result<(), Failure> {
    let listener = TcpListener::bind(listen).await.map_err(|error| refused(listen, &error))?;
    let (address, said) = (listener.local_addr()?, recording.to_string());
    // Not `println!`: whoever closed the pipe is no reason to panic.
    writeln!(io::stdout().lock(), "replay listening on http://{address}: {said}")?;
    if let Some((first, last)) = recording.gap() {
        anstream::eprintln!("packets {first} to {last} are not in the file: clients notice");
    }
    if !recording.is_closed() {
        anstream::eprintln!("the run has no CLOSE: its responses end where the file does");
    }
    let server = Arc::new(Server { recording, speed });
    tokio::select! {
        () = server.serve(listener) => {}
        () = super::serve::terminated()? => {}
    }
    Ok(())
}

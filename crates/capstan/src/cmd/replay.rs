//! `capstan replay`: serves a downloaded run again at its own pace, to reproduce a bug.

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
/// The file is the body of `GET /v1/streams/ID`, or the `.sse` file that the console downloads.
/// Every POST, and every GET of the stream, gets exactly the packets of the file; with
/// `Last-Event-ID` it continues after that packet.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The run, as server-sent events
    #[arg(value_name = "RUN.SSE")]
    file: PathBuf,

    /// The address to listen on; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8787")]
    listen: String,

    /// The speed as a factor; 0 sends everything at once
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
    let (address, description) = (listener.local_addr()?, recording.to_string());
    // Not `println!`: a closed pipe must not cause a panic.
    writeln!(io::stdout().lock(), "replay listening on http://{address}: {description}")?;
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

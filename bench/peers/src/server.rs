//! A server: one process or several, on a port that was free, with a folder of its own; stopped
//! when it is dropped.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use capstan_bench_kit::process;
use tempfile::TempDir;

/// Some take long to load.
const PATIENCE: Duration = Duration::from_secs(180);

pub struct Server {
    pub address: SocketAddr,
    pub folder: TempDir,
    processes: Vec<Child>,
}

impl Server {
    /// On a free port, with no process yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self { address: free()?, folder: tempfile::tempdir()?, processes: Vec::new() })
    }

    pub fn port(&self) -> String {
        self.address.port().to_string()
    }

    /// Starts a process that belongs to it. What it says goes to a file, whose end is told if it
    /// fails.
    pub fn spawn(&mut self, command: &mut Command) -> io::Result<()> {
        let log = std::fs::File::create(self.log(self.processes.len()))?;
        let program = command.get_program().to_owned();
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        let child = command.stdout(log.try_clone()?).stderr(log).spawn();
        let named = |error: io::Error| io::Error::other(format!("{}: {error}", program.display()));
        self.processes.push(child.map_err(named)?);
        Ok(())
    }

    fn log(&self, process: usize) -> std::path::PathBuf {
        self.folder.path().join(format!("log-{process}"))
    }

    /// Until it takes connections.
    pub fn ready(mut self) -> io::Result<Self> {
        wait_for(self.address, || match self.gone()? {
            Some(said) => Err(io::Error::other(format!("it has ended: {said}"))),
            None => Ok(()),
        })?;
        Ok(self)
    }

    /// The last words of a process that has ended.
    fn gone(&mut self) -> io::Result<Option<String>> {
        for nth in 0..self.processes.len() {
            if self.processes[nth].try_wait()?.is_some() {
                let said = std::fs::read_to_string(self.log(nth))?;
                let lines: Vec<&str> = said.lines().collect();
                return Ok(Some(lines[lines.len().saturating_sub(10)..].join("\n")));
            }
        }
        Ok(None)
    }

    /// Processor time of all of it so far, in seconds.
    pub fn cpu(&self) -> io::Result<f64> {
        self.sum(|pid| Ok(process::cpu(pid)?.as_secs_f64()))
    }

    /// Resident memory of all of it, in bytes.
    pub fn resident(&self) -> io::Result<f64> {
        self.sum(|pid| Ok(process::resident(pid)? as f64))
    }

    fn sum(&self, figure: fn(u32) -> io::Result<f64>) -> io::Result<f64> {
        let mut sum = 0.0;
        for child in &self.processes {
            for pid in process::family(child.id())? {
                sum += figure(pid)?;
            }
        }
        Ok(sum)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for child in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A port that nobody has at the moment, below those that connections get: one that waits there for
/// a server to come would sooner or later be connected to itself.
pub fn free() -> io::Result<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() % 10_000) as u16;
    let nth = |_| 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port =
        (0..10_000).map(nth).find(is_free).ok_or_else(|| io::Error::other("no port is free"))?;
    Ok(([127, 0, 0, 1], port).into())
}

pub fn wait_for(
    address: SocketAddr,
    mut is_alive: impl FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_err() {
        is_alive()?;
        if Instant::now() > until {
            return Err(io::Error::other(format!("nothing listens on {address}")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

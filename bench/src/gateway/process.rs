//! A server process: started, asked for its address, looked at from outside, killed when dropped.

use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use capstan_bench_kit::process;

pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Server {
    pub fn peer() -> io::Result<Self> {
        Self::start(&["peer"])
    }

    pub fn capstan(journal: &str, durability: &str) -> io::Result<Self> {
        Self::start(&["capstan", journal, durability])
    }

    /// Over a disk journal, synced as far as a killed process needs it.
    pub fn on_disk(folder: &Path) -> io::Result<Self> {
        Self::capstan(&format!("disk:{}", folder.display()), "process")
    }

    fn start(args: &[&str]) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let mut child = Command::new(program)
            .arg(super::server::ROLE)
            .args(args)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let out = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        BufReader::new(out).read_line(&mut line)?;
        let address = line.trim().parse().map_err(io::Error::other);
        let address = address.inspect_err(|_| drop(child.kill()))?;
        Ok(Self { child, address })
    }

    /// Bytes of memory that are its own.
    pub fn resident(&self) -> io::Result<u64> {
        process::resident(self.child.id())
    }

    /// The most there ever was.
    pub fn peak(&self) -> io::Result<u64> {
        process::peak(self.child.id())
    }

    /// Processor time so far.
    pub fn cpu(&self) -> io::Result<Duration> {
        process::cpu(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! A server process: started, asked for its address, looked at from outside, killed when dropped.

use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

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
        let mut child =
            Command::new(program).arg(super::server::ROLE).args(args).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let out = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        BufReader::new(out).read_line(&mut line)?;
        let address = line.trim().parse().map_err(io::Error::other);
        let address = address.inspect_err(|_| drop(child.kill()))?;
        Ok(Self { child, address })
    }

    /// Bytes of memory that are its own.
    pub fn resident(&self) -> io::Result<u64> {
        self.status("VmRSS:")
    }

    /// The most there ever was.
    pub fn peak(&self) -> io::Result<u64> {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> io::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("no such line in status"))
    }

    /// Processor time so far.
    pub fn cpu(&self) -> io::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name may hold blanks; what is behind it does not. utime and stime are fields 14 and 15.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Raises the soft limit of open files to the hard one: every viewer is a socket.
pub fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

//! A process, looked at from outside.

use std::io;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Bytes of memory that are its own.
pub fn resident(pid: u32) -> io::Result<u64> {
    status(pid, "VmRSS:")
}

/// The most there ever was.
pub fn peak(pid: u32) -> io::Result<u64> {
    status(pid, "VmHWM:")
}

fn status(pid: u32, name: &str) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("no such line in status"))
}

/// Processor time so far.
pub fn cpu(pid: u32) -> io::Result<Duration> {
    // utime and stime are fields 14 and 15 of all.
    let ticks: u64 =
        stat(pid)?.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// The fields after the name, which may hold blanks; what is behind it does not.
fn stat(pid: u32) -> io::Result<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    Ok(stat.rsplit(')').next().unwrap_or_default().split_whitespace().map(str::to_owned).collect())
}

/// It and all that it has started.
pub fn family(pid: u32) -> io::Result<Vec<u32>> {
    let mut family = vec![pid];
    let numbers = std::fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parents: Vec<(u32, u32)> = numbers
        .filter_map(|child| Some((child, stat(child).ok()?.get(1)?.parse().ok()?)))
        .collect();
    let mut at = 0;
    while let Some(&parent) = family.get(at) {
        family.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child));
        at += 1;
    }
    Ok(family)
}

/// Raises the soft limit of open files to the hard one: every viewer is a socket.
pub fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

//! One tenant does its worst, another one works beside it, in a process whose memory is limited
//! from outside.
//!
//! The short version asserts what the process holds, that health is answered and that the quiet
//! tenant's runs end well. `--ignored` (`make soak`) does each attack again and again, and holds
//! the quiet tenant's time beside it against that of a quiet server.

#[path = "../../../../capstan-gateway/tests/it/common/http2.rs"]
mod frames;
mod kinds;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use capstan_gateway::KeyHash;
use capstan_protocol::ServiceRequest;

use crate::serve::client::{ask, http};
use crate::serve::process::Server;

/// All that the process may ever map; what a thread reserves for its heap counts as well.
const ADDRESS_SPACE_KB: u64 = 6 * 1024 * 1024;
/// What a tenant's requests may take in this test.
const IN_FLIGHT: u64 = 32 * 1024 * 1024;
/// What the process may ever have resident: itself, what requests may take, and what the allocator
/// keeps of it. That is the most: it gives back what was freed a second later, and some of it only
/// when its thread works again.
const MAX_RESIDENT_KB: u64 = 512 * 1024;

struct Attack<'a> {
    server: &'a Server,
    http: reqwest::Client,
    /// How many large bodies at once, and three times as many that are never sent to their end.
    bodies: usize,
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tenant = |name: &str| {
        format!(
            "[[tenants]]\nname = \"{name}\"\nkeys = [\"sha256:{}\"]\n",
            KeyHash::of(name).to_hex()
        )
    };
    let limits =
        format!("[limits]\nbytes_in_flight_per_tenant = {IN_FLIGHT}\nwaiting_per_tenant = 20\n");
    let text = format!("{limits}{}{}", tenant("loud"), tenant("quiet"));
    std::fs::write(folder.path().join("capstan.toml"), text).unwrap();
    folder
}

/// A line of `/proc/<pid>/status` in kilobytes.
fn memory(server: &Server, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// From here on `VmHWM` is the most of what follows.
fn forget_peak(server: &Server) {
    std::fs::write(format!("/proc/{}/clear_refs", server.id()), "5").unwrap();
}

/// Runs of the quiet tenant, one after the other; how long each took.
async fn quiet(url: &str, count: usize) -> Vec<Duration> {
    let (http, mut times) = (http(), Vec::new());
    for _ in 0..count {
        let began = Instant::now();
        let request: ServiceRequest = ask("/tokens 5");
        let answered = http
            .post(format!("{url}/v1/assist"))
            .bearer_auth("quiet")
            .json(&request)
            .send()
            .await
            .unwrap();
        assert_eq!(answered.status(), 200);
        assert!(answered.text().await.unwrap().contains(r#""op":"CLOSE""#));
        let health = http.get(format!("{url}/health")).send().await.unwrap();
        assert_eq!(health.status(), 200);
        times.push(began.elapsed());
    }
    times.sort();
    times
}

async fn round(server: &Server, count: usize) -> Vec<Duration> {
    let attack = Attack { server, http: http(), bodies: 12 };
    let (held, times) = tokio::join!(attack.all(), quiet(&server.url, count));
    let peak = memory(server, "VmHWM");
    assert!(peak < MAX_RESIDENT_KB, "{peak} kB were resident");
    drop(held);
    attack.clear().await;
    times
}

#[tokio::test]
async fn a_hostile_tenant_takes_neither_the_machine_nor_anybody_elses_runs() {
    let folder = folder();
    let server = Server::start_within(folder.path(), ADDRESS_SPACE_KB);
    round(&server, 20).await;
    eprintln!("{} kB resident, {} kB at most", memory(&server, "VmRSS"), memory(&server, "VmHWM"));
    assert_eq!(server.get("/readyz").await.status(), 200);
}

/// What the long version does, one after the other, and all of it at once.
const ATTACKS: [&str; 15] = [
    "structure",
    "large bodies",
    "large bodies through other faces",
    "half-sent bodies",
    "half-sent bodies over HTTP/2",
    "half-sent heads",
    "small bodies",
    "lists",
    "unread lists",
    "unread streams",
    "tickets",
    "waiting runs",
    "a large session",
    "idle connections",
    "everything at once",
];
/// A thread that is busy and asks for nothing.
const NOTHING: &str = "nothing";
/// How many runs of the quiet tenant are measured beside each.
const MEASURED: usize = 1000;
/// And how often each is made meanwhile, at least.
const ROUNDS: usize = 3;
/// What quiet is at least taken to be. A run of the quiet tenant passes from thread to thread some
/// ten times, and on two cores that the tenant, the server and its attacker share, a hand-over
/// waits for up to one slice of the scheduler (3 ms on Linux) now and then: one or two of those in
/// a run say nothing about the server.
const SLICES: Duration = Duration::from_millis(6);

fn p99(times: &[Duration]) -> Duration {
    times[times.len() * 99 / 100]
}

/// The quiet tenant's times, and how often the attack was made meanwhile. Attackers have machines
/// of their own: here theirs is a thread that steps back for everybody else's, so that what is
/// measured is the server.
fn beside(server: &Server, name: &str) -> (Vec<Duration>, usize) {
    let (is_over, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|threads| {
        let (is_over, rounds) = (&is_over, &rounds);
        let attacking = threads.spawn(move || {
            step_back();
            runtime().block_on(async {
                let attack = Attack { server, http: http(), bodies: 20 };
                while !is_over.load(Ordering::Relaxed) {
                    attack.once(name).await;
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        });
        let mut times = runtime().block_on(quiet(&server.url, MEASURED));
        while rounds.load(Ordering::Relaxed) < ROUNDS && !attacking.is_finished() {
            times.extend(runtime().block_on(quiet(&server.url, MEASURED)));
        }
        times.sort();
        is_over.store(true, Ordering::Relaxed);
        attacking.join().unwrap();
        (times, rounds.load(Ordering::Relaxed))
    })
}

/// Has this thread run only when nobody else wants to. With a mere nice value it would still count
/// as busy where the kernel looks for a free core, and everybody woken there would wait for a
/// slice.
fn step_back() {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let set = std::process::Command::new("chrt")
        .args(["--idle", "--pid", "0", &thread])
        .status()
        .unwrap();
    assert!(set.success());
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// All of them, or those that `CAPSTAN_ATTACKS` names, with commas between.
#[test]
#[ignore = "soak: long"]
fn soak_no_attack_more_than_doubles_the_time_of_a_quiet_tenant() {
    let folder = folder();
    let server = Server::start_within(folder.path(), ADDRESS_SPACE_KB);
    runtime().block_on(quiet(&server.url, 20));
    let only = std::env::var("CAPSTAN_ATTACKS").unwrap_or_default();
    let mut failed = Vec::new();
    let mut before = undisturbed(&server);
    for name in ATTACKS
        .into_iter()
        .filter(|name| only.is_empty() || only.split(',').any(|one| one == *name))
    {
        forget_peak(&server);
        let (times, rounds) = beside(&server, name);
        let (disturbed, resident) = (p99(&times), memory(&server, "VmHWM"));
        // The machine has its moods: what counts is how it was around that time.
        let after = undisturbed(&server);
        let quiet = before.max(after);
        before = after;
        eprintln!(
            "{name}: p50 {:?}, p99 {disturbed:?} beside {quiet:?}; {rounds} rounds, {resident} kB \
             at most",
            times[times.len() / 2]
        );
        if disturbed >= 2 * quiet.max(SLICES) || resident >= MAX_RESIDENT_KB {
            failed.push(format!("{name}: {disturbed:?} beside {quiet:?}, {resident} kB"));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// The p99 of the quiet tenant beside nobody but a thread that steps back, which is part of every
/// measurement and none of the server's doing.
fn undisturbed(server: &Server) -> Duration {
    p99(&beside(server, NOTHING).0)
}

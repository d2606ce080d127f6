//! The clock of the machine is set while the server runs, by libfaketime: the wall clock alone, as
//! `date -s` would.

use std::path::PathBuf;
use std::time::Duration;

use capstan_protocol::{ServiceRequest, StreamOpCode};

use crate::serve::client::{ask, http, packets, stream_of};
use crate::serve::process::Server;

/// A step that takes this long waits for the clock, which is set back by an hour.
const GUARD: Duration = Duration::from_secs(60);

/// The library that sets the clock of one process.
pub(crate) fn faketime() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().map(|folder| folder.unwrap().path());
    let mut libraries = folders.map(|folder| folder.join("faketime/libfaketime.so.1"));
    let found = libraries.find(|library| library.exists());
    found.expect("this test needs libfaketime; install libfaketime")
}

/// A machine whose clock can be set.
struct Machine {
    library: PathBuf,
    folder: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { library: faketime(), folder: tempfile::tempdir().unwrap() };
        machine.set_clock("+0");
        machine
    }

    /// Sets the offset from the true time: `-1h`, `+8d`. By rename, so that no reader sees half of
    /// it.
    fn set_clock(&self, offset: &str) {
        let (new, place) = (self.folder.path().join("new"), self.folder.path().join("offset"));
        std::fs::write(&new, offset).unwrap();
        std::fs::rename(new, place).unwrap();
    }

    fn start(&self) -> Server {
        let (library, offset) = (self.library.to_str().unwrap(), self.folder.path().join("offset"));
        let env = [
            ("LD_PRELOAD", library),
            ("FAKETIME_TIMESTAMP_FILE", offset.to_str().unwrap()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ];
        Server::start_with(self.folder.path(), &env)
    }
}

/// A complete answer, whose times never go back.
async fn answer(server: &Server, request: &ServiceRequest) {
    let body = server.post(&http(), request).await.bytes().await.unwrap();
    let packets = packets(&body);
    assert!(packets.is_sorted_by_key(|packet| packet.t), "{packets:?}");
    assert!(packets.last().unwrap().op() == StreamOpCode::Close, "{packets:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs libfaketime"]
async fn a_clock_that_is_set_back_delays_nothing() {
    let machine = Machine::new();
    let request = ask("/tokens 30 --delay 20ms");
    let server = machine.start();
    let stream = stream_of(&server.post(&http(), &ask("/tokens 2")).await);
    let response = server.post(&http(), &request).await;
    server.kill();
    drop(response);
    let server = machine.start();
    machine.set_clock("-1h");
    // By the clock, the next attempt is an hour away.
    let answered = tokio::time::timeout(GUARD, answer(&server, &request)).await;
    answered.expect("the next attempt waits for the clock");
    machine.set_clock("+8d");
    answer(&server, &ask("/tokens 2")).await;
    server.wait_for_line("the clock was set");
    assert_eq!(server.get(&format!("/v1/streams/{stream}")).await.status(), 200);
    server.kill();
    machine.set_clock("+60d");
    machine.start().wait_for_line("far ahead of the newest time in the journal");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: waits for two sweeps of a minute; needs libfaketime"]
async fn soak_a_clock_that_is_set_forward_deletes_nothing_and_frees_no_claim() {
    let machine = Machine::new();
    let (kept, purged) = (ask("/tokens 2"), ask("/tokens 3"));
    let server = machine.start();
    let (stream, gone) = (
        stream_of(&server.post(&http(), &kept).await),
        stream_of(&server.post(&http(), &purged).await),
    );
    let purge = http().delete(format!("{}/v1/streams/{gone}?purge=true", server.url));
    assert_eq!(purge.send().await.unwrap().status(), 200);
    for offset in ["+8d", "+30d"] {
        machine.set_clock(offset);
        tokio::time::sleep(Duration::from_secs(65)).await;
        assert_eq!(stream_of(&server.post(&http(), &kept).await), stream, "{offset}");
        assert_eq!(server.post(&http(), &purged).await.status(), 410, "{offset}");
    }
}

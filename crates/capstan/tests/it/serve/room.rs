//! What a server does when there is little of something: descriptors, disk.

use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::serve::client::{ask, http};
use crate::serve::process::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_beyond_the_soft_limit_of_descriptors_leave_the_journal_well() {
    let folder = tempfile::tempdir().unwrap();
    let before = getrlimit(Resource::Nofile);
    // The server inherits it.
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), ..before }).unwrap();
    let server = Server::start(folder.path());
    setrlimit(Resource::Nofile, before).unwrap();
    server.wait_for_line("file descriptors");
    let address = server.url.strip_prefix("http://").unwrap();
    let idle: Vec<_> = (0..400).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert_eq!(server.post(&http(), &ask("/tokens 3")).await.status(), 200);
    drop(idle);
    assert_eq!(server.get("/readyz").await.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_nearly_full_takes_no_new_run_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("capstan.toml"),
        "min_free_bytes = 9_000_000_000_000_000_000\n",
    )
    .unwrap();
    let server = Server::start(folder.path());
    server.wait_for_line("nearly full");
    let refused = server.post(&http(), &ask("/tokens 3")).await;
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    assert!(refused.text().await.unwrap().contains("journal_unavailable"));
    assert_eq!(server.get("/readyz").await.status(), 503);
    assert_eq!(server.get("/livez").await.status(), 200);
}

//! Builds with planted bugs. A test of this folder finds each of them.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn is_found(bug: &str, test: &str) {
    let run = |bug: &str, limit: Duration| {
        // A bug may let a reader wait forever, so the run has a time limit.
        let mut child = Command::new("timeout");
        child
            .arg(limit.as_secs_f64().to_string())
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "--include-ignored", &format!("postgres::{test}")])
            .env("CAPSTAN_BUG", bug);
        child.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    };
    let began = Instant::now();
    assert!(run("none", Duration::from_secs(60)), "{test} passes without a planted bug");
    // Three times as long as without the bug.
    assert!(!run(bug, began.elapsed() * 3), "{test} does not find {bug}");
}

#[test]
#[ignore = "needs PostgreSQL"]
fn planted_no_fence_is_found() {
    is_found("no_fence", "fenced_process_cannot_write_and_loses_its_runs");
}

#[test]
#[ignore = "needs PostgreSQL"]
fn planted_no_settle_is_found() {
    is_found("no_settle", "lost_packets_are_rewritten_after_a_server_crash");
}

#[test]
#[ignore = "needs PostgreSQL"]
fn planted_no_poll_is_found() {
    is_found("no_poll", "polling_replaces_lost_notifications");
}

#[test]
#[ignore = "needs PostgreSQL"]
fn planted_early_notice_is_found() {
    is_found("early_notice", "remote_reader_sees_all_packets_in_order");
}

#[test]
#[ignore = "needs PostgreSQL"]
fn planted_adopt_living_is_found() {
    is_found("adopt_living", "only_the_owner_of_a_run_writes_to_it");
}

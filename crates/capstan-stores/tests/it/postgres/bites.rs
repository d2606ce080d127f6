//! A build with mistakes planted: each is found by a test of this folder.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn is_found(bug: &str, test: &str) {
    let run = |bug: &str, limit: Duration| {
        // A mistake that lets a reader wait for ever is found, too.
        let mut child = Command::new("timeout");
        child
            .arg(limit.as_secs_f64().to_string())
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "--include-ignored", &format!("postgres::{test}")])
            .env("CAPSTAN_BUG", bug);
        child.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    };
    let began = Instant::now();
    assert!(run("none", Duration::from_secs(60)), "{test} holds without a mistake");
    // Far longer than it takes.
    assert!(!run(bug, began.elapsed() * 3), "{test} does not find {bug}");
}

#[test]
#[ignore = "needs PostgreSQL"]
fn no_fence_bites() {
    is_found("no_fence", "who_is_fenced_writes_no_more_and_its_runs_are_taken_over");
}

#[test]
#[ignore = "needs PostgreSQL"]
fn no_settle_bites() {
    is_found("no_settle", "packets_that_a_crashed_server_has_lost_are_written_again");
}

#[test]
#[ignore = "needs PostgreSQL"]
fn no_poll_bites() {
    is_found("no_poll", "who_hears_no_notice_finds_out_all_the_same");
}

#[test]
#[ignore = "needs PostgreSQL"]
fn early_notice_bites() {
    is_found("early_notice", "a_reader_elsewhere_sees_all_packets_in_order");
}

#[test]
#[ignore = "needs PostgreSQL"]
fn adopt_living_bites() {
    is_found("adopt_living", "only_the_owner_of_a_run_writes_to_it");
}

//! The schedules bite: each mistake that a journal of many processes can be made to make is found
//! within a hundred.

use std::process::Command;

/// As named in the journal's `planted_bug.rs`.
const BUGS: [&str; 5] = ["no_fence", "no_settle", "no_poll", "early_notice", "adopt_living"];

/// Runs the test with a mistake planted, and says how it failed.
fn story_of(bug: &str) -> String {
    let test = "model::cluster::every_viewer_of_a_cluster_sees_the_same_stream";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--include-ignored", test, "--nocapture"])
        .env("CAPSTAN_BUG", bug)
        .env("CAPSTAN_CLUSTER_SEEDS", "100")
        .env_remove("CAPSTAN_SEED")
        .output()
        .unwrap();
    assert!(!output.status.success(), "{bug} was not found in 100 seeds");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
#[ignore = "soak: up to a hundred schedules each; needs PostgreSQL"]
fn soak_every_planted_mistake_of_a_cluster_is_found_within_a_hundred_seeds() {
    for bug in BUGS {
        let story = story_of(bug);
        let verdict = story.lines().find(|line| line.starts_with("seed "));
        eprintln!("{bug}: {}", verdict.unwrap_or_else(|| panic!("{bug}: {story}")));
    }
}

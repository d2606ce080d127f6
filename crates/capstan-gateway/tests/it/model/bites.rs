//! The model test bites: it finds every mistake that the journal can be made to make.

use std::process::Command;

/// As named in the journal's `planted_bug.rs`.
const BUGS: [&str; 5] =
    ["reused_seq", "lost_wakeup", "early_delivery", "double_claim", "resume_off_by_one"];

/// Runs this very test with a mistake planted, and says how it failed.
fn story_of(bug: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "model::every_viewer_sees_the_same_stream_under_any_schedule",
            "--nocapture",
        ])
        .env("CAPSTAN_BUG", bug)
        .env("CAPSTAN_SEEDS", "100")
        .env_remove("CAPSTAN_SEED")
        .output()
        .unwrap();
    assert!(!output.status.success(), "{bug} was not found in 100 seeds");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_planted_mistake_is_found_within_a_hundred_seeds() {
    for bug in BUGS {
        let story = story_of(bug);
        let verdict = story.lines().find(|line| line.starts_with("seed "));
        // A failure of another kind, such as a crash of the test itself, is not a find.
        eprintln!("{bug}: {}", verdict.unwrap_or_else(|| panic!("{bug}: {story}")));
    }
}

//! A run in one sentence.

use capstan_journal::{ArmedBy, Run, Status};
use capstan_protocol::{CATALOGUE, Timestamp};

/// The headline of a fault, if the catalogue has it. An agent may have codes of its own.
pub(super) fn title_of(code: &str) -> Option<&'static str> {
    CATALOGUE.iter().find(|entry| entry.code == code).map(|entry| entry.title)
}

/// A duration as text.
fn duration(micros: i64) -> String {
    let seconds = micros.max(0) as f64 / 1e6;
    match seconds {
        s if s < 1.0 => format!("{} ms", micros.max(0) / 1000),
        s if s < 60.0 => format!("{s:.1} s"),
        s if s < 3600.0 => format!("{} min {} s", (s / 60.0) as u64, (s % 60.0) as u64),
        s => format!("{} h {} min", (s / 3600.0) as u64, (s % 3600.0 / 60.0) as u64),
    }
}

fn attempts(count: u32) -> String {
    if count == 1 { "1 attempt".to_owned() } else { format!("{count} attempts") }
}

fn because(code: Option<&str>) -> String {
    let Some(code) = code else { return String::new() };
    match title_of(code) {
        Some(title) => format!(": {}", title.trim_end_matches('.')),
        None => format!(": {code}"),
    }
}

/// The state of a run in a sentence.
pub(super) fn of(run: &Run, now: Timestamp) -> String {
    let end = run.closed_at.unwrap_or(now);
    let took = duration(end.as_micros() - run.created_at.as_micros());
    let earlier = run.attempts.iter().rev().find_map(|attempt| attempt.fault.as_deref());
    match Status::of(run) {
        Status::Running if run.attempt > 1 => {
            let (now, before) = (run.attempt, run.attempt - 1);
            format!(
                "Attempt {now} of {} is at work; attempt {before} failed{}.",
                run.max_attempts,
                because(earlier)
            )
        }
        Status::Running => format!("At work for {took}, in attempt 1 of {}.", run.max_attempts),
        Status::Waiting => {
            let next = run.attempt + 1;
            let whom = match run.armed_by {
                ArmedBy::Client => "its client's next request",
                ArmedBy::Gateway => "its turn",
            };
            let wait = run.not_before.map_or(0, |at| at.as_micros() - now.as_micros());
            let from = if wait > 0 {
                format!(", in {} at the earliest", duration(wait))
            } else {
                String::new()
            };
            let failed = because(run.fault.as_deref());
            format!(
                "Attempt {} failed{failed}. Attempt {next} waits for {whom}{from}.",
                run.attempt
            )
        }
        Status::Failed => {
            format!(
                "Failed after {} in {took}{}.",
                attempts(run.attempt),
                because(run.fault.as_deref())
            )
        }
        Status::Stopped => format!("Stopped after {took}, in attempt {}.", run.attempt),
        Status::Healed => {
            let before = because(earlier);
            format!("Done in attempt {} after {took}; an earlier one failed{before}.", run.attempt)
        }
        Status::Done => format!("Done in {took}."),
    }
}

#[cfg(test)]
mod tests {
    use capstan_journal::{Claim, RunState};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_runs_state_is_one_sentence() {
        let at = |seconds: f64| Timestamp::from_micros((seconds * 1e6) as i64);
        let mut run =
            Claim { max_attempts: 3, ..Claim::new("t", "k", Uuid::nil(), at(0.0)) }.to_run();
        assert_eq!(of(&run, at(12.0)), "At work for 12.0 s, in attempt 1 of 3.");
        run.attempts[0].fault = Some("rate_limited".into());
        (run.state, run.fault, run.not_before) =
            (RunState::Waiting, Some("made_up".into()), Some(at(20.0)));
        assert_eq!(
            of(&run, at(15.0)),
            "Attempt 1 failed: made_up. Attempt 2 waits for its client's next request, in 5.0 s \
             at the earliest."
        );
        (run.state, run.attempt, run.closed_at) = (RunState::Closed, 3, Some(at(14.2)));
        assert_eq!(of(&run, at(99.0)), "Failed after 3 attempts in 14.2 s: made_up.");
        run.fault = None;
        assert!(
            of(&run, at(99.0)).starts_with("Done in attempt 3 after 14.2 s; an earlier one failed")
        );
        run.reason = Some("cancelled".into());
        assert_eq!(of(&run, at(99.0)), "Stopped after 14.2 s, in attempt 3.");
        assert_eq!(
            [duration(3_000), duration(61_000_000), duration(3_660_000_000)],
            ["3 ms", "1 min 1 s", "1 h 1 min"]
        );
    }
}

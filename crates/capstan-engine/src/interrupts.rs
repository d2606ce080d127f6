//! Interrupts: the questions of a run, and the checks of a request's answers.
//!
//! On the wire an interrupt's id is `<stream_id>:<id>`: the stream of the run that asked, and the
//! agent's own id.

mod earlier;
mod results;

use capstan_journal::{Questions, Run};
use capstan_protocol::agui::{ResumeEntry, ResumeStatus};
use capstan_protocol::{DecodeError, Fault, FaultKind, Timestamp};
use uuid::Uuid;

use crate::Engine;
use crate::ask::{Ask, invalid};
use crate::faults::journal_fault;
use crate::lookup;
use crate::wall_clock::between;

pub(crate) use earlier::answers as earlier_answers;
pub use results::take_answers;

/// Finds the run whose questions a request answers, and refuses answers that do not fit with a
/// reason. The claim decides between concurrent answers: the first one wins.
pub(crate) async fn asker(engine: &Engine, tenant: &str, ask: &Ask) -> Result<Option<Uuid>, Fault> {
    let answers = &ask.extras.answers;
    let Some(first) = answers.first() else { return Ok(None) };
    let unknown = || not_open(&first.interrupt_id, "it was never asked here, or is gone");
    let stream = stream_of(&first.interrupt_id).ok_or_else(unknown)?;
    let run = engine.journal.store().run(stream).await.map_err(journal_fault)?;
    let is_ours = |run: &Run| run.tenant == tenant && run.session == ask.session;
    let run = run.filter(is_ours).ok_or_else(unknown)?;
    let asked = run.asked.as_ref().ok_or_else(unknown)?;
    let asked_at = run.closed_at.unwrap_or(run.updated_at);
    let (now, steps) = (engine.wall.now(), engine.wall.steps());
    // Deadlines count elapsed time, so a step of the system clock does not end one early.
    check(asked, answers, |deadline| steps.is_past(asked_at, between(asked_at, deadline), now))?;
    Ok(Some(stream))
}

fn check(
    asked: &Questions,
    answers: &[ResumeEntry],
    is_over: impl Fn(Timestamp) -> bool,
) -> Result<(), Fault> {
    for answer in answers {
        let id = &answer.interrupt_id;
        let Some((_, deadline)) = asked.questions.iter().find(|(known, _)| known == id) else {
            return Err(not_open(id, "it was not asked together with the others"));
        };
        if asked.answered_by.is_some() {
            return Err(not_open(id, "it was answered already"));
        }
        // After the deadline a client may still cancel the question.
        if deadline.is_some_and(&is_over) && answer.status == ResumeStatus::Resolved {
            return Err(not_open(id, "its time is over"));
        }
    }
    let is_answered = |id: &String| answers.iter().any(|answer| answer.interrupt_id == *id);
    match asked.questions.iter().find(|(id, _)| !is_answered(id)) {
        Some((id, _)) => {
            Err(invalid(&DecodeError::value("resume", format!("lacks an answer to {id}"))))
        }
        None => Ok(()),
    }
}

fn not_open(id: &str, why: &str) -> Fault {
    let message = format!("The interrupt {id} cannot be answered: {why}.");
    Fault::new(FaultKind::InterruptNotOpen).with_message(message).with_detail("interrupt_id", id)
}

/// The run whose questions a request answers, according to the request. Not verified.
pub fn asker_of(ask: &Ask) -> Option<Uuid> {
    ask.extras.answers.first().and_then(|answer| stream_of(&answer.interrupt_id))
}

/// The session of the run whose questions a request answers; empty if there is none. The answers of
/// a client without sessions name it in this way.
pub async fn session_of_asker(engine: &Engine, tenant: &str, ask: &Ask) -> String {
    let Some(asker) = asker_of(ask) else { return String::new() };
    let run = lookup::by_stream(engine, tenant, &asker.to_string()).await;
    run.map(|run| run.session).unwrap_or_default()
}

/// The run that asked this question. `None` if the id is not one of a question.
pub fn stream_of(id: &str) -> Option<Uuid> {
    Uuid::parse_str(id.split_once(':')?.0).ok()
}

/// Replaces the id of an answer by the agent's own id.
pub(crate) fn for_agent(answer: &ResumeEntry) -> ResumeEntry {
    let mut answer = answer.clone();
    if let Some((_, own)) = answer.interrupt_id.split_once(':') {
        answer.interrupt_id = own.to_owned();
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(id: &str, status: ResumeStatus) -> ResumeEntry {
        ResumeEntry { interrupt_id: id.into(), status, payload: None, metadata: None }
    }

    #[test]
    fn answers_must_fit_what_was_asked() {
        let (now, past) = (Timestamp::from_micros(2), Some(Timestamp::from_micros(1)));
        let asked = Questions::new(vec![("s:a".into(), None), ("s:b".into(), past)]);
        let (a, late) =
            (answer("s:a", ResumeStatus::Resolved), answer("s:b", ResumeStatus::Resolved));
        let given_up = answer("s:b", ResumeStatus::Cancelled);
        let code = |asked: &Questions, answers: &[ResumeEntry]| {
            check(asked, answers, |deadline| deadline <= now).map_err(|f| f.code().to_owned())
        };
        assert_eq!(code(&asked, &[a.clone(), given_up.clone()]), Ok(()));
        assert_eq!(code(&asked, &[a.clone(), late]), Err("interrupt_not_open".into()));
        assert_eq!(code(&asked, std::slice::from_ref(&a)), Err("invalid_request".into()));
        assert_eq!(
            code(&asked, &[answer("s:c", ResumeStatus::Cancelled)]),
            Err("interrupt_not_open".into())
        );
        let done = Questions { answered_by: Some(Uuid::nil()), ..asked };
        assert_eq!(code(&done, &[a, given_up]), Err("interrupt_not_open".into()));
        assert_eq!(for_agent(&answer("s:far:b", ResumeStatus::Cancelled)).interrupt_id, "far:b");
    }
}

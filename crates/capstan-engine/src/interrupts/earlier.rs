//! The answers of earlier requests of a turn. An agent that starts anew asks its questions again,
//! so it needs all answers of the turn, and not only those to the last question.

use capstan_journal::{JournalError, Run};
use capstan_protocol::agui::ResumeEntry;

use super::{asker_of, for_agent};
use crate::ask::Ask;
use crate::limits::MemoryReservation;
use crate::{Engine, cpu_offload};

/// How many copies of a stored request exist while it is read.
const COPIES: usize = 3;

/// Reads the answers that earlier runs got in the turn that `ask` continues, oldest first. Each
/// of these runs ended with questions, and the next one has the answers. Another agent's answers
/// do not count: a permission is for the program that asked.
pub(crate) async fn answers(
    engine: &Engine,
    run: &Run,
    ask: &Ask,
    load: &mut MemoryReservation,
) -> Result<Vec<ResumeEntry>, JournalError> {
    let (mut answers, mut next) = (Vec::new(), asker_of(ask));
    while let Some(asker) = next {
        let Some(asker) = engine.journal.store().run(asker).await? else { break };
        if (&asker.tenant, &asker.agent) != (&run.tenant, &run.agent) {
            break;
        }
        let Some(earlier) = request_of(engine, &asker, load).await? else { break };
        next = asker_of(&earlier);
        answers.extend(earlier.extras.answers.iter().rev().map(for_agent));
    }
    answers.reverse();
    Ok(answers)
}

async fn request_of(
    engine: &Engine,
    run: &Run,
    load: &mut MemoryReservation,
) -> Result<Option<Ask>, JournalError> {
    let Some(body) = engine.journal.store().body(run.stream_id).await? else { return Ok(None) };
    let held = load.held();
    load.grow_anyway(body.len().saturating_mul(COPIES));
    let ask = cpu_offload::run(body.len(), || engine.asked(run, body.clone()));
    load.shrink_to(held);
    Ok(ask.ok())
}

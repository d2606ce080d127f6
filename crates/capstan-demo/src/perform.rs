//! What each command does.

use std::time::Duration;

use capstan_protocol::{Fault, FaultKind, RawJson, Timestamp};
use serde_json::json;

use crate::command::{self, Command};
use crate::showcase;
use crate::voice::{Voice, first_half};
use capstan_agent::{Failure, Interrupt, Outcome, ResumeStatus, Stopped, Turn};

const STEADY: &str = "A line may drop in the middle of a sentence, and yet the sentence arrives \
 whole: \
    what was said is kept, what is missing is said again, and nobody hears a word twice.";
/// Both thoughts begin alike and differ before the middle of the first. So the gateway skips a part
/// and takes back a part.
const FIRST_THOUGHT: &str = "The answer, I am quite sure, is forty-two, as every hitchhiker \
    of a certain age will tell you without being asked for it.";
const SECOND_THOUGHT: &str = "The answer, I am quite sure, depends on the question; on second \
 thoughts \
    I should have asked for that before I spoke.";

impl Command {
    /// Performs the command. Dropping the future stops it at the next word.
    pub(super) async fn perform(self, turn: &Turn, voice: &mut Voice<'_>) -> Outcome {
        match self {
            Self::Help => voice.answer(&command::help()).await,
            Self::Echo { text } => echo(voice, &text).await,
            Self::Tokens { count, delay } => tokens(voice, count, delay).await,
            Self::Fault { kind, after, retry_after } => {
                fail(voice, fault(kind, retry_after), after).await
            }
            Self::Warn => warn(voice).await,
            Self::UserError => user_error(voice).await,
            Self::Events => showcase::events(voice).await,
            Self::Flaky { failures, wait } if turn.attempt <= failures => {
                break_off(voice, STEADY, wait).await
            }
            Self::Flaky { .. } => voice.answer(STEADY).await,
            Self::Diverge if turn.attempt <= 1 => break_off(voice, FIRST_THOUGHT, None).await,
            Self::Diverge => voice.answer(SECOND_THOUGHT).await,
            Self::Ask { question, expires } => ask(turn, voice, question, expires).await,
            Self::Hang => hang(turn).await,
            Self::Panic => panic_on_purpose(voice).await,
        }
    }
}

/// At once, because the user knows the text.
async fn echo(voice: &mut Voice<'_>, text: &str) -> Outcome {
    voice.set_delay(Duration::ZERO);
    voice.answer(text).await
}

async fn tokens(voice: &mut Voice<'_>, count: u32, delay: Duration) -> Outcome {
    voice.set_delay(delay);
    voice.begin().await?;
    voice.count(count).await?;
    Ok(voice.end().await?)
}

fn fault(kind: FaultKind, retry_after: Option<Duration>) -> Fault {
    let fault = Fault::new(kind);
    match retry_after {
        Some(wait) => fault.with_retry_after(wait.as_secs_f64()),
        None => fault,
    }
}

/// Final, because the user wants to see the fault: another attempt would hide it.
async fn fail(voice: &mut Voice<'_>, fault: Fault, after: u32) -> Outcome {
    tokens(voice, after, Duration::ZERO).await?;
    Err(Failure::last(fault))
}

/// Half of a text, then a fault that another attempt may heal.
async fn break_off(voice: &mut Voice<'_>, text: &str, wait: Option<Duration>) -> Outcome {
    voice.answer(&first_half(text)).await?;
    Err(fault(FaultKind::UpstreamTruncated, wait).into())
}

async fn warn(voice: &mut Voice<'_>) -> Outcome {
    let warning = Fault::new(FaultKind::UpstreamTimeout)
        .with_message("One of two sources did not answer in time; the other one did.");
    voice.begin().await?;
    voice.say("I asked two sources. ").await?;
    voice.out.warning(&warning).await?;
    voice.say("One of them was slow, so this rests on the other.").await?;
    Ok(voice.end().await?)
}

async fn user_error(voice: &mut Voice<'_>) -> Outcome {
    voice.begin().await?;
    voice.say("Let me look that up. ").await?;
    voice.out.user_error(&showcase::broken_tool()).await?;
    voice.say("The search tool is down, so I answer from memory.").await?;
    Ok(voice.end().await?)
}

/// The id of the demo's question.
const DECISION: &str = "decision";

async fn ask(
    turn: &Turn,
    voice: &mut Voice<'_>,
    question: Option<String>,
    expires: Option<Duration>,
) -> Outcome {
    if let Some(answer) = turn.answer(DECISION) {
        let said = answer.payload.as_ref().map_or("nothing", RawJson::get);
        return match answer.status {
            ResumeStatus::Resolved => {
                voice.answer(&format!("You answered {said}, so I go on.")).await
            }
            ResumeStatus::Cancelled => {
                voice.answer("You would rather not say, so I leave it at that.").await
            }
        };
    }
    voice.answer("Before I go on I need a decision of yours.").await?;
    let form = json!({ "type": "object", "required": ["approved"], "properties": {
        "approved": { "type": "boolean", "title": "Go on" }, "note": { "type": "string",
        "title": "Note" } } });
    let asked = Interrupt::new(DECISION, "approval")
        .message(question.unwrap_or_else(|| "Shall I go on?".into()))
        .response_schema(form);
    let asked = match expires {
        Some(wait) => asked.expires_at(later(wait)),
        None => asked,
    };
    Ok(voice.out.ask(asked).await?)
}

fn later(wait: Duration) -> Timestamp {
    let micros = i64::try_from(wait.as_micros()).unwrap_or(i64::MAX / 2);
    Timestamp::from_micros(Timestamp::now().as_micros().saturating_add(micros))
}

async fn hang(turn: &Turn) -> Outcome {
    turn.cancel.cancelled().await;
    Err(Stopped.into())
}

async fn panic_on_purpose(voice: &mut Voice<'_>) -> Outcome {
    voice.begin().await?;
    voice.say("I have a bad feeling about ").await?;
    // Only a panic shows what a panic does to a run.
    #[allow(clippy::panic)]
    {
        panic!("the demo agent was asked to panic");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thoughts_part_before_the_first_one_breaks_off() {
        let said = first_half(FIRST_THOUGHT);
        assert!(!SECOND_THOUGHT.starts_with(&said));
        assert_eq!(said.split(' ').next(), SECOND_THOUGHT.split(' ').next());
    }
}

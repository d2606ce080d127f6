//! The agent that performs a script and tells the model when it was called.

use capstan_agent::{Agent, Failure, Outcome, Turn, Writer, async_trait};
use capstan_protocol::{Fault, FaultKind};
use serde_json::json;

use crate::model::script::{End, MAX_ATTEMPTS, Say, Script};
use crate::model::world::Shared;

/// The type of the events it shows.
pub(crate) const EVENT: &str = "MODEL_EVENT";

pub(crate) struct Scripted {
    pub(crate) world: Shared,
    /// Of the gateway that calls it.
    pub(crate) life: u32,
}

#[async_trait]
impl Agent for Scripted {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let message = turn.text();
        let seed = {
            let mut world = self.world.lock();
            world.started(&message, turn.attempt, self.life);
            world.seed
        };
        let script = Script::of(seed, &message, turn.attempt);
        for say in script.says {
            perform(say, out).await?;
        }
        if script.end == End::Hang {
            std::future::pending::<()>().await;
        }
        self.world.lock().ended(&message, turn.attempt, script.end, self.life);
        outcome(script.end)
    }

    fn max_attempts(&self) -> u32 {
        MAX_ATTEMPTS
    }
}

async fn perform(say: Say, out: &mut Writer) -> Outcome {
    match say {
        Say::Delta(text) => out.delta(text).await?,
        Say::Event(number) => out.event(EVENT, &json!({ "number": number })).await?,
        Say::Warning => out.warning(&Fault::new(FaultKind::UpstreamError)).await?,
        Say::Pause(pause) => tokio::time::sleep(pause).await,
    }
    Ok(())
}

fn outcome(end: End) -> Outcome {
    let fault = match end {
        End::Complete | End::Hang => return Ok(()),
        End::Short(wait) => {
            Fault::new(FaultKind::UpstreamUnreachable).with_retry_after(wait as f64)
        }
        End::Long(wait) => Fault::new(FaultKind::RateLimitExceeded).with_retry_after(wait as f64),
        End::Last => return Err(Failure::last(Fault::new(FaultKind::UpstreamTruncated))),
        End::Fatal => Fault::new(FaultKind::ContentRefused),
    };
    Err(fault.into())
}

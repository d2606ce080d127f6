//! Runs an agent as a gateway would, and collects its output.

use capstan_agent::{Agent, Outcome, Output, Turn, channel};

/// A finished attempt.
pub(crate) struct Attempt {
    /// Everything that was written, in order.
    pub(crate) outputs: Vec<Output>,
    /// The result.
    pub(crate) outcome: Outcome,
}

/// Runs one attempt to its end.
pub(crate) async fn run(agent: &impl Agent, turn: Turn) -> Attempt {
    // A small channel, so that writers have to wait as they do behind a slow journal.
    let (mut writer, mut inbox) = channel(4);
    let work = async move {
        let outcome = agent.run(turn, &mut writer).await;
        drop(writer);
        outcome
    };
    let collect = async {
        let mut outputs = Vec::new();
        while let Some(output) = inbox.recv().await {
            outputs.push(output);
        }
        outputs
    };
    let (outcome, outputs) = tokio::join!(work, collect);
    Attempt { outputs, outcome }
}

impl Attempt {
    /// The deltas, one by one.
    pub(crate) fn deltas(&self) -> Vec<&str> {
        let mut deltas = Vec::new();
        for output in &self.outputs {
            if let Output::Delta(text) = output {
                deltas.push(text.as_str());
            }
        }
        deltas
    }

    /// The deltas as one text.
    pub(crate) fn text(&self) -> String {
        self.deltas().concat()
    }
}

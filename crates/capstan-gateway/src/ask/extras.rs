//! What a request says beside its messages: tools, context, state, answers, parameters. Typed where we act on it, text
//! where we only pass it on.

use std::sync::Arc;

use capstan_protocol::agui::{Context, ResumeEntry, Tool};
use capstan_protocol::{DecodeError, Parameters, RawJson, RawObject};
use serde::Deserialize;

/// Shared with each attempt's turn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extras {
    pub(crate) tools: Arc<[Tool]>,
    pub(crate) context: Arc<[Context]>,
    pub(crate) state: Option<Arc<RawJson>>,
    pub(crate) forwarded: Option<Arc<RawJson>>,
    /// As the client names them: with the stream of the run that asked.
    pub(crate) answers: Vec<ResumeEntry>,
    pub(crate) parameters: Arc<Parameters>,
    /// All of it as it came.
    pub(crate) payload: Arc<RawObject>,
}

/// The members of a CAP payload that mean something here. Others are the agent's to understand.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Members {
    tools: Vec<Tool>,
    context: Vec<Context>,
    state: Option<RawJson>,
    forwarded_props: Option<RawJson>,
    resume: Vec<ResumeEntry>,
}

impl Extras {
    /// Reads a CAP payload. A member in a form that it cannot have is refused by its name.
    pub(crate) fn of_payload(payload: RawObject) -> Result<Self, DecodeError> {
        let members: Members = payload.decode()?;
        let parameters: Parameters = payload.decode()?;
        Ok(Self {
            tools: members.tools.into(),
            context: members.context.into(),
            state: members.state.map(Arc::new),
            forwarded: members.forwarded_props.map(Arc::new),
            answers: members.resume,
            parameters: Arc::new(parameters),
            payload: Arc::new(payload),
        })
    }
}

/// Parameters among an application's own properties. There these names may mean anything, so that what has another
/// form is left to the agent.
pub(crate) fn parameters_of(forwarded: Option<&RawJson>) -> Parameters {
    forwarded.and_then(|forwarded| forwarded.decode().ok()).unwrap_or_default()
}

//! What a request says beside its messages: tools, context, state, answers, parameters. Typed where
//! we act on it, text where we only pass it on.

use std::sync::Arc;

use capstan_protocol::agui::{Context, ResumeEntry, Tool};
use capstan_protocol::{
    ChatMessage, Dialect, Effort, Parameters, RawJson, RawObject, ResponseFormat, ToolChoice,
};
use serde::Deserialize;

/// Shared with each attempt's turn.
#[derive(Debug, Clone, Default)]
pub struct Extras {
    /// Tools that the client offers.
    pub tools: Arc<[Tool]>,
    /// Context that the client adds.
    pub context: Arc<[Context]>,
    /// State that the client shares.
    pub state: Option<Arc<RawJson>>,
    /// What the client passes to the agent as it is.
    pub forwarded: Option<Arc<RawJson>>,
    /// As the client names them: with the stream of the run that asked.
    pub answers: Vec<ResumeEntry>,
    /// Parameters of the model.
    pub parameters: Arc<Parameters>,
    /// What the agent is told before everything else, in this run alone: no session remembers it.
    pub instructions: Option<Arc<ChatMessage>>,
    /// All of it as it came.
    pub payload: Arc<RawObject>,
    /// The protocol in which the payload is written, if it is a provider's own.
    pub dialect: Option<Dialect>,
}

/// The members of a CAP payload that mean something here, read in one go. Others are the agent's to
/// understand.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Payload<M> {
    /// The messages, in CAP's words.
    pub messages: Option<M>,
    /// The question as text. Anything else under these names is the agent's own.
    pub query: Option<RawJson>,
    /// The input, where a face has one.
    pub input: Option<RawJson>,
    #[serde(default)]
    tools: Vec<Tool>,
    #[serde(default)]
    context: Vec<Context>,
    state: Option<RawJson>,
    forwarded_props: Option<RawJson>,
    #[serde(default)]
    resume: Vec<ResumeEntry>,
    // The members of `Parameters`, which serde cannot read in place without a tree.
    temperature: Option<f64>,
    #[serde(alias = "top_p")]
    top_p: Option<f64>,
    seed: Option<i64>,
    #[serde(alias = "max_tokens")]
    max_tokens: Option<u64>,
    #[serde(default)]
    stop: Vec<String>,
    #[serde(alias = "tool_choice")]
    tool_choice: Option<ToolChoice>,
    #[serde(alias = "parallel_tool_calls")]
    parallel_tool_calls: Option<bool>,
    #[serde(alias = "response_format")]
    response_format: Option<ResponseFormat>,
    effort: Option<Effort>,
}

impl<M> Payload<M> {
    /// What stands beside the messages; `text` is all of it as it came.
    pub fn into_extras(self, text: RawObject) -> Extras {
        let parameters = Parameters {
            temperature: self.temperature,
            top_p: self.top_p,
            seed: self.seed,
            max_tokens: self.max_tokens,
            stop: self.stop,
            tool_choice: self.tool_choice,
            parallel_tool_calls: self.parallel_tool_calls,
            response_format: self.response_format,
            effort: self.effort,
        };
        Extras {
            tools: self.tools.into(),
            context: self.context.into(),
            state: self.state.map(Arc::new),
            forwarded: self.forwarded_props.map(Arc::new),
            answers: self.resume,
            parameters: Arc::new(parameters),
            instructions: None,
            payload: Arc::new(text),
            dialect: None,
        }
    }
}

/// Parameters among an application's own properties. There these names may mean anything, so that
/// what has another form is left to the agent.
pub fn parameters_of(forwarded: Option<&RawJson>) -> Parameters {
    forwarded.and_then(|forwarded| forwarded.decode().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_has_the_parameters_that_its_text_has_in_either_spelling() {
        for text in [
            r#"{"temperature":0.5,"top_p":0.9,"seed":-3,"parallel_tool_calls":false,"max_tokens":7,"stop":["x"],"tool_choice":"none","response_format":"json","effort":"low"}"#,
            r#"{"maxTokens":7,"topP":0.1,"parallelToolCalls":true,"toolChoice":{"tool":"f"},"responseFormat":{"json_schema":{"schema":{}}}}"#,
            "{}",
        ] {
            let payload = RawObject::parse(text).unwrap();
            let read: Payload<()> = payload.decode().unwrap();
            let expected: Parameters = payload.decode().unwrap();
            assert_eq!(*read.into_extras(payload).parameters, expected);
        }
    }
}

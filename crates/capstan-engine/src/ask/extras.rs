//! Everything in a request beside its messages: tools, context, state, answers, parameters. Members
//! that the engine uses are typed. Members that it only forwards stay text.

use std::sync::Arc;

use capstan_protocol::agui::{Context, ResumeEntry, Tool};
use capstan_protocol::{
    ChatMessage, DecodeError, Dialect, Effort, Parameters, RawJson, RawObject, ResponseFormat,
    ToolChoice,
};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Everything in a request beside its messages. Each attempt's `Turn` shares it.
#[derive(Debug, Clone, Default)]
pub struct Extras {
    /// Tools that the client offers.
    pub tools: Arc<[Tool]>,
    /// Context that the client adds.
    pub context: Arc<[Context]>,
    /// State that the client shares.
    pub state: Option<Arc<RawJson>>,
    /// Properties that the client sends to the agent, forwarded unchanged.
    pub forwarded: Option<Arc<RawJson>>,
    /// Answers to interrupts. Their ids begin with the stream of the run that asked.
    pub answers: Vec<ResumeEntry>,
    /// Parameters of the model.
    pub parameters: Arc<Parameters>,
    /// Instructions that precede the conversation, for this run only: the session does not store
    /// them.
    pub instructions: Option<Arc<ChatMessage>>,
    /// The whole payload, unchanged.
    pub payload: Arc<RawObject>,
    /// The protocol in which the payload is written, if it is a provider's own.
    pub dialect: Option<Dialect>,
    /// The first thing in the payload that only agents of `dialect` can judge. Others refuse it.
    pub untranslatable: Option<DecodeError>,
    /// The messages say less than the payload. Later turns read them from the stored body.
    pub is_abridged: bool,
}

/// The members of a payload that the gateway understands, parsed in one pass. All others are for
/// the agent. The face decides the type of the messages.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Payload<Messages, Message = IgnoredAny> {
    /// The messages.
    pub messages: Option<Messages>,
    /// The new message alone, for faces that have this member.
    pub message: Option<Message>,
    /// The id of the chat, for faces that have this member.
    pub id: Option<RawJson>,
    /// Why the client sends the request, for faces that have this member.
    pub trigger: Option<RawJson>,
    /// The question as text. If it is not text, only the agent interprets it.
    pub query: Option<RawJson>,
    /// The input, for faces that have this member.
    pub input: Option<RawJson>,
    #[serde(default)]
    tools: Vec<Tool>,
    #[serde(default)]
    context: Vec<Context>,
    state: Option<RawJson>,
    forwarded_props: Option<RawJson>,
    #[serde(default)]
    resume: Vec<ResumeEntry>,
    // The members of `Parameters`. serde could flatten them only through a tree in memory.
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

impl<Messages, Message> Payload<Messages, Message> {
    /// Builds the extras. `text` is the whole payload, unchanged.
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
            untranslatable: None,
            is_abridged: false,
        }
    }
}

/// Reads parameters from an application's own properties. An application may use these names for
/// something else, so values of another form are ignored and left to the agent.
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

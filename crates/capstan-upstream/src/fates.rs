//! The fate of each member of a request: one table, from which the documents are generated.
//!
//! An agent that speaks the protocol of the request gets every member unchanged, except for those
//! that the gateway decides. For other agents, this table says which members are translated. A
//! warning names the others.

mod nested;

use capstan_agent::{Output, Turn};
use capstan_protocol::{Dialect, Effort, Parameters};
use serde::Deserialize;
use serde_json::Value;

use crate::native;
use crate::request_body::RequestBody;
use Dialect::{AnthropicMessages as Messages, OpenaiChat as Chat, OpenaiResponses as Responses};

/// The fate of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The gateway decides it, whatever the agent.
    Gateway,
    /// Refused with its name: the answer would have another shape.
    Refused,
    /// Sent unchanged where the agent speaks the protocol of the request. Elsewhere the request is
    /// refused with the member's name, because it cannot be translated.
    OwnOnly,
    /// Sent unchanged where the agent speaks the protocol of the request, and translated for agents
    /// of these protocols.
    Translated(&'static [Dialect]),
}

const ALL: Fate = Fate::Translated(&[Chat, Responses, Messages]);
const NOWHERE: Fate = Fate::Translated(&[]);
/// Both protocols of OpenAI have the member under the same name.
const SHARED: Fate = Fate::Translated(&[Chat, Responses]);

/// A member and its fate.
pub type Row = (&'static str, Fate);

const CHAT: &[Row] = &[
    ("audio", Fate::OwnOnly),
    ("frequency_penalty", NOWHERE),
    ("function_call", Fate::OwnOnly),
    ("functions", Fate::OwnOnly),
    ("logit_bias", NOWHERE),
    ("logprobs", Fate::OwnOnly),
    ("max_completion_tokens", ALL),
    ("max_tokens", ALL),
    ("messages", ALL),
    ("metadata", SHARED),
    ("modalities", Fate::OwnOnly),
    ("model", Fate::Gateway),
    ("moderation", NOWHERE),
    ("n", Fate::Refused),
    ("parallel_tool_calls", ALL),
    ("prediction", NOWHERE),
    ("presence_penalty", NOWHERE),
    ("prompt_cache_key", SHARED),
    ("prompt_cache_options", SHARED),
    ("prompt_cache_retention", SHARED),
    ("reasoning_effort", ALL),
    ("response_format", ALL),
    ("safety_identifier", SHARED),
    ("seed", NOWHERE),
    ("service_tier", SHARED),
    ("stop", Fate::Translated(&[Messages])),
    ("store", SHARED),
    ("stream", Fate::Gateway),
    ("stream_options", Fate::Gateway),
    ("temperature", ALL),
    ("tool_choice", ALL),
    ("tools", ALL),
    ("top_logprobs", Fate::OwnOnly),
    ("top_p", ALL),
    ("user", SHARED),
    ("verbosity", Fate::Translated(&[Responses])),
    ("web_search_options", NOWHERE),
];

const RESPONSES: &[Row] = &[
    ("access_programs", NOWHERE),
    ("background", Fate::Gateway),
    ("context_management", NOWHERE),
    ("conversation", Fate::Gateway),
    ("image", NOWHERE),
    ("include", NOWHERE),
    ("input", ALL),
    ("instructions", ALL),
    ("max_output_tokens", ALL),
    ("max_tool_calls", NOWHERE),
    ("metadata", SHARED),
    ("model", Fate::Gateway),
    ("moderation", NOWHERE),
    ("multi_agent", NOWHERE),
    ("n", Fate::Refused),
    ("openai_beta", Fate::Gateway),
    ("parallel_tool_calls", ALL),
    ("previous_response_id", Fate::Gateway),
    ("prompt", Fate::OwnOnly),
    ("prompt_cache_key", SHARED),
    ("prompt_cache_options", SHARED),
    ("prompt_cache_retention", SHARED),
    ("reasoning", ALL),
    ("safety_identifier", SHARED),
    ("service_tier", SHARED),
    ("store", SHARED),
    ("stream", Fate::Gateway),
    ("stream_options", Fate::Gateway),
    ("temperature", ALL),
    ("text", ALL),
    ("tool_choice", ALL),
    ("tools", ALL),
    ("top_logprobs", Fate::OwnOnly),
    ("top_p", ALL),
    ("truncation", NOWHERE),
    ("user", SHARED),
];

const MESSAGES: &[Row] = &[
    ("anthropic_beta", Fate::Gateway),
    ("anthropic_version", Fate::Gateway),
    ("billing_policy", NOWHERE),
    ("cache_control", NOWHERE),
    ("compaction", NOWHERE),
    ("container", NOWHERE),
    ("context_management", NOWHERE),
    ("diagnostics", NOWHERE),
    ("fallback_credit_token", NOWHERE),
    ("fallbacks", NOWHERE),
    ("inference_geo", NOWHERE),
    ("max_tokens", ALL),
    ("mcp_servers", NOWHERE),
    ("messages", ALL),
    ("metadata", NOWHERE),
    ("model", Fate::Gateway),
    ("output_config", ALL),
    ("output_format", ALL),
    ("service_tier", NOWHERE),
    ("speed", NOWHERE),
    ("stop_sequences", Fate::Translated(&[Chat])),
    ("stream", Fate::Gateway),
    ("system", ALL),
    ("temperature", ALL),
    ("thinking", NOWHERE),
    ("thread", NOWHERE),
    ("tool_choice", ALL),
    ("tools", ALL),
    ("top_k", NOWHERE),
    ("top_p", ALL),
    ("user_profile_id", NOWHERE),
    ("workspace_id", NOWHERE),
];

/// Returns the documented members of a protocol's requests.
pub fn rows(dialect: Dialect) -> &'static [Row] {
    match dialect {
        Chat => CHAT,
        Responses => RESPONSES,
        Messages => MESSAGES,
    }
}

/// Returns the members of a request that both protocols of OpenAI have.
pub(crate) fn shared(turn: &Turn, own: Dialect) -> RequestBody {
    let mut shared = RequestBody::default();
    if let Some(from) = turn.dialect.filter(|from| *from != own) {
        let mut request = RequestBody::from(&*turn.payload);
        for (name, _) in rows(from).iter().filter(|(_, fate)| *fate == SHARED && has(own, *fate)) {
            if let Some(value) = request.take(name).filter(|value| value.get() != "null") {
                shared.put(name, value);
            }
        }
        if let Some(verbosity) = verbosity_of(turn).filter(|_| own == Chat) {
            shared.set("verbosity", &verbosity);
        }
    }
    shared
}

/// Returns a warning that names what an agent of this protocol does not get.
pub(crate) fn left_out(turn: &Turn, own: Dialect) -> Option<Output> {
    if turn.attempt > 1 || turn.dialect == Some(own) {
        return None;
    }
    let names = match turn.dialect {
        Some(from) => untranslated(&RequestBody::from(&*turn.payload), from, own),
        None => untranslated_parameters(&turn.parameters, own),
    };
    (!names.is_empty()).then(|| native::left_out(&names))
}

/// Returns a warning if an agent of this protocol gets another amount of reasoning than the request
/// asks for: the protocol has no such word.
pub(crate) fn changed_effort(
    turn: &Turn,
    own: Dialect,
    word: fn(Effort) -> &'static str,
) -> Option<Output> {
    let is_translated = turn.attempt == 1 && turn.dialect != Some(own);
    let effort = turn.parameters.effort.filter(|_| is_translated)?;
    let asked = serde_json::to_value(effort).ok()?;
    let (asked, sent) = (asked.as_str()?, word(effort));
    (asked != sent).then(|| native::changed("reasoning_effort", asked, sent))
}

fn untranslated(request: &RequestBody, from: Dialect, own: Dialect) -> Vec<String> {
    let is_lost = |name: &&str| {
        let row = rows(from).iter().find(|(known, _)| known == name);
        row.is_none_or(|(_, fate)| !has(own, *fate)) && !says_nothing(request, name)
    };
    let members = request.names().filter(is_lost).map(str::to_owned);
    let items = untranslated_items(request, from);
    let nested = nested::untranslated(request, from).into_iter();
    let is_verbosity = |name: &String| name == "text.verbosity" && own == Messages;
    let verbosity = verbosity(request, from).map(|_| "text.verbosity".to_owned());
    members.chain(items).chain(nested).chain(verbosity.filter(is_verbosity)).collect()
}

/// How long an answer should be. OpenAI's protocols have it in different places.
pub(crate) fn verbosity_of(turn: &Turn) -> Option<String> {
    verbosity(&RequestBody::from(&*turn.payload), turn.dialect?)
}

fn verbosity(request: &RequestBody, from: Dialect) -> Option<String> {
    #[derive(Deserialize)]
    struct Text {
        verbosity: Option<String>,
    }
    match from {
        Chat => request.read("verbosity"),
        Responses => request.read::<Text>("text")?.verbosity,
        Messages => None,
    }
}

/// Returns the tools and items that only agents of the request's protocol know.
fn untranslated_items(request: &RequestBody, from: Dialect) -> Vec<String> {
    let (tools, items): (&[&str], &[&str]) = match from {
        Chat => (&["function", "custom"], &[]),
        Responses => (&["function", "custom", "namespace"], ITEMS),
        Messages => (&["custom"], &[]),
    };
    let mut names = Vec::new();
    for (member, known) in [("tools", tools), ("input", items)] {
        let kinds = request.read::<Vec<Kind>>(member).unwrap_or_default();
        for (n, kind) in kinds.into_iter().enumerate() {
            let unknown = kind.kind.filter(|kind| !known.contains(&kind.as_str()));
            names.extend(unknown.map(|kind| format!("{member}[{n}] ({kind})")));
        }
    }
    names
}

/// The items of Responses that are translated for every agent.
const ITEMS: &[&str] = &[
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "additional_tools",
    // Only its own model can read it, and it contains nothing of the conversation.
    "reasoning",
];

#[derive(Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: Option<String>,
}

fn has(own: Dialect, fate: Fate) -> bool {
    match fate {
        Fate::Gateway | Fate::Refused | Fate::OwnOnly => true,
        Fate::Translated(to) => to.contains(&own),
    }
}

/// Whether a member is null, or an empty list or object.
fn says_nothing(request: &RequestBody, name: &str) -> bool {
    request.read::<Value>(name).is_none_or(|value| is_empty(&value))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Null => true,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns the parameters of CAP that an agent of this protocol does not get.
fn untranslated_parameters(asked: &Parameters, own: Dialect) -> Vec<String> {
    let lost = [
        ("seed", asked.seed.is_some() && own != Chat),
        ("stop", !asked.stop.is_empty() && own == Responses),
    ];
    lost.into_iter().filter(|(_, is_lost)| *is_lost).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capstan_protocol::RawObject;

    use super::*;

    fn turn(dialect: Dialect, payload: &str) -> Turn {
        let mut turn = Turn::new("Hi");
        (turn.dialect, turn.payload) =
            (Some(dialect), Arc::new(RawObject::parse(payload).unwrap()));
        turn
    }

    fn named(turn: &Turn, own: Dialect) -> Option<Value> {
        let Output::Warning(error) = left_out(turn, own)? else { return None };
        serde_json::to_value(error).unwrap().pointer("/details/left_out").cloned()
    }

    #[test]
    fn another_amount_of_reasoning_is_named_with_the_one_that_was_asked_for() {
        let warning = |effort, own| {
            let mut asked = turn(Responses, r#"{"reasoning":{}}"#);
            asked.parameters =
                Arc::new(Parameters { effort: Some(effort), ..Parameters::default() });
            let word = |effort| if effort == Effort::Minimal { "low" } else { "high" };
            let Output::Warning(error) = changed_effort(&asked, own, word)? else { return None };
            Some(error.message)
        };
        let said = warning(Effort::Minimal, Messages).unwrap();
        assert_eq!(said, "This agent has no reasoning_effort \"minimal\". It gets \"low\".");
        assert!(warning(Effort::High, Messages).is_none());
        assert!(warning(Effort::Minimal, Responses).is_none(), "it is sent as it came");
    }

    #[test]
    fn what_another_protocol_has_no_word_for_is_named_and_what_both_have_is_sent() {
        let asked = turn(
            Chat,
            r#"{"messages":[],"seed":1,"stop":["x"],"user":"u","logit_bias":{},"top_k":5}"#,
        );
        assert_eq!(named(&asked, Chat), None);
        assert_eq!(named(&asked, Messages).unwrap(), serde_json::json!(["seed", "user", "top_k"]));
        assert_eq!(named(&asked, Responses).unwrap(), serde_json::json!(["seed", "stop", "top_k"]));
        assert_eq!(shared(&asked, Responses).to_bytes(), r#"{"user":"u"}"#);
        assert_eq!(shared(&asked, Messages).to_bytes(), "{}");
    }

    #[test]
    fn tools_and_items_of_a_provider_are_named_with_their_places() {
        let asked = turn(
            Responses,
            r#"{"input":[{"role":"user","content":"a"},{"type":"computer_call"}],
                "tools":[{"type":"function"},{"type":"web_search"}]}"#,
        );
        let expected = serde_json::json!(["tools[1] (web_search)", "input[1] (computer_call)"]);
        assert_eq!(named(&asked, Messages).unwrap(), expected);
    }

    #[test]
    fn nested_members_are_named_once_for_each_place() {
        let asked = turn(
            Messages,
            r#"{"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}],
                "messages":[{"role":"user","content":[
                    {"type":"text","text":"a","cache_control":{"type":"ephemeral"}},
                    {"type":"text","text":"b","cache_control":{"type":"ephemeral"}},
                    {"type":"search_result","title":"t","source":"s","content":[]},
                    {"type":"document","title":"t","context":"c",
                        "source":{"type":"text","data":"d"}}]}],
                "tools":[{"name":"f","input_schema":{"title":"T"},"defer_loading":true}],
                "tool_choice":{"type":"auto","disable_parallel_tool_use":true}}"#,
        );
        let expected = serde_json::json!([
            "messages[].content[].cache_control",
            "messages[].content[].context",
            "system[].cache_control",
            "tools[].defer_loading",
        ]);
        assert_eq!(named(&asked, Chat).unwrap(), expected);
        let asked = turn(
            Responses,
            r#"{"input":[{"role":"user","phase":"x","content":[
                    {"type":"input_image","image_url":"u","detail":"low"}]}],
                "reasoning":{"effort":"low","summary":"auto"},"text":{"verbosity":"low"},
                "tool_choice":{"type":"allowed_tools","mode":"auto","tools":[]}}"#,
        );
        let expected = serde_json::json!([
            "input[].content[].detail",
            "input[].phase",
            "reasoning.summary",
            "tool_choice (allowed_tools)",
            "text.verbosity",
        ]);
        assert_eq!(named(&asked, Messages).unwrap(), expected);
        assert_eq!(shared(&asked, Chat).to_bytes(), r#"{"verbosity":"low"}"#);
        let asked = turn(
            Chat,
            r#"{"messages":[{"role":"user","content":[{"type":"file",
                "file":{"file_id":"f","purpose":"n"}}]}],"verbosity":"low",
                "response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{},
                "description":"d"}}}"#,
        );
        let expected = serde_json::json!([
            "messages[].content[].file.purpose",
            "response_format.json_schema.description",
        ]);
        assert_eq!(named(&asked, Responses).unwrap(), expected);
        assert_eq!(named(&asked, Chat), None);
    }

    #[test]
    fn a_warning_comes_once() {
        let mut asked = turn(Messages, r#"{"thinking":{"type":"enabled"}}"#);
        assert!(left_out(&asked, Chat).is_some());
        asked.attempt = 2;
        assert!(left_out(&asked, Chat).is_none());
    }
}

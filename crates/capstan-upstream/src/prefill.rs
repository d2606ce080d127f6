//! Continues an answer: which models continue an assistant message at the end of a conversation,
//! and what their servers need for it. Other models answer anew.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use url::Url;

use crate::request_body::{RequestBody, raw};

/// How a request asks a server to continue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Prefill {
    /// The server cannot continue.
    #[default]
    Off,
    /// No mark is necessary: Anthropic up to Claude 4.5, Ollama, llama.cpp, OpenRouter.
    Plain,
    /// The message has `prefix`: Mistral, and DeepSeek's beta.
    Prefix,
    /// The message has `partial`: Moonshot, Qwen.
    Partial,
    /// The request has `continue_final_message`: vLLM, SGLang.
    ContinueFinalMessage,
}

/// Known servers of Chat Completions: host, beginning of the path, beginning of the model's name.
const SERVERS: &[(&str, &str, &str, Prefill)] = &[
    ("api.mistral.ai", "/", "", Prefill::Prefix),
    ("api.deepseek.com", "/beta", "deepseek-", Prefill::Prefix),
    ("api.moonshot.ai", "/", "", Prefill::Partial),
    ("api.moonshot.cn", "/", "", Prefill::Partial),
    ("dashscope.aliyuncs.com", "/", "qwen", Prefill::Partial),
    ("dashscope-intl.aliyuncs.com", "/", "qwen", Prefill::Partial),
    ("openrouter.ai", "/", "mistralai/", Prefill::Plain),
];

/// The first generation that refuses to continue: Claude 4.6.
const ANTHROPIC_REFUSES_FROM: (u32, u32) = (4, 6);

impl Prefill {
    /// Returns how a server of Chat Completions continues.
    pub(crate) fn of_chat(url: &Url, model: &str) -> Self {
        let fits = |(host, path, name, _): &&(&str, &str, &str, Self)| {
            url.host_str() == Some(*host) && url.path().starts_with(path) && model.starts_with(name)
        };
        SERVERS.iter().find(fits).map_or(Self::Off, |(_, _, _, prefill)| *prefill)
    }

    /// Returns how a server of Messages continues. A model that thinks first cannot continue.
    pub(crate) fn of_messages(model: &str, parameters: &Map<String, Value>) -> Self {
        let thinks = parameters.get("thinking").is_some_and(is_on);
        let takes = generation(model).is_some_and(|generation| generation < ANTHROPIC_REFUSES_FROM);
        if takes && !thinks { Self::Plain } else { Self::Off }
    }

    /// Adds the beginning of the answer after the conversation.
    pub(crate) fn apply(self, body: &mut RequestBody, sent: &str) {
        // A model that thinks first cannot continue: it answers anew.
        if body.read::<Value>("thinking").is_some_and(|thinking| is_on(&thinking)) {
            return;
        }
        let with = |name: &str| json!({ "role": "assistant", "content": sent, name: true });
        let plain = || json!({ "role": "assistant", "content": sent });
        let message = match self {
            Self::Off => return,
            Self::Plain => plain(),
            Self::Prefix => with("prefix"),
            Self::Partial => with("partial"),
            Self::ContinueFinalMessage => {
                body.set("continue_final_message", &true);
                body.set("add_generation_prompt", &false);
                plain()
            }
        };
        let mut messages = body.list("messages");
        messages.push(raw(&message));
        body.set("messages", &messages);
    }
}

/// Whether a request's `thinking` turns thinking on.
fn is_on(thinking: &Value) -> bool {
    thinking.get("type").is_some_and(|kind| kind != "disabled")
}

/// The generation in a model's name: `claude-3-5-sonnet-20241022`, `claude-sonnet-4-20250514`,
/// `claude-opus-4-5`, also with a cloud's prefix or suffix.
fn generation(model: &str) -> Option<(u32, u32)> {
    let name = model.get(model.find("claude-")? + "claude-".len()..)?;
    let numbers = name.split(['-', '.', '@', ':', '_']).skip_while(|word| !is_small(word));
    let mut numbers =
        numbers.take_while(|word| is_small(word)).filter_map(|word| word.parse().ok());
    Some((numbers.next()?, numbers.next().unwrap_or(0)))
}

/// Whether a word is a number and not a date.
fn is_small(word: &str) -> bool {
    !word.is_empty() && word.len() <= 2 && word.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claude_continues_up_to_4_5_and_unknown_names_do_not() {
        let of = |model: &str| Prefill::of_messages(model, &Map::new());
        for model in [
            "claude-3-haiku-20240307",
            "claude-3-7-sonnet-latest",
            "claude-sonnet-4-20250514",
            "claude-opus-4-1",
            "claude-sonnet-4-5-20250929",
            "claude-haiku-4-5@20251001",
            "us.anthropic.claude-opus-4-5-20251101-v1:0",
        ] {
            assert_eq!(of(model), Prefill::Plain, "{model}");
        }
        for model in [
            "claude-opus-4-6",
            "claude-sonnet-4-6",
            "claude-opus-4-7",
            "claude-sonnet-5",
            "claude-fable",
            "m",
        ] {
            assert_eq!(of(model), Prefill::Off, "{model}");
        }
        let thinks = json!({ "thinking": { "type": "enabled", "budget_tokens": 1024 } });
        let thinks = thinks.as_object().cloned().unwrap_or_default();
        assert_eq!(Prefill::of_messages("claude-sonnet-4-5", &thinks), Prefill::Off);
    }

    #[test]
    fn other_servers_are_known_by_their_address() {
        let of = |url: &str, model: &str| Prefill::of_chat(&Url::parse(url).unwrap(), model);
        assert_eq!(
            of("https://api.mistral.ai/v1/chat/completions", "mistral-large-latest"),
            Prefill::Prefix
        );
        assert_eq!(
            of("https://api.deepseek.com/beta/chat/completions", "deepseek-chat"),
            Prefill::Prefix
        );
        assert_eq!(
            of("https://api.deepseek.com/v1/chat/completions", "deepseek-chat"),
            Prefill::Off
        );
        assert_eq!(of("https://api.openai.com/v1/chat/completions", "gpt-5"), Prefill::Off);
    }

    #[test]
    fn each_server_is_told_in_its_own_words() {
        let applied = |prefill: Prefill| {
            let body = json!({ "messages": [{ "role": "user", "content": "hi" }] });
            let mut body = RequestBody::from(body);
            prefill.apply(&mut body, "Well");
            serde_json::to_value(&body).unwrap()
        };
        assert_eq!(
            applied(Prefill::Plain)["messages"][1],
            json!({ "role": "assistant", "content": "Well" })
        );
        assert_eq!(applied(Prefill::Prefix)["messages"][1]["prefix"], true);
        assert_eq!(applied(Prefill::Partial)["messages"][1]["partial"], true);
        let vllm = applied(Prefill::ContinueFinalMessage);
        assert_eq!(
            (&vllm["continue_final_message"], &vllm["add_generation_prompt"]),
            (&true.into(), &false.into())
        );
        assert_eq!(applied(Prefill::Off)["messages"].as_array().map(Vec::len), Some(1));
    }
}

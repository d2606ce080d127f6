//! `openai`: Chat Completions streaming, of OpenAI or any compatible server; or its Responses.

mod asked;
mod chunk;
mod decoder;
mod finish;
mod request;
pub mod responses;

use capstan_agent::{About, Turn};
use capstan_protocol::Fault;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde_json::{Map, Value};
use url::Url;

pub use decoder::Decoder;

use crate::call::{Dialect, HttpAgent};
use crate::callee::Callee;
use crate::config::{ConfigError, read_keys};
use crate::kind::{Build, Common, Kind};
use crate::prefill::Prefill;
use crate::provider::{Api, Config, Defaults, FinishRule, Provider};
use crate::retries::Retries;
use crate::timeouts::CallTimeouts;

/// Its row.
pub(crate) const KIND: Kind = Kind {
    name: "openai",
    what: "a server of OpenAI's Chat Completions or Responses",
    retries: Retries::PROVIDER,
    timeouts: CallTimeouts::PROVIDER,
    key_env: Some(DEFAULTS.key_env),
    build: Build::Adapter(|keys, common| build(read_keys(keys)?, common)),
};

pub(crate) const DEFAULTS: Defaults = Defaults {
    url: "https://api.openai.com/v1",
    path: "chat/completions",
    key_env: "OPENAI_API_KEY",
    ours: &["model", "messages", "stream", "n"],
};

struct OpenAi {
    provider: Provider,
    finish: FinishRule,
}

fn build(config: Config, common: &Common) -> Result<Box<dyn Callee>, ConfigError> {
    let (api, finish) = (config.api.unwrap_or_default(), config.finish);
    if api == Api::Responses {
        if finish.is_some() {
            return Err(ConfigError::at(
                "finish",
                "the Responses API always says how an answer ends",
            ));
        }
        return responses::build(config, common);
    }
    let provider = Provider::new(config, &DEFAULTS)?;
    let secret = provider.secret.clone();
    let dialect = OpenAi { provider, finish: finish.unwrap_or_default() };
    Ok(Box::new(HttpAgent::new(dialect, secret, common)?))
}

impl Dialect for OpenAi {
    type Decoder = Decoder;

    fn url(&self) -> &Url {
        &self.provider.url
    }

    fn headers(&self, _body: &Value) -> HeaderMap {
        self.provider.secret.header("Bearer ").map(|key| (AUTHORIZATION, key)).into_iter().collect()
    }

    fn body(&self, turn: &Turn) -> Result<Value, Fault> {
        let mut body = Map::new();
        body.insert("model".into(), self.provider.model.as_str().into());
        body.insert("stream".into(), true.into());
        body.insert("stream_options".into(), serde_json::json!({ "include_usage": true }));
        body.insert(
            "messages".into(),
            request::messages(turn, self.provider.system.as_deref())?.into(),
        );
        Ok(self.provider.body(body, asked::of(turn)))
    }

    fn decoder(&self, _turn: &Turn) -> Decoder {
        let decoder = Decoder::new(self.provider.secret.clone());
        match self.finish {
            FinishRule::Required => decoder,
            FinishRule::Optional => decoder.without_finish(),
        }
    }

    fn prefill(&self) -> Prefill {
        self.provider
            .prefill
            .unwrap_or_else(|| Prefill::of_chat(&self.provider.url, &self.provider.model))
    }

    fn about(&self) -> About {
        About::model("openai", &self.provider.model)
    }
}

//! `openai`: Chat Completions streaming, of OpenAI or any compatible server; or its Responses.

mod asked;
mod chunk;
mod decoder;
mod finish;
mod request;
pub mod responses;

use capstan_agent::{About, Turn};
use capstan_protocol::Fault;
use reqwest::header::HeaderMap;
use serde_json::{Map, Value};
use url::Url;

pub use decoder::Decoder;

use crate::call::{Dialect, HttpAgent};
use crate::callee::Callee;
use crate::config::{ConfigError, read_keys};
use crate::kind::{Build, Common, Kind};
use crate::prefill::Prefill;
use crate::preset::{OPENAI, OPENAI_LIKES};
use crate::provider::{Api, BEARER, Config, Defaults, FinishRule, Provider};
use crate::retries::Retries;
use crate::timeouts::CallTimeouts;

/// Its row.
pub(crate) const KIND: Kind = Kind {
    name: "openai",
    what: "a server of OpenAI's Chat Completions or Responses",
    retries: Retries::PROVIDER,
    timeouts: CallTimeouts::PROVIDER,
    provider: Some(&DEFAULTS),
    build: Build::Adapter(|keys, common| build(read_keys(keys)?, common)),
};

pub(crate) const DEFAULTS: Defaults = Defaults {
    own: &OPENAI,
    known: OPENAI_LIKES,
    path: "chat/completions",
    key_header: BEARER,
    ours: &["model", "messages", "stream", "n"],
};

struct OpenAi {
    provider: Provider,
    finish: FinishRule,
}

fn build(config: Config, common: &Common) -> Result<Box<dyn Callee>, ConfigError> {
    if config.api == Some(Api::Responses) {
        config.has_nothing_of_chat()?;
        return responses::build(config, common);
    }
    let finish = config.finish;
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
        self.provider.headers.clone()
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
        self.provider.body(body, asked::of(turn))
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

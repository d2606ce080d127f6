//! `openai`: Chat Completions streaming, of OpenAI or any compatible server.

mod asked;
mod decoder;
mod request;

use capstan_agent::{About, Turn};
use capstan_protocol::Fault;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde_json::{Map, Value};
use url::Url;

pub use decoder::Decoder;

use crate::call::{Dialect, HttpAgent};
use crate::callee::Callee;
use crate::kinds::{Common, ConfigError};
use crate::prefill::Prefill;
use crate::provider::{Config, Defaults, Provider};

pub(crate) const DEFAULTS: Defaults = Defaults {
    url: "https://api.openai.com/v1",
    path: "chat/completions",
    key_env: "OPENAI_API_KEY",
    ours: &["model", "messages", "stream", "n"],
};

struct OpenAi(Provider);

pub(crate) fn build(config: Config, common: &Common) -> Result<Box<dyn Callee>, ConfigError> {
    let provider = Provider::new(config, &DEFAULTS)?;
    let secret = provider.secret.clone();
    Ok(Box::new(HttpAgent::new(OpenAi(provider), secret, common)?))
}

impl Dialect for OpenAi {
    type Decoder = Decoder;

    fn url(&self) -> &Url {
        &self.0.url
    }

    fn headers(&self, _body: &Value) -> HeaderMap {
        self.0.secret.header("Bearer ").map(|key| (AUTHORIZATION, key)).into_iter().collect()
    }

    fn body(&self, turn: &Turn) -> Result<Value, Fault> {
        let mut body = Map::new();
        body.insert("model".into(), self.0.model.as_str().into());
        body.insert("stream".into(), true.into());
        body.insert("stream_options".into(), serde_json::json!({ "include_usage": true }));
        body.insert("messages".into(), request::messages(turn, self.0.system.as_deref())?.into());
        Ok(self.0.body(body, asked::of(turn)))
    }

    fn decoder(&self) -> Decoder {
        Decoder::new(self.0.secret.clone())
    }

    fn prefill(&self) -> Prefill {
        self.0.prefill.unwrap_or_else(|| Prefill::of_chat(&self.0.url, &self.0.model))
    }

    fn about(&self) -> About {
        About::model("openai", &self.0.model)
    }
}

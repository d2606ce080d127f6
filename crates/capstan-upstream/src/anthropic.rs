//! `anthropic`: Messages streaming.

mod asked;
mod content;
mod decoder;
mod event;

use capstan_agent::{About, Turn};
use capstan_protocol::Fault;
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::{Map, Value};
use url::Url;

pub use decoder::Decoder;

use crate::call::{Dialect, HttpAgent};
use crate::callee::Callee;
use crate::config::{ConfigError, read_keys};
use crate::kind::{Build, Common, Kind};
use crate::prefill::Prefill;
use crate::preset::ANTHROPIC;
use crate::provider::{Config, Defaults, OF_OPENAI, Provider};
use crate::retries::Retries;
use crate::timeouts::CallTimeouts;

pub(crate) use content::blocks;

/// Its row.
pub(crate) const KIND: Kind = Kind {
    name: "anthropic",
    what: "a server of Anthropic's Messages",
    retries: Retries::PROVIDER,
    timeouts: CallTimeouts::PROVIDER,
    provider: Some(&DEFAULTS),
    build: Build::Adapter(|keys, common| {
        let own = read_keys(keys);
        build(own.map_err(|error: ConfigError| error.without(&OF_OPENAI))?, common)
    }),
};

pub(crate) const DEFAULTS: Defaults = Defaults {
    own: &ANTHROPIC,
    known: &[ANTHROPIC],
    path: "v1/messages",
    key_header: "x-api-key",
    ours: &["model", "messages", "stream", "system"],
};
/// The protocol insists on a limit; this one holds a long answer.
const MAX_TOKENS: u32 = 8192;

const VERSION: &str = "2023-06-01";
/// Uploaded files are behind this switch.
const FILES_BETA: &str = "files-api-2025-04-14";

struct Anthropic(Provider);

fn build(config: Config, common: &Common) -> Result<Box<dyn Callee>, ConfigError> {
    config.has_nothing_of_openai()?;
    let provider = Provider::new(config, &DEFAULTS)?;
    let secret = provider.secret.clone();
    Ok(Box::new(HttpAgent::new(Anthropic(provider), secret, common)?))
}

impl Dialect for Anthropic {
    type Decoder = Decoder;

    fn url(&self) -> &Url {
        &self.0.url
    }

    fn headers(&self, body: &Value) -> HeaderMap {
        let mut headers = self.0.headers.clone();
        headers.entry("anthropic-version").or_insert(HeaderValue::from_static(VERSION));
        if content::has_files(body) {
            headers.append("anthropic-beta", HeaderValue::from_static(FILES_BETA));
        }
        headers
    }

    fn body(&self, turn: &Turn) -> Result<Value, Fault> {
        let (system, messages) = content::messages(turn, self.0.system.as_deref())?;
        let mut body = Map::new();
        body.insert("model".into(), self.0.model.as_str().into());
        body.insert("max_tokens".into(), MAX_TOKENS.into());
        body.insert("stream".into(), true.into());
        if let Some(system) = system {
            body.insert("system".into(), system.into());
        }
        body.insert("messages".into(), messages.into());
        self.0.body(body, asked::of(turn)?)
    }

    fn decoder(&self, _turn: &Turn) -> Decoder {
        Decoder::new(self.0.secret.clone())
    }

    fn prefill(&self) -> Prefill {
        self.0.prefill.unwrap_or_else(|| Prefill::of_messages(&self.0.model, &self.0.parameters))
    }

    fn about(&self) -> About {
        About::model("anthropic", &self.0.model)
    }
}

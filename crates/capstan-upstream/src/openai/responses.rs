//! `api = "responses"`: OpenAI's Responses streaming. An answer that breaks off is read on where it
//! was, if the server keeps it.

mod asked;
mod decoder;
mod input;

use capstan_agent::{About, Turn};
use capstan_protocol::{Backoff, Fault};
use reqwest::header::HeaderMap;
use serde_json::{Map, Value};
use url::Url;

pub use decoder::Decoder;

use crate::call::{Dialect, HttpAgent, RESUMES, Resume};
use crate::callee::Callee;
use crate::config::ConfigError;
use crate::kind::Common;
use crate::provider::{Config, Defaults, Provider};

const DEFAULTS: Defaults = Defaults {
    path: "responses",
    ours: &["model", "input", "stream", "instructions"],
    ..super::DEFAULTS
};

struct Responses(Provider);

pub(crate) fn build(config: Config, common: &Common) -> Result<Box<dyn Callee>, ConfigError> {
    let provider = Provider::new(config, &DEFAULTS)?;
    let secret = provider.secret.clone();
    Ok(Box::new(HttpAgent::new(Responses(provider), secret, common)?))
}

impl Dialect for Responses {
    type Decoder = Decoder;

    fn url(&self) -> &Url {
        &self.0.url
    }

    fn headers(&self, _body: &Value) -> HeaderMap {
        self.0.headers.clone()
    }

    fn body(&self, turn: &Turn) -> Result<Value, Fault> {
        let mut body = Map::new();
        body.insert("model".into(), self.0.model.as_str().into());
        body.insert("stream".into(), true.into());
        if let Some(instructions) = input::instructions(turn, self.0.system.as_deref()) {
            body.insert("instructions".into(), instructions.into());
        }
        body.insert("input".into(), input::items(turn)?.into());
        self.0.body(body, asked::of(turn))
    }

    fn decoder(&self, _turn: &Turn) -> Decoder {
        Decoder::new(self.0.secret.clone())
    }

    /// What is not stored cannot be asked for again.
    fn resume(&self, decoder: &mut Decoder, resumed: u32) -> Option<Resume> {
        let is_stored = self.0.parameters.get("store") != Some(&Value::Bool(false));
        let (id, after) = decoder.place().filter(|_| is_stored && resumed < RESUMES)?;
        let mut url = crate::http::join(&self.0.url, id);
        url.query_pairs_mut()
            .append_pair("stream", "true")
            .append_pair("starting_after", &after.to_string());
        Some(Resume { url, body: None, wait: Backoff::DEFAULT.delay(resumed, fastrand::f64()) })
    }

    fn about(&self) -> About {
        About::model("openai", &self.0.model)
    }
}

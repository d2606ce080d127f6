//! The agent kind `openai`: a server of Chat Completions, OpenAI or compatible, or of Responses.

mod asked;
mod carried;
mod chunk;
mod decoder;
mod extras;
mod finish;
mod kept;
mod request;
pub mod responses;

use capstan_agent::{About, Output, Turn};
use capstan_protocol::{Dialect, Fault, NativeOrigin};
use reqwest::header::HeaderMap;
use serde_json::{Map, Value, json};
use url::Url;

pub use decoder::Decoder;

use crate::call::{self, HttpAgent};
use crate::callee::Callee;
use crate::config::{ConfigError, read_keys};
use crate::fates;
use crate::kind::{Build, Common, Kind};
use crate::native::{self, Lane};
use crate::passthrough::Passthrough;
use crate::prefill::Prefill;
use crate::preset::{OPENAI, OPENAI_LIKES};
use crate::provider::{Api, Asked, BEARER, Config, Defaults, FinishRule, Provider};
use crate::request_body::{Raw, RequestBody, raw};
use crate::retries::Retries;
use crate::timeouts::CallTimeouts;

/// The row of the kind.
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

const DIALECT: Dialect = Dialect::OpenaiChat;
/// The members of a chat request that the gateway decides.
const OURS: &[&str] = &["model", "messages", "stream", "stream_options", "n"];

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

/// The requests that an agent passes on to its provider without a run.
pub(crate) fn passthrough(
    config: Config,
    common: &Common,
) -> Result<Option<Passthrough>, ConfigError> {
    Passthrough::new(Provider::new(config, &DEFAULTS)?, common)
}

impl OpenAi {
    /// The origin of the reasoning that may come back.
    fn origin(&self) -> NativeOrigin {
        native::origin(DIALECT, &self.provider)
    }
}

impl call::Dialect for OpenAi {
    type Decoder = Decoder;

    fn url(&self) -> &Url {
        &self.provider.url
    }

    fn headers(&self, _turn: &Turn) -> HeaderMap {
        self.provider.headers.clone()
    }

    fn body(&self, turn: &Turn) -> Result<RequestBody, Fault> {
        let mut body = RequestBody::default();
        body.set("model", &self.provider.model);
        body.set("stream", &true);
        let system = self.provider.system.as_deref();
        let Some(request) = native::request(turn, DIALECT) else {
            body.set("stream_options", &json!({ "include_usage": true }));
            body.set("messages", &request::messages(turn, system, &self.origin())?);
            let mut asked = asked::of(turn);
            asked.members.extend(fates::shared(turn, DIALECT));
            return self.provider.body(body, asked);
        };
        let mut options: Map<String, Value> = request.read("stream_options").unwrap_or_default();
        options.insert("include_usage".into(), true.into());
        body.set("stream_options", &options);
        let earlier = request::told(system, turn.remembered(), &self.origin())?;
        let mut messages: Vec<Raw> = earlier.iter().map(raw).collect();
        let own = |message| carried::own(message, &self.origin());
        messages.extend(request.list("messages").into_iter().map(own));
        body.set("messages", &messages);
        self.provider.body(body, Asked::native(request, turn, OURS))
    }

    fn spoken(&self) -> Option<Dialect> {
        Some(DIALECT)
    }

    fn left_out(&self, turn: &Turn) -> Vec<Output> {
        let effort = fates::changed_effort(turn, DIALECT, asked::effort_word);
        fates::left_out(turn, DIALECT).into_iter().chain(effort).collect()
    }

    fn decoder(&self, turn: &Turn) -> Decoder {
        let lane = Lane::new(self.origin(), turn);
        let decoder = Decoder::new(self.provider.secret.clone()).in_lane(lane);
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

    fn models(&self) -> Option<Url> {
        Some(self.provider.models.clone())
    }

    fn maker(&self) -> Option<NativeOrigin> {
        Some(self.origin())
    }

    fn about(&self) -> About {
        About::model("openai", &self.provider.model)
    }
}

//! `api = "responses"`: OpenAI's Responses, streamed. A broken answer is resumed if the server
//! stores it.

mod asked;
mod decoder;
mod event;
mod input;

use capstan_agent::{About, Output, Turn};
use capstan_protocol::{Backoff, Dialect, Fault, NativeOrigin};
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::Value;
use url::Url;

pub use decoder::Decoder;

use crate::call::{self, HttpAgent, RESUMES, Resume};
use crate::callee::Callee;
use crate::config::ConfigError;
use crate::fates;
use crate::kind::Common;
use crate::native::{self, Lane};
use crate::parts;
use crate::provider::{Asked, Config, Defaults, Provider};
use crate::request_body::RequestBody;

const DEFAULTS: Defaults = Defaults {
    path: "responses",
    ours: &["model", "input", "stream", "instructions"],
    ..super::DEFAULTS
};

const DIALECT: Dialect = Dialect::OpenaiResponses;
/// The members of a request that the gateway decides.
const OURS: &[&str] = &[
    "model",
    "input",
    "stream",
    "instructions",
    "previous_response_id",
    "conversation",
    "background",
    "n",
    BETA,
];
/// The member that replaces the header `openai-beta`. Only the body is stored with a run.
const BETA: &str = "openai_beta";
/// The word in `include` by which a request gets encrypted reasoning.
const ENCRYPTED: &str = "reasoning.encrypted_content";

struct Responses(Provider);

pub(crate) fn build(config: Config, common: &Common) -> Result<Box<dyn Callee>, ConfigError> {
    let provider = Provider::new(config, &DEFAULTS)?;
    let secret = provider.secret.clone();
    Ok(Box::new(HttpAgent::new(Responses(provider), secret, common)?))
}

impl Responses {
    /// The provider and model whose reasoning can come back.
    fn origin(&self) -> NativeOrigin {
        native::origin(DIALECT, &self.0)
    }
}

/// Whether the provider stores the answer to a request.
fn is_stored(request: &RequestBody) -> bool {
    request.read::<bool>("store") != Some(false)
}

/// Asks for encrypted reasoning if the provider does not store the answer: otherwise the reasoning
/// would be lost.
fn with_reasoning(mut body: RequestBody) -> RequestBody {
    let mut include: Vec<String> = body.read("include").unwrap_or_default();
    if !is_stored(&body) && !include.iter().any(|name| name == ENCRYPTED) {
        include.push(ENCRYPTED.to_owned());
        body.set("include", &include);
    }
    body
}

impl call::Dialect for Responses {
    type Decoder = Decoder;

    fn url(&self) -> &Url {
        &self.0.url
    }

    fn headers(&self, turn: &Turn) -> HeaderMap {
        let mut headers = self.0.headers.clone();
        let betas = native::request(turn, DIALECT)
            .and_then(|request| request.read::<Vec<String>>(BETA))
            .and_then(|betas| HeaderValue::from_str(&betas.join(",")).ok());
        if let Some(betas) = betas {
            headers.append("openai-beta", betas);
        }
        headers
    }

    fn body(&self, turn: &Turn) -> Result<RequestBody, Fault> {
        let (mut body, own) = (RequestBody::default(), native::request(turn, DIALECT));
        body.set("model", &self.0.model);
        body.set("stream", &true);
        let instructions = match &own {
            Some(request) => input::instructions_before(self.0.system.as_deref(), request),
            None => input::instructions(turn, self.0.system.as_deref()),
        };
        if let Some(instructions) = instructions {
            body.set("instructions", &instructions);
        }
        let Some(request) = own else {
            body.set("input", &input::items(parts::messages(turn), &self.origin())?);
            let mut asked = asked::of(turn);
            asked.members.extend(fates::shared(turn, DIALECT));
            return self.0.body(body, asked).map(with_reasoning);
        };
        let mut items = input::items(turn.remembered(), &self.origin())?;
        items.extend(input::of_request(&request, &self.origin()));
        body.set("input", &items);
        self.0.body(body, Asked::native(request, turn, OURS)).map(with_reasoning)
    }

    fn spoken(&self) -> Option<Dialect> {
        Some(DIALECT)
    }

    fn left_out(&self, turn: &Turn) -> Vec<Output> {
        let effort = fates::changed_effort(turn, DIALECT, super::asked::effort_word);
        fates::left_out(turn, DIALECT).into_iter().chain(effort).collect()
    }

    fn decoder(&self, turn: &Turn) -> Decoder {
        let is_stored = native::request(turn, DIALECT).is_none_or(|request| is_stored(&request))
            && self.0.parameters.get("store") != Some(&Value::Bool(false));
        let lane = Lane::new(self.origin(), turn);
        Decoder::new(self.0.secret.clone()).in_lane(lane).of_stored(is_stored)
    }

    /// Resumes an answer that the provider stores.
    fn resume(&self, decoder: &mut Decoder, resumed: u32) -> Option<Resume> {
        let (id, after) = decoder.place().filter(|_| resumed < RESUMES)?;
        let mut url = crate::http::join(&self.0.url, id);
        url.query_pairs_mut()
            .append_pair("stream", "true")
            .append_pair("starting_after", &after.to_string());
        let wait = Backoff::DEFAULT.delay(resumed, fastrand::f64());
        Some(Resume { url, body: None, wait, is_poll: false })
    }

    fn models(&self) -> Option<Url> {
        Some(self.0.models.clone())
    }

    fn maker(&self) -> Option<NativeOrigin> {
        Some(self.origin())
    }

    fn about(&self) -> About {
        About::model("openai", &self.0.model)
    }
}

//! `anthropic`: Messages streaming.

mod asked;
mod block;
mod content;
mod decoder;
mod event;
mod head;
mod own_tools;
mod reasoning;

use capstan_agent::{About, Output, Turn};
use capstan_protocol::{Dialect, Fault, NativeOrigin};
use reqwest::header::HeaderMap;
use url::Url;

pub use decoder::Decoder;

use crate::call::{self, Counting, HttpAgent};
use crate::callee::Callee;
use crate::config::{ConfigError, read_keys};
use crate::fates;
use crate::http;
use crate::kind::{Build, Common, Kind};
use crate::native::{self, Lane};
use crate::prefill::Prefill;
use crate::preset::ANTHROPIC;
use crate::provider::{Asked, Config, Defaults, OF_OPENAI, Provider};
use crate::request_body::{Raw, RequestBody, raw};
use crate::retries::Retries;
use crate::timeouts::CallTimeouts;

pub(crate) use content::blocks;

/// The row of this kind.
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
    ours: &["model", "messages", "stream", "system", "anthropic_version", "anthropic_beta"],
};
/// The default limit. The protocol requires one, and this one holds a long answer.
const MAX_TOKENS: u32 = 8192;

const DIALECT: Dialect = Dialect::AnthropicMessages;
const VERSION: &str = "2023-06-01";
/// The beta that uploaded files need.
const FILES_BETA: &str = "files-api-2025-04-14";

/// The members of a request to count tokens. The provider refuses others.
const COUNTED: [&str; 6] = ["model", "messages", "system", "tools", "tool_choice", "thinking"];

struct Anthropic(Provider);

fn build(config: Config, common: &Common) -> Result<Box<dyn Callee>, ConfigError> {
    config.has_nothing_of_openai()?;
    let provider = Provider::new(config, &DEFAULTS)?;
    let secret = provider.secret.clone();
    Ok(Box::new(HttpAgent::new(Anthropic(provider), secret, common)?))
}

impl Anthropic {
    /// Returns the maker of this agent's reasoning.
    fn origin(&self) -> NativeOrigin {
        native::origin(DIALECT, &self.0)
    }

    /// Adds the conversation, translated to Messages.
    fn fill(&self, body: &mut RequestBody, turn: &Turn) -> Result<(), Fault> {
        let origin = self.origin();
        let (system, messages) = content::messages(turn, self.0.system.as_deref(), &origin)?;
        if let Some(system) = system {
            body.set("system", &system);
        }
        body.set("messages", &messages);
        Ok(())
    }

    /// Adds the conversation as the client wrote it, after the stored messages.
    fn fill_native(
        &self,
        body: &mut RequestBody,
        request: &RequestBody,
        turn: &Turn,
    ) -> Result<(), Fault> {
        if let Some(system) = content::system(self.0.system.as_deref(), request) {
            body.put("system", system);
        }
        let (_, earlier) = content::told(turn.remembered(), &self.origin())?;
        let mut messages: Vec<Raw> = earlier.iter().map(raw).collect();
        let own = |message| reasoning::own(message, &self.origin());
        messages.extend(request.list("messages").into_iter().filter_map(own));
        body.set("messages", &messages);
        Ok(())
    }
}

impl call::Dialect for Anthropic {
    type Decoder = Decoder;

    fn url(&self) -> &Url {
        &self.0.url
    }

    fn headers(&self, turn: &Turn) -> HeaderMap {
        head::headers(turn, &self.0.headers)
    }

    fn body(&self, turn: &Turn) -> Result<RequestBody, Fault> {
        let mut body = RequestBody::default();
        body.set("model", &self.0.model);
        body.set("max_tokens", &MAX_TOKENS);
        body.set("stream", &true);
        let asked = match native::request(turn, DIALECT) {
            Some(request) => {
                self.fill_native(&mut body, &request, turn)?;
                Asked::native(request, turn, DEFAULTS.ours)
            }
            None => {
                self.fill(&mut body, turn)?;
                asked::of(turn)?
            }
        };
        self.0.body(body, asked)
    }

    fn spoken(&self) -> Option<Dialect> {
        Some(DIALECT)
    }

    fn error_headers(&self) -> Option<&'static [&'static str]> {
        Some(&["anthropic-ratelimit-", "x-should-retry"])
    }

    fn counting(&self, turn: &Turn) -> Option<Result<Counting, Fault>> {
        let counting = |mut body: RequestBody| {
            let asked = native::request(turn, DIALECT).unwrap_or_default();
            let is_known =
                |name: &String| COUNTED.contains(&name.as_str()) || asked.get(name).is_some();
            let names: Vec<String> = body.names().map(str::to_owned).collect();
            for name in names.iter().filter(|name| !is_known(name) || *name == "stream") {
                body.take(name);
            }
            Counting { url: http::join(&self.0.url, "count_tokens"), body }
        };
        Some(self.body(turn).map(counting))
    }

    fn left_out(&self, turn: &Turn) -> Vec<Output> {
        let effort = fates::changed_effort(turn, DIALECT, asked::effort_word);
        fates::left_out(turn, DIALECT).into_iter().chain(effort).collect()
    }

    fn decoder(&self, turn: &Turn) -> Decoder {
        Decoder::new(self.0.secret.clone()).in_lane(Lane::new(self.origin(), turn))
    }

    fn prefill(&self) -> Prefill {
        self.0.prefill.unwrap_or_else(|| Prefill::of_messages(&self.0.model, &self.0.parameters))
    }

    fn models(&self) -> Option<Url> {
        Some(self.0.models.clone())
    }

    fn maker(&self) -> Option<NativeOrigin> {
        Some(self.origin())
    }

    fn about(&self) -> About {
        About::model("anthropic", &self.0.model)
    }
}

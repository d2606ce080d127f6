//! `ag-ui`: an AG-UI agent over HTTP and SSE.

mod decoder;
mod input;

use capstan_agent::{About, Turn, Work};
use capstan_protocol::Fault;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde::Deserialize;

use url::Url;

pub use decoder::Decoder;

use crate::api_key::ApiKey;
use crate::call::{Dialect, HttpAgent};
use crate::callee::Callee;
use crate::config::{ConfigError, read_keys};
use crate::headers::Pairs;
use crate::http;
use crate::kind::{Access, Build, Common, Kind};
use crate::request_body::RequestBody;
use crate::retries::Retries;
use crate::timeouts::CallTimeouts;

/// The row of this kind.
pub(crate) const KIND: Kind = Kind {
    name: "ag-ui",
    what: "an AG-UI agent",
    retries: Retries::CAREFUL,
    timeouts: CallTimeouts::FOREIGN,
    provider: None,
    build: Build::Adapter(|keys, common| build(read_keys(keys)?, common)),
};

/// The kind's own configuration keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    url: String,
    key_env: Option<String>,
    key_file: Option<String>,
    #[serde(default)]
    headers: Pairs,
    system: Option<String>,
}

struct AgUi {
    url: Url,
    system: Option<String>,
    secret: ApiKey,
}

fn build(config: Config, common: &Common) -> Result<Box<dyn Callee>, ConfigError> {
    let access = Access {
        key_env: config.key_env.as_deref(),
        key_file: config.key_file.as_deref(),
        headers: config.headers,
    };
    let (secret, common) = access.read(common)?;
    let dialect =
        AgUi { url: http::base_url(&config.url)?, system: config.system, secret: secret.clone() };
    Ok(Box::new(HttpAgent::new(dialect, secret, &common)?))
}

impl Dialect for AgUi {
    type Decoder = Decoder;

    fn url(&self) -> &Url {
        &self.url
    }

    fn headers(&self, _turn: &Turn) -> HeaderMap {
        self.secret.header("Bearer ").map(|key| (AUTHORIZATION, key)).into_iter().collect()
    }

    fn body(&self, turn: &Turn) -> Result<RequestBody, Fault> {
        let input = input::of(turn, self.system.as_deref())?;
        serde_json::to_value(input).map(RequestBody::from).map_err(Fault::from_error)
    }

    fn decoder(&self, _turn: &Turn) -> Decoder {
        Decoder::default()
    }

    /// Whether the server runs on without its connection. A Capstan gateway does, and names the
    /// run. Any other agent ends with its connection.
    fn starts_runs(&self) -> bool {
        true
    }

    fn about(&self) -> About {
        About::agent("ag-ui", Work::Agent)
    }
}

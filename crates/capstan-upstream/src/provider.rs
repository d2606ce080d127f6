//! Code that the model providers share: their configuration keys, and the parts of a call.

use std::collections::BTreeMap;

use capstan_agent::Turn;
use capstan_protocol::Fault;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::api_key::{ApiKey, in_variable};
use crate::config::{ConfigError, Keys};
use crate::group::Group;
use crate::headers::{Pairs, set_query};
use crate::http;
use crate::members::{LIMITS, Members};
use crate::prefill::Prefill;
use crate::preset::Preset;
use crate::request_body::{Raw, RequestBody};

/// The keys of a provider's table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    model: String,
    url: Option<String>,
    key_env: Option<String>,
    key_file: Option<String>,
    key_header: Option<String>,
    #[serde(default)]
    headers: Pairs,
    #[serde(default)]
    query: Pairs,
    system: Option<String>,
    prefill: Option<Prefill>,
    #[serde(default)]
    parameters: Map<String, Value>,
    pub(crate) api: Option<Api>,
    pub(crate) finish: Option<FinishRule>,
    preset: Option<String>,
    passthrough: Option<Vec<Group>>,
    max_tokens_field: Option<String>,
    rename: Option<BTreeMap<String, String>>,
    refuse: Option<Vec<String>>,
}

/// How many bytes of a digest name an account.
const ACCOUNT: usize = 6;

/// The keys that only `openai` has.
pub(crate) const OF_OPENAI: [&str; 7] =
    ["api", "finish", "preset", "passthrough", "max_tokens_field", "rename", "refuse"];
/// The keys of these that concern Chat Completions.
const OF_CHAT: [&str; 4] = ["finish", "max_tokens_field", "rename", "refuse"];

/// The protocol of an OpenAI server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Api {
    /// Chat Completions, which most servers speak.
    #[default]
    ChatCompletions,
    /// Responses.
    Responses,
}

/// Whether a complete answer needs a finish reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FinishRule {
    /// An answer without one was cut off.
    #[default]
    Required,
    /// For servers that never send one.
    Optional,
}

impl Config {
    /// Refuses the keys that only `openai` has.
    pub(crate) fn has_nothing_of_openai(&self) -> Result<(), ConfigError> {
        self.has_none_of(&OF_OPENAI, "only agents of kind openai have it")
    }

    /// Refuses the keys that only Chat Completions has.
    pub(crate) fn has_nothing_of_chat(&self) -> Result<(), ConfigError> {
        self.has_none_of(&OF_CHAT, "only api = \"chat-completions\" has it")
    }

    fn has_none_of(&self, names: &[&str], why: &str) -> Result<(), ConfigError> {
        let is_given = |name: &str| match name {
            "api" => self.api.is_some(),
            "finish" => self.finish.is_some(),
            "preset" => self.preset.is_some(),
            "passthrough" => self.passthrough.is_some(),
            "max_tokens_field" => self.max_tokens_field.is_some(),
            "rename" => self.rename.is_some(),
            _ => self.refuse.is_some(),
        };
        match names.iter().find(|name| is_given(name)) {
            Some(name) => Err(ConfigError::at(name, why)),
            None => Ok(()),
        }
    }
}

/// The differences between providers.
#[derive(Debug)]
pub(crate) struct Defaults {
    /// The provider's own server.
    pub(crate) own: &'static Preset,
    /// All known servers of its protocol.
    pub(crate) known: &'static [Preset],
    /// The path of calls, below the address of a server.
    pub(crate) path: &'static str,
    /// The header with the key, unless a server has another one.
    pub(crate) key_header: &'static str,
    /// Members of a request that the adapter decides. A configuration cannot override them.
    pub(crate) ours: &'static [&'static str],
}

/// The header of a key with the prefix `Bearer`.
pub(crate) const BEARER: &str = "authorization";

impl Defaults {
    /// The server of a table, and its address without the path of a call.
    fn server(
        &self,
        preset: Option<&str>,
        url: Option<&str>,
    ) -> Result<(&'static Preset, Url), ConfigError> {
        let named = |name: &str| {
            let known = || self.known.iter().map(|row| row.name.to_owned()).collect();
            let unknown = || ConfigError::at("preset", format!("unknown preset {name:?}"));
            Preset::named(name, self.known).ok_or_else(|| unknown().with_known(name, known()))
        };
        let named = preset.map(named).transpose()?;
        let origin = || named.unwrap_or(self.own).origin;
        let missing =
            || ConfigError::at("preset", "this server has an address for each customer: set url");
        let url = http::base_url(url.or_else(origin).ok_or_else(missing)?)?;
        let server = named.unwrap_or_else(|| Preset::at(&url, self.known));
        let url = if url.path() == "/" { http::join(&url, server.path) } else { url };
        Ok((server, url))
    }

    /// The variable with the key, unless the table names another one.
    fn usual_key(server: &Preset, url: &Url) -> Option<&'static str> {
        server.key_env.filter(|_| server.owns(url))
    }

    /// A warning if an agent's table names a key that does not exist. A server may need no key, so
    /// this is no error.
    pub(crate) fn key_warning(&self, keys: &Keys) -> Option<String> {
        let word = |name: &str| keys.get(name).and_then(Value::as_str);
        let (server, url) = self.server(word("preset"), word("url")).ok()?;
        let header = word("key_header").or(server.key_header).unwrap_or(self.key_header);
        let headers = keys.get("headers").and_then(Value::as_object);
        if headers.is_some_and(|all| all.keys().any(|name| name.eq_ignore_ascii_case(header))) {
            return None;
        }
        if let Some(variable) = Self::usual_key(server, &url) {
            return no_key_in(variable);
        }
        let tempting = server.key_env.or(self.own.key_env);
        let variable = tempting.filter(|name| in_variable(name).is_some())?;
        Some(format!(
            "{variable} is not sent to {}, so this agent's calls go out without a key; to send \
             it, set key_env = \"{variable}\"; if the server asks for no key, set key_env = \"\"",
            http::host_of(&url)
        ))
    }
}

/// The warning about a variable that should have a key and has none.
pub(crate) fn no_key_in(variable: &str) -> Option<String> {
    in_variable(variable).is_none().then(|| {
        format!(
            "{variable} is not set, so this agent's calls go out without a key; set it, or name \
             the key with key_env or key_file"
        )
    })
}

/// A configured provider.
pub(crate) struct Provider {
    pub(crate) url: Url,
    pub(crate) model: String,
    pub(crate) system: Option<String>,
    pub(crate) parameters: Map<String, Value>,
    /// How an answer is continued, if the configuration says so.
    pub(crate) prefill: Option<Prefill>,
    /// The key, and the other secrets of its calls.
    pub(crate) secret: ApiKey,
    /// The key's header and the configured headers.
    pub(crate) headers: HeaderMap,
    /// The address that lists its models.
    pub(crate) models: Url,
    /// The base address, with the configured query.
    pub(crate) base: Url,
    /// The groups that are passed on without runs.
    pub(crate) passthrough: Vec<Group>,
    /// Names the account at its host.
    pub(crate) account: String,
    members: Members,
}

impl Provider {
    pub(crate) fn new(config: Config, defaults: &Defaults) -> Result<Self, ConfigError> {
        if let Some(name) = defaults.ours.iter().find(|name| config.parameters.contains_key(**name))
        {
            return Err(ConfigError::at("parameters", format!("{name} cannot be set here")));
        }
        if config.model.trim().is_empty() {
            return Err(ConfigError::at("model", "it is empty"));
        }
        let (server, base) = defaults.server(config.preset.as_deref(), config.url.as_deref())?;
        let mut hidden = Vec::new();
        let mut url = http::join(&base, defaults.path);
        for (part, name, value) in server.query {
            if url.path().contains(part) && url.query_pairs().all(|(known, _)| known != *name) {
                set_query(&mut url, name, value);
            }
        }
        config.query.apply(&mut url, &mut hidden)?;
        let mut headers = config.headers.headers(&mut hidden)?;
        let key = key(&config, defaults, server, &base)?;
        headers.extend(key.header);
        let is_chat = config.api.unwrap_or_default() == Api::ChatCompletions;
        let members = Members::new(
            if is_chat { Some(server) } else { None },
            config.max_tokens_field,
            config.rename,
            config.refuse,
            &config.parameters,
        )?;
        let own = with_query_of(&url, &base);
        let account = account(&config.headers, &config.query, key.name.as_deref(), &url);
        Ok(Self {
            account,
            url,
            model: config.model,
            system: config.system,
            parameters: config.parameters,
            prefill: config.prefill,
            secret: key.secret.beside(hidden),
            headers,
            models: models(&base, defaults),
            base: own,
            passthrough: config.passthrough.unwrap_or_default(),
            members,
        })
    }

    /// Makes the body of a call. Configured members replace the adapter's, and the request's
    /// replace both.
    pub(crate) fn body(&self, ours: RequestBody, asked: Asked) -> Result<RequestBody, Fault> {
        let mut body = ours;
        self.parameters.iter().for_each(|(name, value)| body.set(name, value));
        if !asked.tools.is_empty() {
            // Of two tools with the same name, the caller's counts, because the caller can answer
            // its calls.
            let mut tools = body.list("tools");
            let is_asked = |tool: &Raw| {
                let name = name_of(tool);
                name.is_some() && asked.tools.iter().any(|asked| name_of(asked) == name)
            };
            tools.retain(|tool| !is_asked(tool));
            tools.extend(asked.tools);
            body.set("tools", &tools);
        }
        if let Some(asked) = asked.max_tokens {
            let known = LIMITS.iter().find(|name| self.parameters.contains_key(**name));
            let ceiling = known.and_then(|name| self.parameters.get(*name)?.as_u64());
            let limit = ceiling.map_or(asked.value, |ceiling| ceiling.min(asked.value));
            body.set(known.copied().unwrap_or(asked.name), &limit);
        }
        body.extend(asked.members);
        self.members.apply(&mut body)?;
        Ok(body)
    }
}

fn with_query_of(url: &Url, base: &Url) -> Url {
    let mut base = base.clone();
    base.set_query(url.query());
    base
}

/// The address that lists the models: next to that of a call, without secrets in the query.
fn models(base: &Url, defaults: &Defaults) -> Url {
    let above = defaults.path.split_once("v1/").map_or("", |_| "v1/");
    let mut url = http::join(base, &format!("{above}models"));
    url.set_query(None);
    url
}

/// Names an account, for a provider cannot read what it made for another account. The name is a
/// digest of the configuration as it is written, which has no secrets: where calls go, and the
/// names of the variables and files that hold keys.
fn account(headers: &Pairs, query: &Pairs, key: Option<&str>, url: &Url) -> String {
    let written = serde_json::to_vec(&(url.path(), key, headers, query)).unwrap_or_default();
    Sha256::digest(written).iter().take(ACCOUNT).map(|byte| format!("{byte:02x}")).collect()
}

/// A key, its header, and the variable or file that holds the key.
struct KeyHeader {
    secret: ApiKey,
    header: HeaderMap,
    name: Option<String>,
}

/// Finds the key of an agent. The usual key goes to its own provider only.
fn key(
    config: &Config,
    defaults: &Defaults,
    server: &Preset,
    url: &Url,
) -> Result<KeyHeader, ConfigError> {
    let name = config.key_header.as_deref().or(server.key_header).unwrap_or(defaults.key_header);
    let header: HeaderName =
        name.parse().map_err(|_| ConfigError::at("key_header", "is no header's name"))?;
    let is_named = config.key_file.is_some()
        || config.key_env.as_deref().is_some_and(|variable| !variable.is_empty());
    let is_given = config.headers.has(name);
    if is_given && is_named {
        let why = format!("the key is in {name} as well; give one of them");
        return Err(ConfigError::at("headers", why));
    }
    let usual = Defaults::usual_key(server, url).filter(|_| !is_given);
    let secret = ApiKey::find(config.key_env.as_deref(), config.key_file.as_deref(), usual)?;
    let prefix = if header == AUTHORIZATION { "Bearer " } else { "" };
    let header = secret.header(prefix).map(|key| (header, key)).into_iter().collect();
    let name = config.key_file.as_deref().or(config.key_env.as_deref()).or(usual);
    Ok(KeyHeader { secret, header, name: name.map(str::to_owned) })
}

/// The request's parameters, in the provider's protocol.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) tools: Vec<Raw>,
    pub(crate) max_tokens: Option<TokenLimit>,
    pub(crate) members: RequestBody,
}

impl Asked {
    /// The request of a client that speaks the provider's protocol, without the members that the
    /// gateway decides.
    pub(crate) fn native(mut request: RequestBody, turn: &Turn, ours: &[&str]) -> Self {
        let tools = request.list("tools");
        let name = LIMITS.into_iter().find(|name| request.get(name).is_some());
        for name in ours.iter().chain(&LIMITS).chain(&["tools"]) {
            request.take(name);
        }
        let limit = name.zip(turn.parameters.max_tokens);
        let max_tokens = limit.map(|(name, value)| TokenLimit { name, value });
        Self { tools, max_tokens, members: request }
    }
}

/// A token limit with the provider's name for it.
pub(crate) struct TokenLimit {
    pub(crate) name: &'static str,
    pub(crate) value: u64,
}

fn name_of(tool: &Raw) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        name: Option<String>,
        function: Option<Box<Named>>,
    }
    let tool: Named = serde_json::from_str(tool.get()).ok()?;
    tool.name.or_else(|| tool.function?.name)
}

//! Agents whose providers accept requests that are no runs.

use std::sync::Arc;

use axum::body::Body;
use capstan_agent::async_trait;
use capstan_engine::Engine;
use capstan_protocol::{Fault, FaultKind};

/// The groups of routes that an agent can forward, as the configuration names them.
pub const PASSTHROUGH: [&str; 6] =
    ["audio", "completions", "embeddings", "files", "images", "moderations"];

/// The provider of an agent, for requests that are no runs.
#[async_trait]
pub trait Passthrough: Send + Sync + 'static {
    /// Whether the provider accepts a group of [`PASSTHROUGH`].
    fn takes(&self, group: &str) -> bool;

    /// The provider's name of the agent's model.
    fn model(&self) -> &str;

    /// Forwards a request, and returns the response when its head has arrived. The request has
    /// neither the client's credentials nor a host; its path begins with `/v1/`.
    async fn pass(&self, request: http::Request<Body>) -> Result<http::Response<Body>, Fault>;
}

/// Agents that forward requests, by name.
#[derive(Clone, Default)]
pub struct Passthroughs(Arc<[Named]>);

type Named = (String, Arc<dyn Passthrough>);

impl From<Vec<Named>> for Passthroughs {
    fn from(named: Vec<Named>) -> Self {
        Self(named.into())
    }
}

impl Passthroughs {
    /// Whether any agent accepts a group.
    pub fn has(&self, group: &str) -> bool {
        self.0.iter().any(|(_, agent)| agent.takes(group))
    }

    /// Chooses the agent for a group: the one that `model` names, or the only one.
    pub fn choose(
        &self,
        engine: &Engine,
        group: &str,
        model: Option<&str>,
    ) -> Result<Chosen, Fault> {
        let all: Vec<&Named> = self.0.iter().filter(|(_, agent)| agent.takes(group)).collect();
        let named = model.and_then(|name| {
            let name = engine.own_name(name);
            all.iter().find(|(own, _)| own == name)
        });
        match (named, all.as_slice()) {
            (Some((name, agent)), _) => Ok(Chosen {
                name: name.clone(),
                model: Some(agent.model().to_owned()),
                agent: Arc::clone(agent),
            }),
            (None, [(name, agent)]) => {
                Ok(Chosen { name: name.clone(), model: None, agent: Arc::clone(agent) })
            }
            (None, []) => Err(Fault::new(FaultKind::RouteNotFound).with_message(format!(
                "No agent passes requests of this kind on. An operator switches it on with \
                 passthrough = [{group:?}] in the table of an agent of kind openai."
            ))),
            (None, several) => {
                let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
                let message = format!(
                    "Several agents pass requests of this kind on. Name one of them as the \
                     model: {}.",
                    names.join(", ")
                );
                let kind = FaultKind::AgentNotFound;
                Err(Fault::new(kind).with_message(message).with_detail("near", names))
            }
        }
    }
}

/// The agent that gets a request.
pub struct Chosen {
    pub name: String,
    pub agent: Arc<dyn Passthrough>,
    /// The provider's model, which replaces the agent's name in the request.
    pub model: Option<String>,
}

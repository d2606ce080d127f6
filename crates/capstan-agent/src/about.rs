//! An agent's description of itself, for observers.

/// The kind of work of an attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Work {
    /// It happens in this process or below it.
    #[default]
    Local,
    /// Another agent does it, over the network.
    Agent,
    /// A model does it, over the network.
    Chat,
}

/// An agent's description in traces.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct About {
    /// The kind of work.
    pub work: Work,
    /// The provider of the model, or else the kind of agent.
    pub provider: &'static str,
    /// The requested model.
    pub model: Option<String>,
}

/// The address of an agent's upstream, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its host, and its port if that is not the usual one.
    pub host: String,
    /// Whether the agent sends a key. It never reveals the key.
    pub has_key: bool,
}

impl About {
    /// An agent without a model of its own.
    pub fn agent(provider: &'static str, work: Work) -> Self {
        Self { work, provider, model: None }
    }

    /// A model over the network.
    pub fn model(provider: &'static str, model: &str) -> Self {
        Self { work: Work::Chat, provider, model: Some(model.to_owned()) }
    }
}

impl Default for About {
    fn default() -> Self {
        Self::agent("capstan", Work::Local)
    }
}

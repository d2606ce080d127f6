//! Presets: the peculiarities of known servers that speak OpenAI's or Anthropic's protocol, one row
//! each.

use url::Url;

/// A known server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Preset {
    /// The name in the configuration.
    pub(crate) name: &'static str,
    /// Its address without a path. `None` if each customer has an address.
    pub(crate) origin: Option<&'static str>,
    /// The path of its API, for a URL without a path.
    pub(crate) path: &'static str,
    /// Its hosts. One with a leading dot matches all hosts that end with it.
    pub(crate) hosts: &'static [&'static str],
    /// The variable with its key. The key goes to these hosts only.
    pub(crate) key_env: Option<&'static str>,
    /// The header with the key, if it is not the usual one of the kind.
    pub(crate) key_header: Option<&'static str>,
    /// Its name for the token limit in Chat Completions.
    pub(crate) max_tokens_field: Option<&'static str>,
    /// Members of Chat Completions that have other names here: OpenAI's name, then this server's.
    pub(crate) rename: &'static [(&'static str, &'static str)],
    /// Members of Chat Completions that it refuses.
    pub(crate) refuse: &'static [&'static str],
    /// Query parameters that it requires at URLs whose path contains the first text.
    pub(crate) query: &'static [(&'static str, &'static str, &'static str)],
}

/// An unknown server.
const UNKNOWN: Preset = Preset {
    name: "",
    origin: None,
    path: "",
    hosts: &[],
    key_env: None,
    key_header: None,
    max_tokens_field: None,
    rename: &[],
    refuse: &[],
    query: &[],
};

/// Anthropic itself.
pub(crate) const ANTHROPIC: Preset = Preset {
    name: "anthropic",
    origin: Some("https://api.anthropic.com"),
    hosts: &["api.anthropic.com"],
    key_env: Some("ANTHROPIC_API_KEY"),
    ..UNKNOWN
};

/// OpenAI itself.
pub(crate) const OPENAI: Preset = Preset {
    name: "openai",
    origin: Some("https://api.openai.com"),
    path: "v1",
    hosts: &["api.openai.com", ".api.openai.com"],
    key_env: Some("OPENAI_API_KEY"),
    // Newer models refuse the older name.
    max_tokens_field: Some("max_completion_tokens"),
    ..UNKNOWN
};

/// Servers of OpenAI's protocol. To add one, write its row, its server in `tests/it/presets.rs`,
/// and its line in docs/agents.md.
pub(crate) const OPENAI_LIKES: &[Preset] = &[
    OPENAI,
    Preset {
        name: "azure",
        path: "openai/v1",
        hosts: &[".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com"],
        key_env: Some("AZURE_OPENAI_API_KEY"),
        key_header: Some("api-key"),
        max_tokens_field: Some("max_completion_tokens"),
        // Only the older addresses, with a path for each deployment, need a version.
        query: &[("/openai/deployments/", "api-version", "2024-10-21")],
        ..UNKNOWN
    },
    Preset {
        name: "deepseek",
        origin: Some("https://api.deepseek.com"),
        path: "v1",
        hosts: &["api.deepseek.com"],
        key_env: Some("DEEPSEEK_API_KEY"),
        max_tokens_field: Some("max_tokens"),
        ..UNKNOWN
    },
    Preset {
        name: "gemini",
        origin: Some("https://generativelanguage.googleapis.com"),
        path: "v1beta/openai",
        hosts: &["generativelanguage.googleapis.com"],
        key_env: Some("GEMINI_API_KEY"),
        max_tokens_field: Some("max_tokens"),
        refuse: &["frequency_penalty", "seed", "store"],
        ..UNKNOWN
    },
    Preset {
        name: "groq",
        origin: Some("https://api.groq.com"),
        path: "openai/v1",
        hosts: &["api.groq.com"],
        key_env: Some("GROQ_API_KEY"),
        max_tokens_field: Some("max_completion_tokens"),
        refuse: &["logit_bias", "logprobs", "top_logprobs", "messages.name"],
        ..UNKNOWN
    },
    Preset {
        name: "llama-cpp",
        origin: Some("http://127.0.0.1:8080"),
        path: "v1",
        max_tokens_field: Some("max_tokens"),
        ..UNKNOWN
    },
    Preset {
        name: "mistral",
        origin: Some("https://api.mistral.ai"),
        path: "v1",
        hosts: &["api.mistral.ai"],
        key_env: Some("MISTRAL_API_KEY"),
        max_tokens_field: Some("max_tokens"),
        rename: &[("seed", "random_seed")],
        // It sends the usage without this member.
        refuse: &[
            "stream_options",
            "logit_bias",
            "logprobs",
            "top_logprobs",
            "service_tier",
            "store",
            "user",
        ],
        ..UNKNOWN
    },
    Preset {
        name: "ollama",
        origin: Some("http://127.0.0.1:11434"),
        path: "v1",
        // It silently ignores the newer name.
        max_tokens_field: Some("max_tokens"),
        ..UNKNOWN
    },
    Preset {
        name: "openrouter",
        origin: Some("https://openrouter.ai"),
        path: "api/v1",
        hosts: &["openrouter.ai"],
        key_env: Some("OPENROUTER_API_KEY"),
        max_tokens_field: Some("max_tokens"),
        ..UNKNOWN
    },
    Preset {
        name: "vllm",
        origin: Some("http://127.0.0.1:8000"),
        path: "v1",
        max_tokens_field: Some("max_tokens"),
        ..UNKNOWN
    },
];

impl Preset {
    /// Finds a row by its name.
    pub(crate) fn named<'a>(name: &str, rows: &'a [Self]) -> Option<&'a Self> {
        rows.iter().find(|row| row.name == name)
    }

    /// Finds the row of the server at an address.
    pub(crate) fn at(url: &Url, rows: &'static [Self]) -> &'static Self {
        rows.iter().find(|row| row.owns(url)).unwrap_or(&UNKNOWN)
    }

    /// Whether the address belongs to the server itself, and not to a proxy.
    pub(crate) fn owns(&self, url: &Url) -> bool {
        let Some(host) = url.host_str().filter(|_| url.scheme() == "https") else { return false };
        let is_it = |own: &str| match own.starts_with('.') {
            true => host.ends_with(own),
            false => host == own,
        };
        self.hosts.iter().any(|own| is_it(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(url: &str) -> &'static str {
        Preset::at(&url.parse().unwrap(), OPENAI_LIKES).name
    }

    const PAGE: &str = include_str!("../../../docs/agents.md");

    #[test]
    fn every_preset_stands_in_the_documentation_with_what_it_sets() {
        for row in OPENAI_LIKES {
            let line = PAGE.lines().find(|line| line.starts_with(&format!("| `{}` |", row.name)));
            let line = line.unwrap_or_else(|| panic!("docs/agents.md has no row for {}", row.name));
            let origin = row.origin.unwrap_or_default();
            let mut facts = vec![format!("{origin}/{}`", row.path)];
            facts.extend(row.key_env.map(|name| format!("`{name}`")));
            facts.extend(row.key_header.map(|name| format!("in `{name}`")));
            facts.extend(row.max_tokens_field.map(|name| format!("| `{name}` |")));
            facts.extend(row.rename.iter().map(|(from, to)| format!("`{from}` is `{to}`")));
            facts.extend(row.refuse.iter().map(|name| format!("`{name}`")));
            facts.extend(row.query.iter().map(|(_, name, value)| format!("`{name}={value}`")));
            for fact in facts {
                assert!(line.contains(&fact), "{}: {fact}", row.name);
            }
        }
    }

    #[test]
    fn a_server_is_known_by_its_own_address_alone() {
        assert_eq!(row("https://api.openai.com/v1"), "openai");
        assert_eq!(row("https://eu.api.openai.com/v1"), "openai");
        assert_eq!(row("https://r.openai.azure.com"), "azure");
        for other in [
            "http://api.openai.com/v1",
            "https://api.openai.com.evil.example/v1",
            "https://evilapi.openai.com/v1",
            "https://evil.example/api.openai.com",
            "http://127.0.0.1:11434/v1",
        ] {
            assert_eq!(row(other), "", "{other}");
        }
    }
}

//! What each crate may know: the table that the check reads.

/// A crate of the workspace.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    /// The crates of ours that it may depend on.
    pub(crate) knows: &'static [&'static str],
    /// Crates of others that would give it a job that is not its own.
    pub(crate) never: &'static [&'static str],
}

impl Rule {
    pub(crate) fn may_know(&self, name: &str) -> bool {
        self.knows == EVERYTHING || self.knows.contains(&name)
    }
}

/// Crates whose modules must not know each other, and the modules that all of them may know.
pub(crate) const APART: &[(&str, &[&str])] = &[("capstan-faces", &["head_members", "text_or"])];

const EVERYTHING: &[&str] = &["*"];

/// Serving HTTP.
const SERVER: &[&str] = &["axum", "hyper", "hyper-util", "tower"];
/// HTTP in any form, and the gateway's counters.
const NO_HTTP: &[&str] = &[
    "axum",
    "http",
    "http-body",
    "http-body-util",
    "hyper",
    "hyper-util",
    "prometheus-client",
    "reqwest",
    "tower",
];

pub(crate) const RULES: &[Rule] = &[
    Rule { name: "capstan-protocol", knows: &[], never: SERVER },
    Rule { name: "capstan-agent", knows: &["capstan-protocol"], never: NO_HTTP },
    Rule { name: "capstan-journal", knows: &["capstan-protocol"], never: NO_HTTP },
    Rule {
        name: "capstan-stores",
        knows: &["capstan-journal", "capstan-protocol"],
        never: NO_HTTP,
    },
    Rule {
        name: "capstan-engine",
        knows: &["capstan-agent", "capstan-journal", "capstan-protocol"],
        never: NO_HTTP,
    },
    Rule {
        name: "capstan-kit",
        knows: &["capstan-agent", "capstan-engine", "capstan-journal", "capstan-protocol"],
        never: &["prometheus-client", "reqwest", "tokio-postgres"],
    },
    Rule {
        name: "capstan-faces",
        knows: &[
            "capstan-agent",
            "capstan-engine",
            "capstan-journal",
            "capstan-kit",
            "capstan-protocol",
        ],
        never: &["prometheus-client", "reqwest", "tokio-postgres"],
    },
    Rule {
        name: "capstan-console",
        knows: &[
            "capstan-agent",
            "capstan-engine",
            "capstan-journal",
            "capstan-kit",
            "capstan-protocol",
        ],
        never: &["prometheus-client", "reqwest", "tokio-postgres"],
    },
    Rule {
        name: "capstan-gateway",
        knows: &[
            "capstan-agent",
            "capstan-console",
            "capstan-engine",
            "capstan-faces",
            "capstan-journal",
            "capstan-kit",
            "capstan-protocol",
        ],
        never: &["reqwest", "tokio-postgres"],
    },
    Rule { name: "capstan-demo", knows: &["capstan-agent", "capstan-protocol"], never: NO_HTTP },
    Rule { name: "capstan-client", knows: &["capstan-protocol"], never: SERVER },
    Rule {
        name: "capstan-upstream",
        knows: &["capstan-agent", "capstan-client", "capstan-protocol"],
        never: SERVER,
    },
    Rule { name: "capstan-chaos", knows: &[], never: NO_HTTP },
    Rule { name: "capstan-fake-provider", knows: &[], never: NO_HTTP },
    Rule { name: "capstan-check", knows: &["capstan-client", "capstan-protocol"], never: SERVER },
    Rule {
        name: "coreason-client-python",
        knows: &["capstan-client", "capstan-protocol"],
        never: SERVER,
    },
    Rule { name: "capstan", knows: EVERYTHING, never: &[] },
    Rule { name: "xtask", knows: EVERYTHING, never: &[] },
];

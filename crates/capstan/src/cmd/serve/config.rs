//! `capstan.toml`: what can be configured. A wrong key or value is refused with its place and the nearest known key.

mod effective;

use std::path::{Path, PathBuf};
use std::time::Duration;

use capstan_gateway::{KeyHash, Limits, Retention, Settings, Tenant, Timeouts};
use capstan_protocol::{Exposure, nearest};
use serde::Deserialize;
use serde::de::Error as _;

use self::effective::Shown as _;
use super::agents::{self, Named, Source, Table};
use crate::cmd::Failure;

/// A commented configuration with every key there is.
pub(in crate::cmd) const EXAMPLE: &str = include_str!("config/example.toml");

/// The file that is read if it exists.
const DEFAULT_FILE: &str = "capstan.toml";
/// What the protocol promises: so long after its stream a key still starts no second run.
const PROMISED_CLAIM_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The configuration, defaults filled in.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::cmd) struct Config {
    pub(super) listen: String,
    pub(super) journal: String,
    pub(super) durability: String,
    pub(super) debug: bool,
    agui_error_text: bool,
    pub(in crate::cmd) open: bool,
    pub(super) tls_cert: Option<PathBuf>,
    pub(super) tls_key: Option<PathBuf>,
    cors_origins: Vec<String>,
    metrics_key: Option<Key>,
    tenants: Vec<TenantConfig>,
    agents: Vec<Table>,
    limits: LimitsConfig,
    timeouts: TimeoutsConfig,
    retention: RetentionConfig,
    /// The file that all this stands in.
    #[serde(skip)]
    source: (PathBuf, String),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: "localhost:8787".into(),
            journal: "disk:./.capstan".into(),
            durability: "process".into(),
            debug: false,
            open: false,
            agui_error_text: false,
            tls_cert: None,
            tls_key: None,
            cors_origins: Vec::new(),
            metrics_key: None,
            tenants: Vec::new(),
            agents: Vec::new(),
            limits: LimitsConfig::default(),
            timeouts: TimeoutsConfig::default(),
            retention: RetentionConfig::default(),
            source: Default::default(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantConfig {
    name: String,
    keys: Vec<Key>,
    #[serde(default)]
    no_store: bool,
    #[serde(default)]
    retention: TenantRetentionConfig,
}

/// What is kept of one tenant; claims are kept for all alike.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TenantRetentionConfig {
    max_age: Option<Seconds>,
    max_bytes: Option<u64>,
}

/// `sha256:<64 hex digits>`; a key itself never stands in a file.
#[derive(Debug, Clone)]
struct Key(KeyHash);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let hash = text.strip_prefix("sha256:").and_then(KeyHash::from_hex);
        hash.map(Self).ok_or_else(|| D::Error::custom("expected sha256:<64 hex digits>"))
    }
}

/// Declares an optional overlay over one of the gateway's structs.
macro_rules! overlay {
    ($name:ident over $target:ident { $($field:ident: $type:ty,)* }) => {
        #[derive(Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct $name { $($field: Option<$type>,)* }

        impl $name {
            fn apply(&self, target: &mut $target) {
                $(if let Some(value) = self.$field { target.$field = value.into(); })*
            }

            /// Every key with its value.
            fn values(target: &$target) -> Vec<(&'static str, String)> {
                vec![$((stringify!($field), target.$field.shown())),*]
            }
        }
    };
}

overlay! { LimitsConfig over Limits {
    requests_per_minute: u32, sessions: u64, messages_per_session: usize, runs_per_tenant: usize, runs: usize,
    readers_per_tenant: usize, body_bytes: usize, packets_per_stream: u64, bytes_per_stream: u64,
} }

overlay! { TimeoutsConfig over Timeouts {
    run: Seconds, idle: Seconds, request: Seconds, heartbeat: Seconds, waiting: Seconds, drain: Seconds,
    stalled_reader: Seconds,
} }

overlay! { RetentionConfig over Retention { max_age: Seconds, max_bytes: u64, claim_age: Seconds, } }

/// A number of seconds; fractions are fine.
#[derive(Debug, Clone, Copy)]
struct Seconds(Duration);

impl From<Seconds> for Duration {
    fn from(seconds: Seconds) -> Self {
        seconds.0
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds)
            .map(Self)
            .map_err(|_| D::Error::custom("expected a number of seconds"))
    }
}

impl Config {
    /// Reads a file: the one that was named, or `capstan.toml` if there is one.
    pub(super) fn load(named: Option<&Path>) -> Result<Self, Failure> {
        let Some((path, text)) = read_file(named)? else { return Ok(Self::default()) };
        let config: Self = toml::from_str(&text).map_err(|e| explain(&path, &text, &e))?;
        Ok(Self { source: (path, text), ..config })
    }

    /// The agents that the file names, the default one first; none if it names none.
    pub(super) fn agents(&self) -> Result<Vec<Named>, Failure> {
        let (path, text) = &self.source;
        agents::agents(&self.agents, Source { path, text })
    }

    /// What the gateway needs to know.
    pub(in crate::cmd) fn settings(&self) -> Result<Settings, Failure> {
        let mut settings = Settings {
            tenants: self.tenants()?.into(),
            open: self.open,
            cors_origins: self.cors_origins.clone(),
            metrics_key: self.metrics_key.clone().map(|key| key.0),
            exposure: self.exposure(),
            agui_error_text: self.agui_error_text,
            ..Settings::default()
        };
        self.limits.apply(&mut settings.limits);
        self.timeouts.apply(&mut settings.timeouts);
        self.retention.apply(&mut settings.retention);
        check_claim_age(settings.retention.claim_age)?;
        Ok(settings)
    }

    /// Who may use it.
    pub(super) fn tenants(&self) -> Result<Vec<Tenant>, Failure> {
        for (index, tenant) in self.tenants.iter().enumerate() {
            let TenantConfig { name, keys, .. } = tenant;
            if keys.is_empty() || name.is_empty() {
                return Err(Failure::usage(format!("tenants: {name:?} needs a name and at least one key")));
            }
            if self.tenants.iter().take(index).any(|earlier| earlier.name == *name) {
                return Err(Failure::usage(format!("tenants: there are two tables of the name {name:?}"))
                    .with_help("one tenant may have several keys"));
            }
        }
        Ok(self.tenants.iter().map(TenantConfig::to_tenant).collect())
    }

    /// Whether the inside may be shown.
    pub(super) fn exposure(&self) -> Exposure {
        let environment = std::env::var("CAPSTAN_ENV").ok();
        if self.debug { Exposure::Debug } else { Exposure::from_environment(environment.as_deref()) }
    }
}

/// The file that was named, or `capstan.toml` if there is one.
pub(in crate::cmd) fn read_file(named: Option<&Path>) -> Result<Option<(PathBuf, String)>, Failure> {
    let path = named.unwrap_or_else(|| Path::new(DEFAULT_FILE));
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some((path.to_owned(), text))),
        Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Failure::usage(format!("{}: {e}", path.display()))),
    }
}

/// A late duplicate must not start a second run, so the day that the protocol promises cannot be shortened.
fn check_claim_age(claim_age: Duration) -> Result<(), Failure> {
    if claim_age >= PROMISED_CLAIM_AGE {
        return Ok(());
    }
    let (given, least) = (claim_age.as_secs_f64(), PROMISED_CLAIM_AGE.as_secs());
    Err(Failure::usage(format!("retention.claim_age: {given} s is less than {least} s (24 h)"))
        .with_help("a key must start no second run for 24 h after its stream is gone; streams themselves may go sooner (max_age)"))
}

impl TenantConfig {
    fn to_tenant(&self) -> Tenant {
        Tenant {
            no_store: self.no_store,
            max_age: self.retention.max_age.map(Duration::from),
            max_bytes: self.retention.max_bytes,
            ..Tenant::new(&self.name, self.keys.iter().map(|key| key.0.clone()).collect())
        }
    }
}

/// Names the place, but does not quote it as toml's own message does: a line may hold a key that does not belong there.
/// A mistyped key also gets the nearest known one.
fn explain(path: &Path, text: &str, error: &toml::de::Error) -> Failure {
    let message = error.message();
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let line = error.span().and_then(|span| text.get(..span.start)).map(|before| before.split('\n').count());
    let place = line.map_or_else(String::new, |line| format!(", line {line}"));
    let failure = Failure::usage(format!("{}{place}: {message}", path.display()));
    let close = match words.split_first() {
        Some((wrong, known)) if message.starts_with("unknown field") => nearest(wrong, known.iter().copied()),
        _ => None,
    };
    match close {
        Some(close) => failure.with_help(format!("did you mean `{close}`?")),
        None => failure,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_overlaid_by_what_the_file_says() {
        let config: Config =
            toml::from_str("debug = true\n[limits]\nruns = 7\n[timeouts]\nidle = 1.5\n").unwrap();
        let settings = config.settings().unwrap();
        assert_eq!((settings.limits.runs, settings.timeouts.idle), (7, Duration::from_millis(1500)));
        assert_eq!(settings.limits.body_bytes, Limits::default().body_bytes);
        assert_eq!(settings.exposure, Exposure::Debug);
    }

    #[test]
    fn a_wrong_key_names_its_place_and_the_nearest_known_one() {
        let wrong = "debug = true\nlisen = \"x\"\n";
        let error = toml::from_str::<Config>(wrong).unwrap_err();
        let failure = explain(Path::new("capstan.toml"), wrong, &error);
        let text = format!("{failure:?}");
        assert!(text.contains("line 2") && text.contains("did you mean `listen`?"), "{text}");
    }

    #[test]
    fn retention_is_overlaid_like_the_rest() {
        let text = "[retention]\nmax_age = 3600\nmax_bytes = 1000\nclaim_age = 172800\n";
        let settings = toml::from_str::<Config>(text).unwrap().settings().unwrap();
        let hours = |n: u64| Duration::from_secs(n * 3600);
        let expected = Retention {
            max_age: hours(1),
            max_bytes: Some(1000),
            claim_age: hours(48),
            ..Retention::default()
        };
        assert_eq!(settings.retention, expected);
        let untouched = toml::from_str::<Config>("").unwrap().settings().unwrap();
        assert_eq!(untouched.retention, Retention::default());
    }

    #[test]
    fn claims_may_not_be_kept_for_less_than_the_promised_day() {
        let config = |seconds: f64| {
            toml::from_str::<Config>(&format!("[retention]\nclaim_age = {seconds:?}\n")).unwrap()
        };
        assert!(config(86_400.0).settings().is_ok());
        let failure = format!("{:?}", config(86_399.5).settings().unwrap_err());
        for part in ["retention.claim_age", "86399.5 s", "24 h", "second run", "max_age"] {
            assert!(failure.contains(part), "{part} in {failure}");
        }
    }

    /// What serde says of an unknown key names all known ones.
    fn keys(table: &str) -> Vec<String> {
        let error = toml::from_str::<Config>(&format!("{table}\nno_such_key = 1\n")).unwrap_err();
        error.message().split('`').skip(3).step_by(2).map(str::to_owned).collect()
    }

    const PAGE: &str = include_str!("../../../../../docs/configuration.md");

    /// The row of the page's table that begins with this key.
    fn row(section: &str, key: &str) -> String {
        let rows = PAGE.split(&format!("## `{section}`")).nth(1).and_then(|rest| rest.split("\n## ").next());
        let start = format!("| `{key}` |");
        let found = rows.and_then(|rows| rows.lines().find(|line| line.starts_with(&start)));
        found.unwrap_or_else(|| panic!("docs/configuration.md: {section} has no row for {key}")).to_owned()
    }

    /// The example with what is commented out taken in: `#key = …` and `#[table]`, but not `# prose`.
    fn whole_example() -> toml::Table {
        let is_commented = |rest: &str| rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[');
        let uncomment =
            |line: &'static str| line.strip_prefix('#').filter(|r| is_commented(r)).unwrap_or(line);
        let text = EXAMPLE.lines().map(uncomment).collect::<Vec<_>>().join("\n");
        let config: Config = toml::from_str(&text).unwrap();
        config.settings().unwrap();
        text.parse().unwrap()
    }

    fn in_example(section: &str, key: &str) -> Option<toml::Value> {
        let whole = toml::Value::Table(whole_example());
        let table = match section {
            "capstan.toml" => Some(&whole),
            "[[tenants]]" => whole.get("tenants").and_then(|tenants| tenants.get(0)),
            _ => whole.get(section.trim_matches(['[', ']'])),
        };
        table?.get(key).cloned()
    }

    #[test]
    fn the_example_as_it_stands_changes_nothing() {
        let settings = |text: &str| toml::from_str::<Config>(text).unwrap().settings().unwrap();
        assert_eq!(format!("{:?}", settings(EXAMPLE)), format!("{:?}", settings("")));
    }

    #[test]
    fn every_key_stands_in_the_documentation_and_in_the_example() {
        let sections = ["capstan.toml", "[[tenants]]", "[limits]", "[timeouts]", "[retention]"];
        for section in sections {
            let keys = keys(if section == "capstan.toml" { "" } else { section });
            assert!(keys.len() > 1, "{section}: {keys:?}");
            for key in keys {
                row(section, &key);
                assert!(in_example(section, &key).is_some(), "example.toml: {section} lacks {key}");
            }
        }
    }

    #[test]
    fn the_documentations_example_is_a_valid_configuration() {
        let example = PAGE.split("```toml").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let settings = toml::from_str::<Config>(example).unwrap().settings().unwrap();
        assert_eq!((settings.tenants.current().len(), settings.limits.requests_per_minute), (1, 120));
    }

    #[test]
    fn the_examples_of_agents_are_valid_configurations() {
        let page = include_str!("../../../../../docs/agents.md");
        let examples = page.split("```toml").skip(1).filter_map(|rest| rest.split("```").next());
        let mut count = 0;
        for example in examples {
            let config = toml::from_str::<Config>(example).unwrap();
            config.settings().unwrap();
            count += config.agents().unwrap().len();
        }
        assert!(count >= 6, "{count}");
    }

    #[test]
    fn every_default_stands_in_the_documentation_and_in_the_example() {
        let tables = [
            ("[limits]", LimitsConfig::values(&Limits::default())),
            ("[timeouts]", TimeoutsConfig::values(&Timeouts::default())),
            ("[retention]", RetentionConfig::values(&Retention::default())),
        ];
        for (section, defaults) in tables {
            for (key, value) in defaults {
                assert!(row(section, key).contains(&format!("| {value} |")), "{section} {key}: {value}");
                if value != "none" {
                    assert_eq!(in_example(section, key).unwrap().to_string(), value, "{section} {key}");
                }
            }
        }
        let config = Config::default();
        for (key, value) in
            [("listen", config.listen), ("journal", config.journal), ("durability", config.durability)]
        {
            assert!(row("capstan.toml", key).contains(&format!("| `\"{value}\"` |")), "{key}: {value}");
            assert_eq!(in_example("capstan.toml", key).unwrap().as_str(), Some(value.as_str()), "{key}");
        }
    }

    #[test]
    fn a_key_in_plain_text_is_refused_and_not_repeated() {
        let wrong = "[[tenants]]\nname = \"a\"\nkeys = [\"sk_secret\"]\n";
        let error = toml::from_str::<Config>(wrong).unwrap_err();
        let text = format!("{:?}", explain(Path::new("capstan.toml"), wrong, &error));
        assert!(text.contains("sha256:") && text.contains("line 3"), "{text}");
        assert!(!text.contains("sk_secret"), "{text}");
    }

    #[test]
    fn a_tenant_may_have_a_retention_of_its_own_and_need_not_be_stored() {
        let keys = format!("keys = [\"sha256:{}\"]\n", "0".repeat(64));
        let text = format!(
            "[[tenants]]\nname = \"a\"\n{keys}no_store = true\nretention = {{ max_age = 60, max_bytes = 5 }}\n"
        );
        let tenants = toml::from_str::<Config>(&text).unwrap().tenants().unwrap();
        let own = tenants.first().map(|t| (t.no_store, t.max_age, t.max_bytes));
        assert_eq!(own, Some((true, Some(Duration::from_secs(60)), Some(5))));
        assert!(toml::from_str::<Config>(&text.replace("max_age", "claim_age")).is_err());
    }

    #[test]
    fn one_tenant_is_one_table() {
        let table = format!("[[tenants]]\nname = \"a\"\nkeys = [\"sha256:{}\"]\n", "0".repeat(64));
        let tenants =
            |text: &str| toml::from_str::<Config>(text).unwrap().tenants().map(|tenants| tenants.len());
        assert_eq!(tenants(&table).unwrap(), 1);
        assert!(format!("{:?}", tenants(&table.repeat(2)).unwrap_err()).contains("two tables"));
        assert!(tenants("[[tenants]]\nname = \"a\"\nkeys = []\n").is_err());
    }
}

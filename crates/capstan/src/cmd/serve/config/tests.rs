//! Configuration files, and that the example and the documentation agree with the code.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use capstan_gateway::{Limits, Retention, Right, Scope, Scopes, Timeouts};
use capstan_protocol::Exposure;
use capstan_upstream::Breakers;

use super::overlay::{LimitsConfig, RetentionConfig, TimeoutsConfig};
use super::{Config, EXAMPLE, explain};

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

/// The known keys, from serde's error for an unknown one.
fn keys(table: &str) -> Vec<String> {
    let error = toml::from_str::<Config>(&format!("{table}\nno_such_key = 1\n")).unwrap_err();
    error.message().split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

const PAGE: &str = include_str!("../../../../../../docs/configuration.md");

/// The row for this key in the page's section.
fn row(section: &str, key: &str) -> String {
    row_in(section_of_page(section), key)
        .unwrap_or_else(|| panic!("docs/configuration.md: {section} has no row for {key}"))
        .to_owned()
}

fn section_of_page(section: &str) -> &'static str {
    let rest = PAGE.split(&format!("## `{section}`")).nth(1).unwrap_or_default();
    rest.split("\n## ").next().unwrap_or_default()
}

fn row_in(rows: &'static str, key: &str) -> Option<&'static str> {
    let start = format!("| `{key}` |");
    rows.lines().find(|line| line.starts_with(&start))
}

/// Whether the page lists this key under "Advanced limits".
fn is_advanced(section: &str, key: &str) -> bool {
    let advanced = section_of_page(section).split("### Advanced limits").nth(1);
    advanced.is_some_and(|rows| row_in(rows, key).is_some())
}

/// Whether the example's comment on advanced limits names this key.
fn is_named_as_advanced(key: &str) -> bool {
    let comment =
        EXAMPLE.split("# Advanced limits").nth(1).and_then(|rest| rest.split("\n\n").next());
    let is_word = |c: char| c.is_ascii_lowercase() || c == '_';
    comment.is_some_and(|names| names.split(|c: char| !is_word(c)).any(|name| name == key))
}

/// The example with its commented keys and tables (`#key = …`, `#[table]`), but without its prose.
fn whole_example() -> toml::Table {
    let is_commented = |rest: &str| rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[');
    let uncomment =
        |line: &'static str| line.strip_prefix('#').filter(|r| is_commented(r)).unwrap_or(line);
    let text = EXAMPLE.lines().map(uncomment).collect::<Vec<_>>().join("\n");
    // A webhook's secret is in the environment, where a test has none.
    let without_secret =
        text.lines().filter(|line| !line.starts_with("webhook")).collect::<Vec<_>>().join("\n");
    let config: Config = toml::from_str(&without_secret).unwrap();
    config.settings().unwrap();
    text.parse().unwrap()
}

fn in_example(section: &str, key: &str) -> Option<toml::Value> {
    let whole = toml::Value::Table(whole_example());
    let table = match section {
        "capstan.toml" => Some(&whole),
        "[[tenants]]" => whole.get("tenants").and_then(|tenants| tenants.get(0)),
        "[[operators]]" => whole.get("operators").and_then(|operators| operators.get(0)),
        "[auth.jwt]" => whole.get("auth").and_then(|auth| auth.get("jwt")),
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
    let sections = [
        "capstan.toml",
        "[[tenants]]",
        "[auth.jwt]",
        "[[operators]]",
        "[limits]",
        "[timeouts]",
        "[retention]",
        "[cluster]",
        "[console]",
    ];
    for section in sections {
        let keys = keys(if section == "capstan.toml" { "" } else { section });
        assert!(keys.len() > 1, "{section}: {keys:?}");
        for key in keys {
            row(section, &key);
            let is_set = in_example(section, &key).is_some();
            if is_advanced(section, &key) {
                assert!(!is_set && is_named_as_advanced(&key), "example.toml: {section} {key}");
            } else {
                assert!(is_set, "example.toml: {section} lacks {key}");
            }
        }
    }
}

#[test]
fn the_example_shows_five_limits() {
    let limits = keys("[limits]");
    let shown = limits.iter().filter(|key| in_example("[limits]", key).is_some()).count();
    assert_eq!((shown, limits.len()), (5, 23));
}

#[test]
fn the_documentations_example_is_a_valid_configuration() {
    let example = PAGE.split("```toml").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let settings = toml::from_str::<Config>(example).unwrap().settings().unwrap();
    assert_eq!((settings.tenants.current().len(), settings.limits.requests_per_minute), (1, 120));
}

#[test]
fn the_examples_of_agents_are_valid_configurations() {
    let page = include_str!("../../../../../../docs/agents.md");
    let examples = page.split("```toml").skip(1).filter_map(|rest| rest.split("```").next());
    let mut count = 0;
    for example in examples {
        let config = toml::from_str::<Config>(example).unwrap();
        config.settings().unwrap();
        count += config.agents(&Breakers::default()).unwrap().len();
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
            assert!(
                row(section, key).contains(&format!("| {value} |")),
                "{section} {key}: {value}"
            );
            if value != "none" && !is_advanced(section, key) {
                assert_eq!(in_example(section, key).unwrap().to_string(), value, "{section} {key}");
            }
        }
    }
    let config = Config::default();
    for (key, value) in
        [("listen", config.listen), ("journal", config.journal), ("durability", config.durability)]
    {
        assert!(row("capstan.toml", key).contains(&format!("| `\"{value}\"` |")), "{key}: {value}");
        assert_eq!(
            in_example("capstan.toml", key).unwrap().as_str(),
            Some(value.as_str()),
            "{key}"
        );
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
        "[[tenants]]\nname = \"a\"\n{keys}no_store = true\nretention = {{ max_age = 60, max_bytes \
         = 5 }}\n"
    );
    let tenants = toml::from_str::<Config>(&text).unwrap().tenants().unwrap();
    let own = tenants.first().map(|t| (t.no_store, t.max_age, t.max_bytes));
    assert_eq!(own, Some((true, Some(Duration::from_secs(60)), Some(5))));
    assert!(toml::from_str::<Config>(&text.replace("max_age", "claim_age")).is_err());
}

#[test]
fn a_tenant_may_have_limits_of_tokens_of_its_own() {
    let keys = format!("keys = [\"sha256:{}\"]\n", "0".repeat(64));
    let own = "limits = { tokens_per_minute = 7, tokens_per_day = 0 }\n";
    let text = format!("[limits]\ntokens_per_day = 9\n[[tenants]]\nname = \"a\"\n{keys}{own}");
    let config = toml::from_str::<Config>(&text).unwrap();
    let settings = config.settings().unwrap();
    let tenant = settings.tenants.current();
    let tokens = tenant.first().map(|tenant| (tenant.tokens_per_minute, tenant.tokens_per_day));
    assert_eq!((tokens, settings.limits.tokens_per_day), (Some((Some(7), Some(0))), 9));
    let effective = config.effective(&settings);
    let value =
        |key: &str| effective.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
    assert_eq!(value("limits.tokens_per_day"), Some("9"));
    assert_eq!(value("tenants"), Some("a (1 key, tokens_per_minute 7, tokens_per_day 0)"));
    assert!(
        toml::from_str::<Config>(&text.replace("tokens_per_minute", "requests_per_minute"))
            .is_err()
    );
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

#[test]
fn a_key_may_do_less_than_all() {
    let hash = |digit: &str| format!("sha256:{}", digit.repeat(64));
    let text = |scopes: &str| {
        let (all, some) = (hash("0"), hash("1"));
        format!(
            "[[tenants]]\nname = \"a\"\nkeys = [\"{all}\", {{ hash = \"{some}\", scopes = \
             [{scopes}] }}]\n"
        )
    };
    let tenants = toml::from_str::<Config>(&text("\"read\", \"stop\"")).unwrap().tenants().unwrap();
    let scopes: Vec<Scopes> =
        tenants.iter().flat_map(|tenant| &tenant.keys).map(|key| key.scopes).collect();
    assert_eq!(scopes, [Scopes::ALL, [Scope::Read, Scope::Stop].into_iter().collect()]);
    for wrong in ["\"write\"", ""] {
        let error = toml::from_str::<Config>(&text(wrong)).unwrap_err();
        assert!(error.message().contains("scopes: "), "{error}");
    }
}

#[test]
fn an_operator_has_a_key_of_its_own_and_something_to_do() {
    let key = |digit: &str| format!("keys = [\"sha256:{}\"]\n", digit.repeat(64));
    let operator = |name: &str, digit: &str, may: &str| {
        format!(
            "[[operators]]\nname = \"{name}\"\n{}tenants = [\"*\"]\nmay = [{may}]\n",
            key(digit)
        )
    };
    let operators = |text: &str| toml::from_str::<Config>(text).unwrap().operators();
    let one = operators(&operator("ada", "1", "\"look\", \"act\"")).unwrap();
    let may = one.first().map(|ada| Right::ALL.map(|right| ada.may_to(right, "any")));
    assert_eq!(may, Some([true, false, true]));
    let tenant = format!("[[tenants]]\nname = \"a\"\n{}", key("2"));
    for wrong in [
        operator("ada", "1", ""),
        operator("ada", "1", "\"look\"").repeat(2),
        operator("ada", "1", "\"look\"") + &operator("bob", "1", "\"look\""),
        tenant + &operator("ada", "2", "\"look\""),
    ] {
        assert!(operators(&wrong).is_err(), "{wrong}");
    }
    assert!(toml::from_str::<Config>(&operator("ada", "1", "\"start\"")).is_err());
}

#[test]
fn tokens_have_an_audience_and_tenants_and_clocks_that_agree() {
    let settings = |more: &str| {
        let text = format!("[auth.jwt]\nissuer = \"i\"\naudience = [\"a\", \"b\"]\n{more}");
        toml::from_str::<Config>(&text).unwrap().settings()
    };
    let any = settings("tenants = \"any\"\n").unwrap();
    assert!(!any.is_local() && any.jwt.is_some_and(|jwt| jwt.takes_any_tenant()));
    let no_tenants = format!("{:?}", settings("").unwrap_err());
    assert!(no_tenants.contains("no tenants") && no_tenants.contains("any"), "{no_tenants}");
    assert!(
        settings("[[tenants]]\nname = \"acme\"\n").is_ok(),
        "a tenant needs no key beside tokens"
    );
    assert!(settings("tenants = \"any\"\nleeway = 301\n").is_err());
    assert!(settings("tenants = \"any\"\ntenant_claim = \"\"\n").is_err());
    let nobody = "[auth.jwt]\nissuer = \"i\"\naudience = []\ntenants = \"any\"\n";
    assert!(toml::from_str::<Config>(nobody).unwrap().settings().is_err());
}

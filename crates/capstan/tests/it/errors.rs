//! `capstan errors` as its users meet it.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use capstan_protocol::fault::Entry;
use capstan_protocol::{AguiErrorCode, CATALOGUE};
use serde_json::Value;

fn errors(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_capstan")).arg("errors").args(args).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_table_has_every_kind_and_no_colours_in_a_pipe() {
    let table = text(&errors(&[]));
    for entry in CATALOGUE {
        assert!(table.contains(entry.code), "{}", entry.code);
    }
    assert!(!table.contains('\u{1b}'));
}

#[test]
fn any_spelling_explains_the_kind() {
    for spelling in [
        "RATE_LIMITED",
        "rate_limited",
        "rate_limit_exceeded",
        "rate-limited",
        "/errors/rate-limited",
        "rate_limit",
        "429",
    ] {
        let explained = text(&errors(&[spelling]));
        for part in [
            "rate_limit_exceeded",
            "RATE_LIMITED",
            "429",
            "TRANSIENT",
            "after 60 s",
            "RUN_ERROR",
            "user_error",
        ] {
            if spelling == "rate_limit" {
                continue;
            }
            assert!(explained.contains(part), "{spelling}: {part} in\n{explained}");
        }
    }
    assert!(
        text(&errors(&["rate_limit"])).contains("upstream_error"),
        "an assistant's rate limit is the upstream's"
    );
}

#[test]
fn an_agui_code_names_the_finer_kinds_that_it_covers() {
    let explained = text(&errors(&["RATE_LIMITED"]));
    assert!(
        explained.contains("also covers session_limit_exceeded, message_limit_exceeded"),
        "{explained}"
    );
}

#[test]
fn every_code_of_every_dialect_is_explained() {
    let spellings =
        |entry: &Entry| [entry.code.to_owned(), entry.slug.to_owned(), entry.status.to_string()];
    // Many share a status.
    let spellings: BTreeSet<String> = CATALOGUE.iter().flat_map(spellings).collect();
    for spelling in spellings {
        assert!(errors(&[&spelling]).status.success(), "{spelling}");
    }
    for code in AguiErrorCode::ALL {
        assert!(text(&errors(&[code.as_str()])).contains(code.as_str()));
    }
}

#[test]
fn json_is_for_machines() {
    let all: Vec<Value> = serde_json::from_slice(&errors(&["--json"]).stdout).unwrap();
    assert_eq!(all.len(), CATALOGUE.len());
    assert_eq!(all[0]["code"], "rate_limit_exceeded");
    let one: Vec<Value> = serde_json::from_slice(&errors(&["timeout", "--json"]).stdout).unwrap();
    assert_eq!(one[0]["dialects"]["run_error"]["code"], "TIMEOUT");
    assert_eq!(one[0]["dialects"]["problem"]["status"], 504);
    assert_eq!(one[0]["dialects"]["stream_error"]["severity"], "TRANSIENT");
}

#[test]
fn an_unknown_code_gets_the_nearest_one_suggested() {
    let output = errors(&["rate_limt_exceeded"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("did you mean rate_limit_exceeded?"), "{message}");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&errors(&["418"]).stderr).contains("known are 400, 401"));
}

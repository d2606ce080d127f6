//! `console`: what it costs that somebody looks on.
//!
//! The same server and the same load, by turns with nobody and with a console open beside it: a feed that is read, and once
//! a second what a page asks for every five. No figure is asserted; machines differ.

#[path = "../../crates/capstan-journal/tests/common/filled.rs"]
mod filled;
mod load;
mod onlooker;
mod pages;

use std::io;

use serde_json::json;

use crate::environment;
use crate::gateway::process;

const CRATES: &[&str] = &["axum", "hyper", "tokio", "serde_json"];

/// All parts, or those that are named.
pub fn run(parts: &[String]) -> io::Result<()> {
    process::allow_many_files();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let is_wanted = |part: &str| parts.is_empty() || parts.iter().any(|name| name == part);
    let mut results = json!({ "bench": "console", "environment": environment::describe(CRATES) });
    runtime.block_on(async {
        if is_wanted("load") {
            results["load"] = load::run().await?;
            println!();
        }
        if is_wanted("pages") {
            results["pages"] = pages::run().await?;
        }
        io::Result::Ok(())
    })?;
    if parts.is_empty() { environment::save("console", &results) } else { Ok(()) }
}

//! The text of `capstan --version`; `-V` prints the number alone.

use std::sync::LazyLock;

use crate::cmd::has_page;

/// The version, commit, target and features.
pub(crate) fn long() -> &'static str {
    static LONG: LazyLock<String> = LazyLock::new(written);
    &LONG
}

fn written() -> String {
    let commit =
        option_env!("CAPSTAN_COMMIT").map_or_else(String::new, |commit| format!("{commit}, "));
    let page = if has_page() { "playground" } else { "none; web/playground/dist was not built" };
    let faces = capstan_gateway::faces().join(", ");
    format!(
        "{} ({commit}{})\npage: {page}\nfaces: {faces}\njournals: memory, disk, postgres\n\
         traces: OpenTelemetry",
        env!("CARGO_PKG_VERSION"),
        env!("CAPSTAN_PLATFORM"),
    )
}

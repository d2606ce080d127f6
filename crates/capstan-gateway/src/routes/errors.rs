//! `/v1/errors` for machines, `/errors/<slug>` for people.

use axum::Json;
use axum::extract::Path;
use axum::response::Html;
use capstan_protocol::fault::Entry;
use capstan_protocol::{CATALOGUE, FaultKind};

use crate::refusal::Refusal;

/// The whole catalogue.
pub(crate) async fn list() -> Json<&'static [Entry]> {
    Json(CATALOGUE)
}

/// One kind of fault, as a page. All of its text is ours, so nothing needs escaping.
pub(crate) async fn page(Path(slug): Path<String>) -> Result<Html<String>, Refusal> {
    let entry = CATALOGUE.iter().find(|entry| entry.slug == slug).ok_or(FaultKind::RouteNotFound)?;
    let retry = match (entry.retryable, entry.retry_after) {
        (true, Some(seconds)) => format!("yes, after {seconds} s"),
        (true, None) => "yes".to_owned(),
        (false, _) => "no".to_owned(),
    };
    Ok(Html(format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
         <title>{title} – Capstan</title><style>body{{font:16px/1.5 system-ui;max-width:42rem;margin:3rem auto;padding:0 1rem}}\
         code{{background:#8882;padding:.1em .3em;border-radius:.2em}}dt{{font-weight:600}}</style>\
         <h1>{title}</h1><p>{meaning}</p><p><strong>What to do:</strong> {remedy}</p>\
         <dl><dt>Code</dt><dd><code>{code}</code></dd><dt>AG-UI code</dt><dd><code>{agui}</code></dd>\
         <dt>HTTP status</dt><dd>{status}</dd><dt>Severity</dt><dd>{severity}</dd><dt>Retry</dt><dd>{retry}</dd></dl>",
        title = entry.title,
        meaning = entry.meaning,
        remedy = entry.remedy,
        code = entry.code,
        agui = entry.agui,
        status = entry.status,
        severity = entry.severity,
    )))
}

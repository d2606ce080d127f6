//! The page at `/`, from files that the gateway's builder got. Without files, a plain page that
//! says how to build them.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use capstan_protocol::FaultKind;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sha2::{Digest as _, Sha256};

use super::health;
use crate::asset::Asset;
use crate::refusal::Refusal;
use capstan_console::Console;
use capstan_kit::openapi::{self, Answer, Content, Row, Tag};

/// The files of the pages.
#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) assets: &'static [Asset],
    pub(crate) console: Console,
}

pub(crate) const INDEX: Row = Row {
    tag: &Tag::SERVER,
    summary: "The playground",
    says: "A page to talk to the agents, or a plain one where the build holds none.",
    headers: &[&openapi::KNOWN_TAG],
    answers: &[
        Answer {
            headers: &[&openapi::ETAG],
            ..Answer::ok("The page.", &[Content::Text("text/html")])
        },
        Answer { status: 304, ..Answer::ok("It has not changed.", &[]) },
    ],
    ..Row::NONE
};

pub(crate) const CONSOLE: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "The console",
    says: "The page for operators, or a plain one if the build has none.",
    headers: &[&openapi::KNOWN_TAG],
    answers: INDEX.answers,
    faults: &[FaultKind::RouteNotFound],
    ..Row::NONE
};

pub(crate) const CONSOLE_VIEW: Row = Row {
    summary: "A view of the console",
    says: "The same page, which reads its own address: a view can be linked to.",
    places: &[&openapi::VIEW],
    ..CONSOLE
};

pub(crate) const ASSET: Row = Row {
    tag: &Tag::SERVER,
    summary: "A file of the playground",
    says: "Its name contains a hash of its content, so clients may cache it forever.",
    places: &[&openapi::FILE],
    answers: &[Answer::ok(
        "The file.",
        &[
            Content::Text("text/javascript"),
            Content::Text("text/css"),
            Content::Text("image/svg+xml"),
            Content::Text("image/png"),
            Content::Text("font/woff2"),
            Content::Text("application/octet-stream"),
        ],
    )],
    faults: &[FaultKind::RouteNotFound],
    ..Row::NONE
};

/// Allows nothing from other origins and nothing inline, so that an agent's text cannot become
/// script, style or a request.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' \
 data:; media-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'";

/// `/`.
pub(crate) async fn index(State(pages): State<Pages>, headers: HeaderMap) -> Response {
    find(&pages, "index.html").map_or_else(health::page, |asset| document(&pages, asset, &headers))
}

/// `/console` and all paths below it. The page reads its own address.
pub(crate) async fn console(
    State(pages): State<Pages>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    if !pages.console.is_on() {
        return Err(FaultKind::RouteNotFound.into());
    }
    let page = find(&pages, "console.html");
    Ok(page.map_or_else(health::no_console, |asset| document(&pages, asset, &headers)))
}

fn document(pages: &Pages, asset: Asset, headers: &HeaderMap) -> Response {
    let tag = tag(asset.bytes);
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| *known == tag) {
        return StatusCode::NOT_MODIFIED.into_response();
    }
    let mut response = file(pages, asset, headers, "no-cache");
    response.headers_mut().insert(header::ETAG, tag);
    response
}

/// `/assets/<name>`.
pub(crate) async fn asset(
    State(pages): State<Pages>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let asset = find(&pages, &format!("assets/{name}")).ok_or(FaultKind::RouteNotFound)?;
    Ok(file(&pages, asset, &headers, "public, max-age=31536000, immutable"))
}

fn find(pages: &Pages, path: &str) -> Option<Asset> {
    pages.assets.iter().find(|asset| asset.path == path).copied()
}

/// The file, compressed if the browser accepts that and a compressed version exists.
fn file(pages: &Pages, asset: Asset, asked: &HeaderMap, caching: &'static str) -> Response {
    let twin = find(pages, &format!("{}.gz", asset.path)).filter(|_| takes_gzip(asked));
    let fixed = |value: &'static str| HeaderValue::from_static(value);
    let headers = [
        (header::CONTENT_TYPE, fixed(content_type(asset.path))),
        (header::CACHE_CONTROL, fixed(caching)),
        (header::CONTENT_SECURITY_POLICY, fixed(POLICY)),
        (header::REFERRER_POLICY, fixed("no-referrer")),
    ];
    let mut response = (headers, twin.map_or(asset.bytes, |twin| twin.bytes)).into_response();
    let headers = response.headers_mut();
    headers.append(header::VARY, fixed("accept-encoding"));
    if twin.is_some() {
        headers.insert(header::CONTENT_ENCODING, fixed("gzip"));
    }
    response
}

/// Whether `Accept-Encoding` contains gzip, other than to exclude it.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let lists =
        headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let is_refused =
            |weight: &str| weight.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0_f32));
        is_gzip && !parts.any(is_refused)
    })
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("woff2") => "font/woff2",
        Some(_) | None => "application/octet-stream",
    }
}

fn tag(bytes: &[u8]) -> HeaderValue {
    let digest: String =
        Sha256::digest(bytes).iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::from_str(&format!("\"{digest}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

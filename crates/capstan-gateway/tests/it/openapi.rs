//! `/openapi.json` and `/docs`: they list what the router serves, their examples work, and they
//! need nothing else.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{client, demo, journal, problem, start};
use capstan_gateway::{Gateway, KeyHash, Service, Settings, Tenant, openapi};
use capstan_protocol::CATALOGUE;
use reqwest::Method;
use serde_json::Value;

/// The document's routes: methods by path.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let document = openapi();
    let paths = document["paths"].as_object().unwrap().iter();
    paths
        .map(|(path, methods)| {
            (path.clone(), methods.as_object().unwrap().keys().map(|m| m.to_uppercase()).collect())
        })
        .collect()
}

fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths.flat_map(|(path, methods)| {
        methods
            .as_object()
            .unwrap()
            .iter()
            .map(move |(method, told)| (path.as_str(), method.as_str(), told))
    })
}

fn with_tenants() -> Settings {
    Settings {
        tenants: vec![Tenant::new("acme", vec![KeyHash::of("sk_test")])].into(),
        ..Settings::default()
    }
}

/// axum tells its paths only where it is printed for debugging.
#[tokio::test]
async fn the_document_lists_exactly_the_paths_of_the_router() {
    let service = Service::start(Gateway::new(journal()).agent("demo", demo())).await.unwrap();
    let printed = format!("{:?}", service.router());
    let served: BTreeSet<String> = printed
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|text| text.starts_with('/'))
        .map(str::to_owned)
        .collect();
    // Its own fallback is one of them, and a path with a slash behind it is the one without.
    let served: BTreeSet<String> = served
        .into_iter()
        .filter(|path| !path.contains("fallback") && (path == "/" || !path.ends_with('/')))
        .map(|path| path.replace("{*", "{"))
        .collect();
    assert_eq!(served, documented().into_keys().collect());
}

/// What a path allows, it says itself.
#[tokio::test]
async fn the_document_lists_exactly_the_methods_of_each_path() {
    let server = start(Settings::default()).await;
    for (path, methods) in documented() {
        let url = format!("{}{}", server.url, path.replace(['{', '}'], ""));
        let refused = client().request(Method::OPTIONS, url).send().await.unwrap();
        let allowed = refused.headers()["allow"].to_str().unwrap().to_owned();
        // HEAD comes with GET.
        let allowed: BTreeSet<String> =
            allowed.split(',').filter(|m| *m != "HEAD").map(str::to_owned).collect();
        assert_eq!(allowed, methods, "{path}");
        assert_eq!(refused.status(), 405, "{path}");
        // Faces may have words of their own.
        if refused.headers()["content-type"] == "application/problem+json" {
            assert_eq!(problem(refused).await.code, "method_not_allowed");
        }
    }
}

#[tokio::test]
async fn every_example_of_the_document_is_a_request_that_works() {
    let server = start(Settings::default()).await;
    let document = openapi();
    let mut tried = 0;
    // What needs a task of one's own first is tried where tasks are.
    let whole = |path: &str| !path.replace("{name}", "").contains('{');
    for (path, method, told) in operations(&document).filter(|(path, ..)| whole(path)) {
        for (name, example) in told["requestBody"]["content"]["application/json"]["examples"]
            .as_object()
            .into_iter()
            .flatten()
        {
            let url = format!("{}{}", server.url, path.replace("{name}", "demo"));
            // A key of its own: the same one under another path is a conflict.
            let mut body = example["value"].clone();
            for key in ["request_id", "runId"] {
                if body.get(key).is_some() {
                    body[key] = uuid::Uuid::now_v7().to_string().into();
                }
            }
            for at in ["/message/messageId", "/params/message/messageId"] {
                if let Some(id) = body.pointer_mut(at) {
                    *id = uuid::Uuid::now_v7().to_string().into();
                }
            }
            let answer = client()
                .request(method.to_uppercase().parse().unwrap(), url)
                .json(&body)
                .send()
                .await
                .unwrap();
            assert_eq!(answer.status(), 200, "{path} {name}");
            let headers = told["responses"]["200"]["headers"].as_object().unwrap();
            let tells_of_run = headers.keys().any(|name| name.eq_ignore_ascii_case("x-stream-id"));
            let names_run = answer.headers().contains_key("x-stream-id");
            assert!(names_run || !tells_of_run, "{path} {name}");
            tried += 1;
        }
    }
    assert!(tried >= 8, "{tried}");
}

/// The codes that a status may carry are those of the catalogue's rows with that status.
#[test]
fn every_code_of_the_document_is_a_row_of_the_catalogue() {
    let document = openapi();
    for (path, method, told) in operations(&document) {
        for (status, response) in
            told["responses"].as_object().unwrap().iter().filter(|(s, _)| s.as_str() >= "400")
        {
            // Faces may have words of their own.
            let Some(problem) = response["content"].get("application/problem+json") else {
                assert!(response["content"].is_object(), "{method} {path}");
                continue;
            };
            let code = &problem["schema"]["properties"]["code"];
            let codes = code["enum"].as_array().or(code["examples"].as_array()).unwrap();
            assert!(!codes.is_empty());
            for code in codes {
                let row = CATALOGUE.iter().find(|row| code == row.code).unwrap();
                assert_eq!(row.status.to_string(), *status, "{method} {path} {code}");
            }
        }
        let says = told["description"].as_str().unwrap();
        assert!(
            says.len() > 10 && !told["summary"].as_str().unwrap().is_empty(),
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn the_document_and_its_page_need_no_key() {
    let server = crate::common::start_on(journal(), with_tenants()).await;
    let served: Value = server.get("/openapi.json").await.json().await.unwrap();
    assert_eq!(served, openapi());
    assert_eq!(served["openapi"], "3.1.1");
    for (path, kind) in
        [("/docs", "text/html; charset=utf-8"), ("/docs/style.css", "text/css; charset=utf-8")]
    {
        let response = server.get(path).await;
        assert_eq!(
            (response.status().as_u16(), response.headers()["content-type"].to_str().unwrap()),
            (200, kind)
        );
    }
    assert_eq!(server.get("/v1/streams").await.status(), 401);
}

#[tokio::test]
async fn every_page_of_the_catalogue_shows_its_text_as_it_is() {
    let server = start(Settings::default()).await;
    for entry in capstan_protocol::CATALOGUE {
        let text = server.get(&format!("/errors/{}", entry.slug)).await.text().await.unwrap();
        let shown = text
            .replace("<code>", "`")
            .replace("</code>", "`")
            .replace("&lt;", "<")
            .replace("&gt;", ">");
        assert!(shown.contains(entry.remedy), "{}", entry.slug);
        assert!(!text.contains("<key>"), "{}", entry.slug);
    }
}

#[tokio::test]
async fn the_pages_hold_nothing_inline_and_nothing_from_elsewhere() {
    let server = start(Settings::default()).await;
    for path in ["/", "/docs", "/errors/rate-limited"] {
        let response = server.get(path).await;
        let policy = response.headers()["content-security-policy"].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'; style-src 'self'")
                && !policy.contains("unsafe"),
            "{policy}"
        );
        let text = response.text().await.unwrap();
        for forbidden in ["<script", "<style", " style=", " on", "src="] {
            let tags: String = text
                .split('<')
                .skip(1)
                .filter_map(|tag| tag.split('>').next())
                .map(|t| format!("<{t}>"))
                .collect();
            assert!(!tags.contains(forbidden), "{path} holds {forbidden:?}");
        }
    }
}

#[tokio::test]
async fn the_page_documents_every_route_and_links_every_code() {
    let server = start(Settings::default()).await;
    let page = server.get("/docs").await.text().await.unwrap();
    for (path, method, told) in operations(&openapi()) {
        let id = told["operationId"].as_str().unwrap();
        assert!(page.contains(&format!("id={id}>")), "{method} {path}");
        assert!(
            page.contains(&format!("{}</span> <code>{path}</code>", method.to_uppercase())),
            "{method} {path}"
        );
    }
    for row in CATALOGUE {
        assert!(page.contains(&format!("href=\"{}\"", row.problem_type())), "{}", row.code);
    }
    // Nothing points nowhere.
    for target in page.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(
            page.contains(&format!("id={target}>")) || page.contains(&format!("id=\"{target}\">")),
            "{target}"
        );
    }
}

/// The head of GET, and nothing else; a stream that is only asked for its head is not held open.
#[tokio::test]
async fn routes_with_get_answer_head() {
    let server = start(Settings::default()).await;
    let stream = crate::common::stream_of(&server.post(&crate::common::ask("hello")).await);
    for path in
        ["/docs", "/openapi.json", "/v1/streams", "/health", &format!("/v1/streams/{stream}")]
    {
        let url = format!("{}{path}", server.url);
        let (head, get) =
            (client().head(&url).send().await.unwrap(), client().get(&url).send().await.unwrap());
        assert_eq!(
            (head.status(), &head.headers()["content-type"]),
            (get.status(), &get.headers()["content-type"]),
            "{path}"
        );
        assert!(head.bytes().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_parameter_that_cannot_be_read_is_named() {
    let server = start(Settings::default()).await;
    for (path, named) in [
        ("/v1/streams?limit=many", "limit: "),
        ("/v1/streams?before=x", "before: "),
        ("/v1/streams?limit=1&limit=2", "query: duplicate field `limit`"),
        ("/v1/ag-ui", "query: missing field `runId`"),
        ("/v1/sessions/%FF", "path: not UTF-8"),
    ] {
        let refused = problem(server.get(path).await).await;
        assert_eq!((refused.status, refused.code.as_str()), (400, "invalid_request"), "{path}");
        let detail = refused.detail.unwrap();
        assert!(detail.starts_with(named), "{path}: {detail}");
    }
}

/// Bytes as they are: what is sent, and all that comes back.
async fn raw(server: &crate::common::Server, request: &[u8]) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut socket =
        tokio::net::TcpStream::connect(server.url.trim_start_matches("http://")).await.unwrap();
    socket.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn an_announced_oversize_body_is_refused_before_it_is_sent() {
    let server = start(Settings::default()).await;
    let head = b"POST /v1/assist HTTP/1.1\r\nHost: localhost\r\nConnection: \
     close\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n";
    let answer = raw(&server, head).await;
    assert!(
        answer.starts_with("HTTP/1.1 413 ") && answer.contains("\"payload_too_large\""),
        "{answer}"
    );
}

/// The server reads on, else it would close the connection under the one who still sends.
#[tokio::test]
async fn a_slightly_oversize_body_keeps_its_connection() {
    // More than the buffers on the way hold.
    const TOO_MUCH: usize = 4 * 1024 * 1024;
    let limits = capstan_gateway::Limits { body_bytes: 1024 * 1024, ..Default::default() };
    let server = start(Settings { limits, ..Settings::default() }).await;
    let large = format!(
        "POST /v1/assist HTTP/1.1\r\nHost: localhost\r\nContent-Type: \
         application/json\r\nContent-Length: {TOO_MUCH}\r\n\r\n{}",
        " ".repeat(TOO_MUCH)
    );
    let next = "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answers = raw(&server, (large + next).as_bytes()).await;
    assert!(
        answers.starts_with("HTTP/1.1 413 ") && answers.contains("HTTP/1.1 200 OK"),
        "{answers}"
    );
}

#[tokio::test]
async fn a_second_host_does_not_get_past_the_guard() {
    let server = start(Settings::default()).await;
    let head = b"GET /v1/streams HTTP/1.1\r\nHost: localhost\r\nHost: example.org\r\nConnection: \
         close\r\n\r\n";
    let answer = raw(&server, head).await;
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("\"tenant_unauthorized\""),
        "{answer}"
    );
}

#[test]
fn a_parameter_of_an_address_is_required_only_where_nothing_works_without_it() {
    let document = openapi();
    let named = |told: &Value| {
        let parameters = told["parameters"].as_array().cloned().unwrap_or_default();
        let required =
            parameters.into_iter().filter(|p| p["in"] == "query" && p["required"] == true);
        required.map(|p| p["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let required: BTreeSet<String> =
        operations(&document).flat_map(|(_, _, told)| named(told)).collect();
    assert_eq!(required.iter().collect::<Vec<_>>(), ["q", "runId"]);
}

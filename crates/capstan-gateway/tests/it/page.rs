//! What browsers get: the page that was handed in, under a strict policy, or a plain one; and the
//! list of agents.

use crate::common::{client, journal, serve_gateway, start};
use capstan_demo::Demo;
use capstan_gateway::{Asset, Gateway, KeyHash, Settings, Tenant};
use serde_json::{Value, json};

static PAGE: &[Asset] = &[
    Asset { path: "index.html", bytes: b"<!doctype html><p>hello" },
    Asset { path: "assets/index-1.js", bytes: b"alert" },
];

fn header<'a>(response: &'a reqwest::Response, name: &str) -> &'a str {
    response.headers().get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
}

#[tokio::test]
async fn without_a_page_a_plain_one_says_how_to_get_it() {
    let server = start(Settings::default()).await;
    let response = server.get("/").await;
    assert_eq!(response.status(), 200);
    let text = response.text().await.unwrap();
    assert!(text.contains("make run") && text.contains("Node"), "{text}");
    assert_eq!(server.get("/assets/index-1.js").await.status(), 404);
}

#[tokio::test]
async fn a_page_is_served_under_a_strict_policy() {
    let server = serve_gateway(Gateway::new(journal()).page(PAGE)).await;
    let response = server.get("/").await;
    let policy = header(&response, "content-security-policy");
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(header(&response, "content-type"), "text/html; charset=utf-8");
    assert_eq!(header(&response, "cache-control"), "no-cache");
    assert_eq!(response.text().await.unwrap(), "<!doctype html><p>hello");

    let asset = server.get("/assets/index-1.js").await;
    assert_eq!(header(&asset, "content-type"), "text/javascript; charset=utf-8");
    assert!(header(&asset, "cache-control").contains("immutable"));
    for path in ["/assets/nothing.js", "/assets/index.html", "/assets/..%2findex.html"] {
        assert_eq!(server.get(path).await.status(), 404, "{path}");
    }
}

#[tokio::test]
async fn a_page_that_is_known_is_not_sent_again() {
    let server = serve_gateway(Gateway::new(journal()).page(PAGE)).await;
    let first = server.get("/").await;
    let tag = header(&first, "etag").to_owned();
    let again = client().get(&server.url).header("if-none-match", tag).send().await.unwrap();
    assert_eq!((again.status().as_u16(), again.bytes().await.unwrap().len()), (304, 0));
}

#[tokio::test]
async fn the_page_needs_no_key_but_the_list_of_agents_does() {
    let keys = vec![KeyHash::of("sk_test")];
    let settings =
        Settings { tenants: vec![Tenant::new("acme", keys)].into(), ..Settings::default() };
    let gateway = ["zoe", "mia", "adam"]
        .into_iter()
        .fold(Gateway::new(journal()), |gateway, name| gateway.agent(name, Demo::new()));
    let server = serve_gateway(gateway.settings(settings).page(PAGE)).await;
    assert_eq!(server.get("/").await.status(), 200);
    assert_eq!(server.get("/assets/index-1.js").await.status(), 200);
    assert_eq!(server.get("/v1/agents").await.status(), 401);
    let url = format!("{}/v1/agents", server.url);
    let listed: Value =
        client().get(url).bearer_auth("sk_test").send().await.unwrap().json().await.unwrap();
    let names: Vec<_> =
        listed["agents"].as_array().unwrap().iter().map(|agent| agent["name"].clone()).collect();
    assert_eq!(names, ["zoe", "mia", "adam"].map(|name| json!(name)), "as they were configured");
}

static CONSOLE: &[Asset] = &[
    Asset { path: "index.html", bytes: b"<!doctype html><p>hello" },
    Asset { path: "console.html", bytes: b"<!doctype html><p>console" },
    Asset { path: "assets/index-1.js", bytes: b"alert" },
    Asset { path: "assets/index-1.js.gz", bytes: b"\x1f\x8bcompressed" },
];

#[tokio::test]
async fn every_view_of_the_console_is_one_page_and_without_it_one_is_told_how_to_get_it() {
    let server = serve_gateway(Gateway::new(journal()).page(CONSOLE)).await;
    for path in [
        "/console",
        "/console/runs",
        "/console/runs/0198b0d5?tab=frames",
        "/console/sessions/a/b%2Fc",
    ] {
        let response = server.get(path).await;
        assert_eq!(header(&response, "content-type"), "text/html; charset=utf-8", "{path}");
        assert!(
            header(&response, "content-security-policy").contains("frame-ancestors 'none'"),
            "{path}"
        );
        assert_eq!(header(&response, "cache-control"), "no-cache");
        assert_eq!(response.text().await.unwrap(), "<!doctype html><p>console", "{path}");
    }
    let server = start(Settings::default()).await;
    let plain = server.get("/console/runs").await;
    assert_eq!(plain.status(), 200);
    assert!(plain.text().await.unwrap().contains("npm run build"));
}

#[tokio::test]
async fn files_are_compressed_for_clients_that_accept_it() {
    let server = serve_gateway(Gateway::new(journal()).page(CONSOLE)).await;
    let get = async |encoding: &str| {
        let request = client().get(format!("{}/assets/index-1.js", server.url));
        request.header("accept-encoding", encoding).send().await.unwrap()
    };
    for encoding in ["gzip", "br, GZIP;q=0.5"] {
        let twin = get(encoding).await;
        assert_eq!(
            (header(&twin, "content-encoding"), header(&twin, "vary")),
            ("gzip", "accept-encoding")
        );
        assert_eq!(header(&twin, "content-type"), "text/javascript; charset=utf-8");
        assert_eq!(&twin.bytes().await.unwrap()[..], b"\x1f\x8bcompressed");
    }
    for encoding in ["br", "gzip;q=0", "identity", ""] {
        let plain = get(encoding).await;
        assert_eq!(header(&plain, "content-encoding"), "", "{encoding}");
        assert_eq!(&plain.bytes().await.unwrap()[..], b"alert", "{encoding}");
    }
}

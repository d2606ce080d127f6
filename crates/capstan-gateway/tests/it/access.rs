//! Who may ask from where, and what a page of an allowed origin can read of a refusal.

use crate::common::{all, ask, client, start};
use capstan_gateway::Settings;

#[tokio::test]
async fn a_page_of_an_allowed_origin_can_read_a_refusal() {
    let server = start(Settings::default()).await;
    let origin = "http://localhost:5173";
    for path in ["/v1/streams/x", "/nowhere"] {
        let request = client().get(format!("{}{path}", server.url)).header("origin", origin);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 404, "{path}");
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("access-control-allow-origin"), origin);
        assert!(header("access-control-expose-headers").contains("retry-after"));
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("content-type"), "application/problem+json");
        assert!(!response.bytes().await.unwrap().is_empty(), "{path}");
    }
    let refused = client().put(format!("{}/v1/assist", server.url)).send().await.unwrap();
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["allow"]),
        (405, &"POST".parse().unwrap())
    );
    server.stop().await;
}

#[tokio::test]
async fn a_preflight_names_what_a_page_may_send() {
    let server = start(Settings::default()).await;
    let preflight = |origin: &'static str| {
        let request =
            client().request(reqwest::Method::OPTIONS, format!("{}/v1/assist", server.url));
        request.header("origin", origin).header("access-control-request-method", "POST").send()
    };
    let allowed = preflight("http://127.0.0.1:3000").await.unwrap();
    assert_eq!(allowed.status(), 204);
    let listed = allowed.headers()["access-control-allow-headers"].to_str().unwrap();
    for name in [
        "authorization",
        "content-type",
        "last-event-id",
        "x-request-id",
        "x-tenant-id",
        "x-cap-accept",
    ] {
        assert!(listed.contains(name), "{name}");
    }
    assert_eq!(preflight("https://evil.example").await.unwrap().status(), 403);
    server.stop().await;
}

#[tokio::test]
async fn an_open_server_answers_to_any_host_and_still_to_no_foreign_page() {
    let server = start(Settings { open: true, ..Settings::default() }).await;
    let request = ask("/tokens 1");
    let named = server.post_with(&request, &[("host", "agents.example:8787")]).await;
    assert_eq!(all(named).await.len(), 2);
    let page = server.post_with(&request, &[("origin", "https://evil.example")]).await;
    assert!(!page.headers().contains_key("access-control-allow-origin"));
    server.stop().await;
}

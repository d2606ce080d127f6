//! Pages of other origins, and the metrics key.

use crate::common::{all, ask, client, demo, journal, start};
use axum::body::Body;
use capstan_gateway::{Gateway, KeyHash, Service, Settings, Tenant};
use http::{Method, Request, StatusCode};
use tower::ServiceExt as _;

const PAGE: &str = "https://app.example";

fn settings() -> Settings {
    let tenants = vec![Tenant::new("a", vec![KeyHash::of("key-a")])].into();
    Settings { tenants, cors_origins: vec![PAGE.into()], ..Settings::default() }
}

async fn preflight(url: &str, origin: &str) -> reqwest::Response {
    client()
        .request(Method::OPTIONS, format!("{url}/v1/assist"))
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,last-event-id")
        .send()
        .await
        .unwrap()
}

#[tokio::test]
async fn an_allowed_origin_gets_cors_headers() {
    let server = start(settings()).await;
    let response = preflight(&server.url, PAGE).await;
    assert_eq!(response.status(), 204, "a preflight carries no key");
    assert_eq!(response.headers()["access-control-allow-origin"], PAGE);
    let allowed = response.headers()["access-control-allow-headers"].to_str().unwrap();
    for name in [
        "authorization",
        "content-type",
        "last-event-id",
        "x-request-id",
        "x-tenant-id",
        "x-run-id",
        "x-cap-accept",
        "traceparent",
        "tracestate",
    ] {
        assert!(allowed.split(", ").any(|known| known == name), "{name} in {allowed}");
    }
    let methods = response.headers()["access-control-allow-methods"].to_str().unwrap();
    assert!(["GET", "POST", "DELETE"].iter().all(|method| methods.contains(method)), "{methods}");

    let run = server
        .post_with(&ask("/tokens 1"), &[("origin", PAGE), ("authorization", "Bearer key-a")])
        .await;
    assert_eq!(run.headers()["access-control-allow-origin"], PAGE);
    assert_eq!(run.headers()["vary"], "origin");
    let exposed = run.headers()["access-control-expose-headers"].to_str().unwrap();
    assert!(exposed.contains("x-stream-id") && exposed.contains("retry-after"), "{exposed}");
    all(run).await;
    let refused = server.post_with(&ask("/tokens 1"), &[("origin", PAGE)]).await;
    assert_eq!(
        refused.headers()["access-control-allow-origin"],
        PAGE,
        "a page can read why it was refused"
    );
    server.stop().await;
}

#[tokio::test]
async fn another_origin_gets_no_cors_headers() {
    let server = start(settings()).await;
    let response = preflight(&server.url, "https://evil.example").await;
    assert_ne!(response.status(), 204);
    assert!(!response.headers().contains_key("access-control-allow-origin"));
    server.stop().await;
}

#[tokio::test]
async fn metrics_are_for_this_machine_or_the_metrics_key() {
    let settings = Settings { metrics_key: Some(KeyHash::of("m")), ..settings() };
    let service =
        Service::start(Gateway::new(journal()).agent("demo", demo()).settings(settings.clone()))
            .await;
    let service = service.unwrap();
    // Mounted without a peer's address, the router takes the caller for a stranger.
    let ask = |key: Option<&str>| {
        let request = Request::get("/metrics");
        let request = match key {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        };
        service.router().oneshot(request.body(Body::empty()).unwrap())
    };
    assert_eq!(ask(None).await.unwrap().status(), StatusCode::FORBIDDEN);
    assert_eq!(
        ask(Some("key-a")).await.unwrap().status(),
        StatusCode::FORBIDDEN,
        "a tenant's key is another"
    );
    assert_eq!(ask(Some("m")).await.unwrap().status(), StatusCode::OK);
    let server = start(settings).await;
    assert_eq!(server.get("/metrics").await.status(), 200, "loopback needs none");
    server.stop().await;
    service.drain().await.unwrap();
}

//! Tickets: an EventSource cannot send a key, and a key does not belong in a URL.

use crate::common::{
    Server, all, ask, client, close_reason, disk, problem, start, start_on, stream_of,
};
use capstan_gateway::{KeyHash, Settings, Tenant};
use serde_json::Value;

const A: (&str, &str) = ("authorization", "Bearer key-a");

fn settings() -> Settings {
    let tenant = |name: &str, key: &str| Tenant::new(name, vec![KeyHash::of(key)]);
    Settings {
        tenants: vec![tenant("a", "key-a"), tenant("b", "key-b")].into(),
        ..Settings::default()
    }
}

/// A finished run of tenant a: its stream, and the ticket that came with the answer.
async fn run(server: &Server) -> (String, String) {
    let response = server.post_with(&ask("/tokens 3"), &[A]).await;
    let ticket = response.headers()["x-stream-ticket"].to_str().unwrap().to_owned();
    let stream = stream_of(&response);
    all(response).await;
    (stream, ticket)
}

async fn ticket(server: &Server, stream: &str, key: &str) -> reqwest::Response {
    client()
        .post(format!("{}/v1/streams/{stream}/ticket", server.url))
        .bearer_auth(key)
        .send()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_ticket_opens_its_stream_without_a_key() {
    let server = start(settings()).await;
    let (stream, brought) = run(&server).await;
    let asked = ticket(&server, &stream, "key-a").await;
    assert_eq!(
        (asked.status().as_u16(), &asked.headers()["cache-control"]),
        (200, &"no-store".parse().unwrap())
    );
    let asked: Value = asked.json().await.unwrap();
    let url = format!("/v1/streams/{stream}?ticket={brought}");
    for url in [url.as_str(), asked["url"].as_str().unwrap()] {
        assert_eq!(
            close_reason(&all(server.get(url).await).await).as_deref(),
            Some("completed"),
            "{url}"
        );
    }
    let expires: capstan_protocol::Timestamp =
        serde_json::from_value(asked["expires_at"].clone()).unwrap();
    let minutes =
        (expires.as_micros() - capstan_protocol::Timestamp::now().as_micros()) / 60_000_000;
    assert!((1..=10).contains(&minutes), "valid for {minutes} minutes");
    server.stop().await;
}

#[tokio::test]
async fn a_ticket_only_reads_and_only_its_stream() {
    let server = start(settings()).await;
    let ((stream, ticket), (other, _)) = (run(&server).await, run(&server).await);
    let status = |method, path: String| {
        let request = client().request(method, format!("{}{path}?ticket={ticket}", server.url));
        async { request.send().await.unwrap().status().as_u16() }
    };
    use reqwest::Method;
    assert_eq!(status(Method::GET, format!("/v1/streams/{other}")).await, 403);
    assert_eq!(status(Method::DELETE, format!("/v1/streams/{stream}")).await, 401);
    assert_eq!(status(Method::GET, "/v1/streams".into()).await, 401);
    assert_eq!(status(Method::POST, format!("/v1/streams/{stream}/ticket")).await, 401);
    let wrong = problem(server.get(&format!("/v1/streams/{stream}?ticket=1.61.00")).await).await;
    assert_eq!(wrong.code, "tenant_unauthorized");
    assert!(wrong.detail.as_ref().unwrap().contains("/ticket"), "{wrong:?}");
    server.stop().await;
}

#[tokio::test]
async fn only_the_owner_gets_a_ticket_and_only_while_it_is_a_tenant() {
    let settings = settings();
    let tenants = settings.tenants.clone();
    let server = start(settings).await;
    let (stream, brought) = run(&server).await;
    assert_eq!(ticket(&server, &stream, "key-b").await.status(), 404);
    assert_eq!(ticket(&server, "nothing", "key-a").await.status(), 404);
    let url = format!("/v1/streams/{stream}?ticket={brought}");
    tenants.replace(vec![Tenant::new("b", vec![KeyHash::of("key-b")])]);
    assert_eq!(server.get(&url).await.status(), 403, "whose tenant is gone, gets nothing");
    server.stop().await;
}

#[tokio::test]
async fn a_ticket_outlives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on(disk(folder.path()), settings()).await;
    let (stream, ticket) = run(&server).await;
    server.stop().await;
    let server = start_on(disk(folder.path()), settings()).await;
    let response = server.get(&format!("/v1/streams/{stream}?ticket={ticket}")).await;
    assert_eq!(close_reason(&all(response).await).as_deref(), Some("completed"));
    server.stop().await;
}

#[tokio::test]
async fn a_key_in_a_url_is_refused_with_the_remedy() {
    for settings in [settings(), Settings::default()] {
        let server = start(settings).await;
        for name in ["key", "api_key", "access_token"] {
            let response = server.get(&format!("/v1/streams?limit=1&{name}=key-a")).await;
            let refused = problem(response).await;
            assert_eq!((refused.status, refused.code.as_str()), (400, "invalid_request"), "{name}");
            let detail = refused.detail.unwrap();
            assert!(detail.contains("Authorization") && detail.contains("/ticket"), "{detail}");
            assert!(!detail.contains("key-a"), "{detail}");
        }
        server.stop().await;
    }
}

//! Requests that were refused: which count as faults, what is remembered of them, and in whose
//! words.

use capstan_gateway::{ConsoleSettings, ContentRule, Settings};

use crate::common::{ask, problem, start};
use crate::console::runs::limits_of_one_request;
use crate::console::{json, run_as, send, settings};

#[tokio::test]
async fn the_consoles_own_refusals_are_found_but_not_counted() {
    let server = start(settings()).await;
    for (path, key, status) in [
        ("/v1/console/me", None, 401),
        ("/v1/console/me", Some("wrong"), 403),
        ("/v1/console/nothing", Some("looker"), 404),
        ("/v1/console/runs/none", Some("looker"), 404),
    ] {
        assert_eq!(send(&server, "GET", path, key).await.status(), status, "{path}");
    }
    let health = json(&server, "/v1/console/health", Some("looker")).await;
    assert_eq!(health["faults_5m"], 0, "{health}");
    let faults = json(&server, "/v1/console/faults", Some("looker")).await;
    assert!(faults["cells"].as_array().unwrap().is_empty(), "{faults}");
    let refused = send(&server, "GET", "/v1/console/runs/none", Some("looker")).await;
    let id = refused.headers()["x-request-id"].to_str().unwrap().to_owned();
    let found = json(&server, &format!("/v1/console/find?q={id}"), Some("looker")).await;
    assert_eq!(found["refusals"][0]["status"], 404, "{found}");
    // A name that only begins alike is no question of the console's.
    assert_eq!(send(&server, "GET", "/v1/consoles", Some("key-a")).await.status(), 404);
    assert_eq!(json(&server, "/v1/console/health", Some("looker")).await["faults_5m"], 1);
}

#[tokio::test]
async fn a_refusal_in_the_console_has_its_retry_after() {
    let server = start(Settings { limits: limits_of_one_request(), ..Settings::default() }).await;
    let find = async |q: &str| json(&server, &format!("/v1/console/find?q={q}"), None).await;
    server.post(&ask("/tokens 1")).await.bytes().await.unwrap();
    let refused = server.post_with(&ask("again"), &[("x-request-id", "early")]).await;
    let told: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert_eq!(find("early").await["refusals"][0]["retry_after"], told);
    let unknown = server.get("/v1/streams/none").await;
    let id = unknown.headers()["x-request-id"].to_str().unwrap().to_owned();
    assert!(find(&id).await["refusals"][0].get("retry_after").is_none());
}

#[tokio::test]
async fn a_visitor_learns_that_the_setting_hides_content() {
    let console =
        ConsoleSettings { content: Some(ContentRule::Never), ..ConsoleSettings::default() };
    let server = start(Settings { console, ..settings() }).await;
    let stream = run_as(&server, "key-a", "/tokens 1").await;
    for key in ["master", "key-a"] {
        let refused =
            send(&server, "GET", &format!("/v1/console/runs/{stream}/frames"), Some(key)).await;
        assert_eq!(refused.status(), 403, "{key}");
        let words = problem(refused).await.detail.unwrap();
        assert!(words.contains("`console.content`") && !words.contains("right"), "{key}: {words}");
        assert_eq!(json(&server, "/v1/console/me", Some(key)).await["content"], "never");
    }
    let server = start(settings()).await;
    let stream = run_as(&server, "key-a", "/tokens 1").await;
    let refused =
        send(&server, "GET", &format!("/v1/console/runs/{stream}/frames"), Some("looker")).await;
    assert!(problem(refused).await.detail.unwrap().contains("the right `content`"));
}

//! Who sees what, who may do what, and what nobody may tell from nothing.

use capstan_gateway::{ConsoleSettings, ContentRule, Right, Settings};
use serde_json::Value;
use uuid::Uuid;

use crate::common::{Server, all, ask_in, client, problem, start, stream_of};
use crate::console::{SECRET, ids, json, operator, run, run_as, send, settings};

#[tokio::test]
async fn a_tenant_cannot_tell_anothers_run_from_none() {
    let server = start(settings()).await;
    let of_b = run_as(&server, "key-b", "/tokens 1").await;
    let of_a = run_as(&server, "key-a", "/tokens 1").await;
    let none = Uuid::now_v7().to_string();
    let same = |problem: capstan_protocol::Problem| {
        let mut value = serde_json::to_value(problem).unwrap();
        value["request_id"].take();
        value
    };
    for (method, path) in [
        ("GET", "/v1/console/runs/{}"),
        ("GET", "/v1/console/runs/{}/marks"),
        ("GET", "/v1/console/runs/{}/frames"),
        ("GET", "/v1/console/runs/{}/body"),
        ("POST", "/v1/console/runs/{}/stop"),
        ("DELETE", "/v1/console/runs/{}"),
    ] {
        for key in ["key-a", "reader-a"] {
            let other = send(&server, method, &path.replace("{}", &of_b), Some(key)).await;
            let unknown = send(&server, method, &path.replace("{}", &none), Some(key)).await;
            assert_eq!(
                (other.status(), unknown.status()),
                (404.try_into().unwrap(), 404.try_into().unwrap())
            );
            assert_eq!(same(problem(other).await), same(problem(unknown).await), "{method} {path}");
        }
        // Nor an operator who looks after the other one alone.
        let other = send(&server, method, &path.replace("{}", &of_a), Some("of-b")).await;
        let unknown = send(&server, method, &path.replace("{}", &none), Some("of-b")).await;
        assert_eq!(same(problem(other).await), same(problem(unknown).await), "{method} {path}");
    }
    let list = |key: &'static str, query: &'static str| {
        let server = &server;
        async move { ids(&json(server, &format!("/v1/console/runs{query}"), Some(key)).await) }
    };
    assert_eq!(list("key-a", "").await, std::slice::from_ref(&of_a));
    assert!(list("key-a", "?tenant=b").await.is_empty());
    assert_eq!(list("of-b", "").await, std::slice::from_ref(&of_b));
    assert_eq!(list("looker", "").await, [of_a.clone(), of_b.clone()]);
    let found = json(&server, &format!("/v1/console/find?q={of_b}"), Some("key-a")).await;
    assert!(found["hits"].as_array().unwrap().is_empty());
    let of_session = "/v1/console/sessions/b/anything";
    assert_eq!(send(&server, "GET", of_session, Some("key-a")).await.status(), 404);
    let tenants = json(&server, "/v1/console/tenants", Some("key-a")).await;
    assert_eq!(tenants["tenants"].as_array().unwrap().len(), 1);
    assert_eq!(send(&server, "GET", "/v1/console/replicas", Some("key-a")).await.status(), 404);
    // Without a key, with a wrong one, with an operator's who may not look.
    for (key, status) in [(None, 401), (Some("wrong"), 403), (Some("blind"), 403)] {
        assert_eq!(send(&server, "GET", "/v1/console/runs", key).await.status(), status, "{key:?}");
    }
    let in_url = send(&server, "GET", "/v1/console/runs?api_key=key-a", Some("key-a")).await;
    assert_eq!(in_url.status(), 400);
}

/// Every answer that an operator can get about a run and its tenant.
async fn all_answers(
    server: &Server,
    key: &str,
    tenant: &str,
    stream: &str,
    session: &str,
) -> Vec<(String, u16, String)> {
    let mut answers = Vec::new();
    for path in [
        "/v1/console/me".to_owned(),
        "/v1/console/health".to_owned(),
        "/v1/console/overview".to_owned(),
        format!("/v1/console/runs?tenant={tenant}"),
        format!("/v1/console/runs?session={session}"),
        format!("/v1/console/find?q={stream}"),
        format!("/v1/console/find?q={session}"),
        format!("/v1/console/runs/{stream}"),
        format!("/v1/console/runs/{stream}/marks"),
        format!("/v1/console/runs/{stream}/frames"),
        format!("/v1/console/runs/{stream}/frames?face=ag-ui"),
        format!("/v1/console/runs/{stream}/body"),
        format!("/v1/console/sessions/{tenant}/{session}"),
        "/v1/console/faults".to_owned(),
        "/v1/console/agents".to_owned(),
        "/v1/console/tenants".to_owned(),
        "/v1/console/replicas".to_owned(),
    ] {
        let response = send(server, "GET", &path, Some(key)).await;
        let status = response.status().as_u16();
        answers.push((path, status, response.text().await.unwrap()));
    }
    answers
}

#[tokio::test]
async fn an_operator_without_content_gets_no_byte_of_it_and_no_store_is_never_shown() {
    let server = start(settings()).await;
    for (tenant, keys) in
        [("a", &["looker", "doer"][..]), ("silent", &["looker", "seer"]), ("closed", &["seer"])]
    {
        let session = Uuid::now_v7();
        let request = ask_in(session, &format!("/fault timeout --after 1 {SECRET}"));
        let auth = format!("Bearer key-{tenant}");
        let response = server.post_with(&request, &[("authorization", &auth)]).await;
        let stream = stream_of(&response);
        let _ = response.bytes().await.unwrap();
        let answer = server
            .post_with(&ask_in(session, &format!("/echo {SECRET}")), &[("authorization", &auth)])
            .await;
        let said = stream_of(&answer);
        all(answer).await;
        for key in keys {
            for stream in [&stream, &said] {
                let answers = all_answers(&server, key, tenant, stream, &session.to_string()).await;
                for (path, status, text) in answers {
                    assert!(!text.contains(SECRET), "{key} {path}: {text}");
                    let is_content =
                        ["/frames", "/body", "/sessions/"].iter().any(|part| path.contains(part));
                    let refused = [403, 404].contains(&status);
                    assert_eq!(refused, is_content, "{key} {tenant} {path}: {status}");
                }
            }
        }
        // The tenant itself sees its own.
        let body = send(
            &server,
            "GET",
            &format!("/v1/console/runs/{said}/body"),
            Some(&format!("key-{tenant}")),
        )
        .await;
        assert!(body.text().await.unwrap().contains(SECRET), "{tenant}");
    }
    let told = json(&server, "/v1/console/runs?tenant=silent", Some("seer")).await;
    assert_eq!(told["runs"][0]["session"], Value::Null, "names of what is not stored are not told");
    let told = json(&server, "/v1/console/runs?tenant=a", Some("seer")).await;
    assert!(told["runs"][0]["session"].is_string());
}

#[tokio::test]
async fn content_is_never_shown_where_that_is_the_rule() {
    let console =
        ConsoleSettings { content: Some(ContentRule::Never), ..ConsoleSettings::default() };
    let server = start(Settings { console, ..settings() }).await;
    let stream = run_as(&server, "key-a", "/tokens 1").await;
    for key in ["seer", "key-a"] {
        let refused =
            send(&server, "GET", &format!("/v1/console/runs/{stream}/frames"), Some(key)).await;
        assert_eq!(refused.status(), 403, "{key}");
    }
    assert_eq!(json(&server, "/v1/console/me", Some("seer")).await["content"], "never");
}

#[tokio::test]
async fn a_key_that_only_reads_and_a_console_without_actions_change_nothing() {
    let server = start(settings()).await;
    let stream = run_as(&server, "key-a", "/tokens 1").await;
    let path = format!("/v1/console/runs/{stream}");
    assert_eq!(send(&server, "DELETE", &path, Some("reader-a")).await.status(), 403);
    assert_eq!(send(&server, "DELETE", &path, Some("looker")).await.status(), 403);
    assert_eq!(json(&server, &path, Some("reader-a")).await["may"]["act"], false);
    assert_eq!(send(&server, "DELETE", &path, Some("key-a")).await.status(), 204);
    let console = ConsoleSettings { actions: false, ..ConsoleSettings::default() };
    let server = start(Settings { console, ..settings() }).await;
    let stream = run_as(&server, "key-a", "/tokens 1").await;
    for key in ["key-a", "doer"] {
        let refused =
            send(&server, "DELETE", &format!("/v1/console/runs/{stream}"), Some(key)).await;
        assert_eq!(refused.status(), 403, "{key}");
        assert!(problem(refused).await.detail.unwrap().contains("console.actions"));
    }
}

#[tokio::test]
async fn without_keys_only_the_consoles_own_page_may_change_anything() {
    let server = start(Settings::default()).await;
    let stream = run(&server, "/tokens 1", &[]).await;
    let url = format!("{}/v1/console/runs/{stream}/stop", server.url);
    let post = async |headers: &[(&str, &str)]| {
        let request = headers
            .iter()
            .fold(client().post(&url), |request, (name, value)| request.header(*name, *value));
        request.send().await.unwrap().status().as_u16()
    };
    let elsewhere = "http://localhost:9999";
    assert_eq!(post(&[("origin", elsewhere)]).await, 403);
    assert_eq!(post(&[("origin", elsewhere), ("sec-fetch-site", "same-site")]).await, 403);
    assert_eq!(post(&[("sec-fetch-site", "cross-site")]).await, 403);
    assert_eq!(post(&[("sec-fetch-site", "same-origin"), ("origin", &server.url)]).await, 200);
    assert_eq!(post(&[]).await, 200, "no page at all");
    let read = client().get(format!("{}/v1/console/runs", server.url)).header("origin", elsewhere);
    let response = read.send().await.unwrap();
    assert!(
        !response.headers().contains_key("access-control-allow-origin"),
        "nobody else's page reads it"
    );
}

#[tokio::test]
async fn open_to_everybody_there_is_no_console_unless_there_is_an_operator() {
    let open = || Settings { open: true, ..Settings::default() };
    let server = start(open()).await;
    for path in ["/v1/console/me", "/v1/console/runs", "/console", "/console/runs/1"] {
        assert_eq!(problem(server.get(path).await).await.code, "route_not_found", "{path}");
    }
    let operators = vec![operator("looker", &["*"], &[Right::Look])];
    let server = start(Settings { operators: operators.into(), ..open() }).await;
    run(&server, "/tokens 1", &[]).await;
    assert_eq!(server.get("/v1/console/runs").await.status(), 401);
    assert_eq!(
        json(&server, "/v1/console/runs", Some("looker")).await["runs"].as_array().unwrap().len(),
        1
    );
    let off = ConsoleSettings { enabled: false, ..ConsoleSettings::default() };
    let server = start(Settings { console: off, ..Settings::default() }).await;
    assert_eq!(server.get("/v1/console/me").await.status(), 404);
}

/// What a route wants beside `look`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wants {
    Nothing,
    Content,
    Act,
}

/// All of them, in an order in which each finds what the one before has left.
const ROUTES: [(&str, &str, Wants); 19] = [
    ("GET", "/v1/console/me", Wants::Nothing),
    ("GET", "/v1/console/health", Wants::Nothing),
    ("GET", "/v1/console/overview", Wants::Nothing),
    ("GET", "/v1/console/faults", Wants::Nothing),
    ("GET", "/v1/console/agents", Wants::Nothing),
    ("GET", "/v1/console/tenants", Wants::Nothing),
    ("GET", "/v1/console/events", Wants::Nothing),
    ("GET", "/v1/console/find?q={id}", Wants::Nothing),
    ("GET", "/v1/console/runs?session={session}", Wants::Nothing),
    ("GET", "/v1/console/runs/{id}", Wants::Nothing),
    ("GET", "/v1/console/runs/{id}/marks", Wants::Nothing),
    ("GET", "/v1/console/runs/{id}/frames", Wants::Content),
    ("GET", "/v1/console/runs/{id}/frames?face=ag-ui", Wants::Content),
    ("GET", "/v1/console/runs/{id}/body", Wants::Content),
    ("GET", "/v1/console/sessions/a/{session}", Wants::Content),
    ("POST", "/v1/console/runs/{id}/stop", Wants::Act),
    ("DELETE", "/v1/console/runs/{id}", Wants::Act),
    ("DELETE", "/v1/console/sessions/a/{session}", Wants::Act),
    ("GET", "/v1/console/replicas", Wants::Nothing),
];

#[tokio::test]
async fn every_route_checks_its_right() {
    let server = start(settings()).await;
    let who = [
        ("looker", &[Wants::Nothing][..]),
        ("seer", &[Wants::Nothing, Wants::Content]),
        ("doer", &[Wants::Nothing, Wants::Act]),
        ("master", &[Wants::Nothing, Wants::Content, Wants::Act]),
        ("key-a", &[Wants::Nothing, Wants::Content, Wants::Act]),
        ("reader-a", &[Wants::Nothing, Wants::Content]),
    ];
    for (key, may) in who {
        let session = Uuid::now_v7();
        let auth = [("authorization", "Bearer key-a")];
        // The second keeps the session when the first is erased.
        let mut streams = Vec::new();
        for _ in 0..2 {
            let response = server.post_with(&ask_in(session, "/tokens 1"), &auth).await;
            streams.push(stream_of(&response));
            all(response).await;
        }
        for (method, path, wants) in ROUTES {
            let is_tenant = key.ends_with("-a");
            let path = path.replace("{id}", &streams[0]).replace("{session}", &session.to_string());
            let status = send(&server, method, &path, Some(key)).await.status().as_u16();
            let expected = match (may.contains(&wants), path.as_str()) {
                (_, "/v1/console/replicas") if is_tenant => 404,
                (true, _) if method == "DELETE" => 204,
                (true, _) => 200,
                (false, _) => 403,
            };
            assert_eq!(status, expected, "{key}: {method} {path}");
        }
    }
    for (key, status) in [(None, 401), (Some("wrong"), 403), (Some("blind"), 403)] {
        for (method, path, _) in ROUTES {
            let answer = send(&server, method, path, key).await;
            assert_eq!(answer.status().as_u16(), status, "{key:?}: {method} {path}");
        }
    }
}

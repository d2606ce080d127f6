//! What a tenant can look at, what it can have erased, and what is never stored.

use std::time::Duration;

use crate::common::{
    Server, all, ask, ask_in, client, close_reason, disk, journal, problem, start, start_on,
    stream_of,
};
use capstan_gateway::{KeyHash, Settings, Tenant, Timeouts};
use capstan_journal::Journal;
use reqwest::Method;
use serde_json::Value;
use uuid::Uuid;

async fn json(response: reqwest::Response) -> Value {
    assert_eq!(response.status(), 200);
    response.json().await.unwrap()
}

/// Status and code of a refusal.
async fn refused(response: reqwest::Response) -> (u16, String) {
    let problem = problem(response).await;
    (problem.status, problem.code)
}

/// A finished turn; its stream.
async fn say(server: &Server, session: Uuid, message: &str) -> String {
    let response = server.post(&ask_in(session, message)).await;
    let stream = stream_of(&response);
    all(response).await;
    stream
}

#[tokio::test]
async fn a_session_tells_its_turns_and_an_unknown_one_is_not_found() {
    let server = start(Settings::default()).await;
    let session = Uuid::now_v7();
    let streams = [
        say(&server, session, "/tokens 2").await,
        say(&server, session, "/fault upstream_auth").await,
    ];
    let told = json(server.get(&format!("/v1/sessions/{session}")).await).await;
    assert_eq!(told["session_id"], session.to_string());
    let turns = told["turns"].as_array().unwrap();
    assert_eq!(turns.iter().map(|t| t["stream_id"].as_str().unwrap()).collect::<Vec<_>>(), streams);
    let said = &turns[0]["messages"][1];
    assert_eq!(
        (&said["role"], &said["parts"][0]["content"]),
        (&"assistant".into(), &"tok1 tok2 ".into())
    );
    assert_eq!(turns[0]["partial"], false);
    assert_eq!(turns[0]["messages"][0]["role"], "user");
    assert_eq!(turns[1]["partial"], true);
    for path in [format!("/v1/sessions/{}", Uuid::now_v7()), "/v1/sessions/no%20such".into()] {
        assert_eq!(refused(server.get(&path).await).await, (404, "session_not_found".into()));
        assert_eq!(refused(server.delete(&path).await).await, (404, "session_not_found".into()));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_purged_stream_is_gone_for_good_and_starts_no_second_run() {
    let server = start(Settings::default()).await;
    let session = Uuid::now_v7();
    let request = ask_in(session, "/tokens 2");
    let stream = stream_of(&server.post(&request).await);
    let kept = say(&server, session, "/tokens 1").await;
    let path = format!("/v1/streams/{stream}");
    assert_eq!(json(server.delete(&format!("{path}?purge=true")).await).await["stream_id"], stream);
    for gone in [path.clone(), format!("{path}/packets")] {
        assert_eq!(refused(server.get(&gone).await).await, (410, "stream_expired".into()));
    }
    assert_eq!(refused(server.post(&request).await).await, (410, "stream_expired".into()));
    assert_eq!(server.delete(&format!("{path}?purge=true")).await.status(), 410);
    let list = json(server.get("/v1/streams").await).await;
    assert_eq!(list["streams"].as_array().unwrap().len(), 1);
    let turns = json(server.get(&format!("/v1/sessions/{session}")).await).await;
    let left: Vec<_> =
        turns["turns"].as_array().unwrap().iter().map(|t| t["stream_id"].clone()).collect();
    assert_eq!(left, [kept], "the turn goes with the stream");
    assert_eq!(server.delete(&format!("{path}?purge=maybe")).await.status(), 400);
    server.stop().await;
}

#[tokio::test]
async fn a_run_under_way_is_stopped_before_it_is_purged() {
    let server = start(Settings::default()).await;
    let (running, waiting) = (ask("/hang"), ask("/fault timeout --retry-after 60"));
    for request in [running, waiting] {
        let stream = stream_of(&server.post(&request).await);
        let summary = json(server.delete(&format!("/v1/streams/{stream}?purge=true")).await).await;
        assert_eq!(
            (&summary["state"], &summary["reason"]),
            (&"closed".into(), &"cancelled".into())
        );
        assert_eq!(server.get(&format!("/v1/streams/{stream}")).await.status(), 410);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_purged_session_takes_its_turns_and_its_streams_along() {
    let server = start(Settings::default()).await;
    let (session, other) = (Uuid::now_v7(), Uuid::now_v7());
    let done = say(&server, session, "/tokens 2").await;
    let hanging = stream_of(&server.post(&ask_in(session, "/hang")).await);
    let kept = say(&server, other, "/tokens 1").await;
    let answer = json(server.delete(&format!("/v1/sessions/{session}")).await).await;
    assert_eq!(
        (&answer["session_id"], &answer["streams"]),
        (&session.to_string().into(), &2.into())
    );
    for stream in [done, hanging] {
        assert_eq!(server.get(&format!("/v1/streams/{stream}")).await.status(), 410);
    }
    assert_eq!(server.get(&format!("/v1/sessions/{session}")).await.status(), 404);
    assert_eq!(server.get(&format!("/v1/streams/{kept}")).await.status(), 200);
    assert_eq!(
        json(server.get(&format!("/v1/sessions/{other}")).await).await["turns"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    server.stop().await;
}

fn tenants(no_store: bool) -> Settings {
    let private = Tenant { no_store, ..Tenant::new("private", vec![KeyHash::of("key-p")]) };
    let timeouts = Timeouts { drain: Duration::ZERO, ..Timeouts::default() };
    let tenants = vec![private, Tenant::new("a", vec![KeyHash::of("key-a")])].into();
    Settings { tenants, timeouts, ..Settings::default() }
}

async fn send(server: &Server, method: Method, path: &str, key: &str) -> reqwest::Response {
    client().request(method, format!("{}{path}", server.url)).bearer_auth(key).send().await.unwrap()
}

#[tokio::test]
async fn another_tenants_session_answers_as_an_unknown_one_does() {
    let server = start(tenants(false)).await;
    let session = Uuid::now_v7();
    let response =
        server.post_with(&ask_in(session, "/tokens 1"), &[("authorization", "Bearer key-a")]).await;
    all(response).await;
    let path = format!("/v1/sessions/{session}");
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(send(&server, method, &path, "key-p").await.status(), 404);
    }
    assert_eq!(send(&server, Method::GET, &path, "key-a").await.status(), 200);
    server.stop().await;
}

#[tokio::test]
async fn a_tenant_that_is_not_stored_has_runs_like_any_other_until_the_process_ends() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on(disk(folder.path()), tenants(true)).await;
    let (request, private) = (ask("/tokens 3"), [("authorization", "Bearer key-p")]);
    let first = server.post_with(&request, &private).await;
    let stream = stream_of(&first);
    let packets = all(first).await;
    assert_eq!(close_reason(&packets).as_deref(), Some("completed"));
    let again = server.post_with(&request, &private).await;
    assert_eq!(stream_of(&again), stream, "start once");
    assert_eq!(all(again).await.len(), packets.len());
    let path = format!("/v1/streams/{stream}?after=2");
    assert_eq!(
        all(send(&server, Method::GET, &path, "key-p").await).await.len(),
        packets.len() - 2
    );
    assert_eq!(send(&server, Method::GET, &path, "key-a").await.status(), 404);
    let stored = server.post_with(&ask("/tokens 1"), &[("authorization", "Bearer key-a")]).await;
    let stored_stream = stream_of(&stored);
    all(stored).await;
    server.stop().await;

    let server = start_on(disk(folder.path()), tenants(true)).await;
    assert_eq!(
        send(&server, Method::GET, &path, "key-p").await.status(),
        404,
        "as if it had never been"
    );
    let path = format!("/v1/streams/{stored_stream}");
    assert_eq!(send(&server, Method::GET, &path, "key-a").await.status(), 200);
    server.stop().await;
}

#[tokio::test]
async fn unstored_data_never_reach_the_store() {
    let journal: Journal = journal();
    let server = start_on(journal.clone(), tenants(true)).await;
    let session = Uuid::now_v7();
    all(server
        .post_with(&ask_in(session, "/tokens 3"), &[("authorization", "Bearer key-p")])
        .await)
    .await;
    let turns =
        json(send(&server, Method::GET, &format!("/v1/sessions/{session}"), "key-p").await).await;
    assert_eq!(turns["turns"].as_array().unwrap().len(), 1);
    assert_eq!(journal.store().list("private", None, 9).await.unwrap(), []);
    assert_eq!(journal.store().sessions("private").await.unwrap(), 0);
    server.stop().await;
}

/// As many at once as a client with a stuck button would send.
const AT_ONCE: usize = 24;

/// The statuses of the same DELETE, sent many times at once.
async fn delete_at_once(server: &Server, path: &str) -> Vec<u16> {
    let sent = (0..AT_ONCE).map(|_| async { server.delete(path).await.status().as_u16() });
    futures_util::future::join_all(sent).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn simultaneous_purges_are_done_or_find_it_done() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on(disk(folder.path()), Settings::default()).await;
    for round in 0..6 {
        for message in ["/tokens 2", "/hang", "/fault timeout --retry-after 60"] {
            let response = server.post(&ask(message)).await;
            let stream = stream_of(&response);
            if message == "/tokens 2" {
                all(response).await;
            }
            let statuses =
                delete_at_once(&server, &format!("/v1/streams/{stream}?purge=true")).await;
            assert!(statuses.contains(&200), "{message}: {statuses:?}");
            assert!(
                statuses.iter().all(|s| [200, 410].contains(s)),
                "round {round}, {message}: {statuses:?}"
            );
        }
        let session = Uuid::now_v7();
        say(&server, session, "/tokens 2").await;
        for message in ["/hang", "/fault timeout --retry-after 60"] {
            drop(server.post(&ask_in(session, message)).await);
        }
        let statuses = delete_at_once(&server, &format!("/v1/sessions/{session}")).await;
        assert!(statuses.contains(&200), "{statuses:?}");
        assert!(
            statuses.iter().all(|s| [200, 410].contains(s)),
            "round {round}, a session: {statuses:?}"
        );
        assert_eq!(server.get(&format!("/v1/sessions/{session}")).await.status(), 404);
    }
    server.stop().await;
}

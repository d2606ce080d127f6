//! What a hostile tenant, page or machine may try: every budget refuses by its name, before
//! anything is spent.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::odd_store::OddStore;
use crate::common::{
    Server, all, ask, ask_in, client, close_reason, errors, problem, start, start_on, stream_of,
    text,
};
use capstan_gateway::{KeyHash, Limits, Settings, Tenant, Timeouts};
use capstan_protocol::ErrorSeverity;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use uuid::Uuid;

async fn limited(limits: Limits) -> Server {
    let timeouts = Timeouts { drain: Duration::ZERO, ..Timeouts::default() };
    start(Settings { limits, timeouts, ..Settings::default() }).await
}

async fn post(server: &Server, path: &str, body: &Value) -> reqwest::Response {
    client().post(format!("{}{path}", server.url)).json(body).send().await.unwrap()
}

#[tokio::test]
async fn ids_and_lists_that_every_record_would_carry_are_short_or_refused() {
    let server = limited(Limits::default()).await;
    let long = "x".repeat(1025);
    let mut v1 = serde_json::to_value(ask("/tokens 1")).unwrap();
    for events in [json!(vec!["E"; 65]), json!(["E".repeat(65)])] {
        v1["payload"]["capabilities"] = json!({ "supported_events": events });
        let refused = problem(post(&server, "/v1/assist", &v1).await).await;
        assert_eq!((refused.status, refused.code.as_str()), (400, "invalid_request"));
        assert!(refused.detail.unwrap().contains("supported_events"));
    }
    v1["payload"]["capabilities"] = json!({ "supported_events": vec!["E".repeat(64); 64] });
    assert_eq!(post(&server, "/v1/assist", &v1).await.status(), 200);
    let v2 = |session: &str| {
        json!({ "request_id": Uuid::now_v7(), "context": { "session_id": session,
        "user": { "id": "u", "name": "n" } },
            "payload": { "query": "/tokens 1" } })
    };
    let agui = |run: &str, thread: &str| {
        json!({ "threadId": thread, "runId": run, "state": {}, "tools": [], "context": [],
            "forwardedProps": {}, "messages": [{ "id": "1", "role": "user",
            "content": "/tokens 1" }] })
    };
    for length in [1025, 17_000, 70_000] {
        let long = "x".repeat(length);
        assert_eq!(post(&server, "/v1/assist", &v2(&long)).await.status(), 400, "{length}");
        assert_eq!(post(&server, "/v1/ag-ui", &agui(&long, "t")).await.status(), 400, "{length}");
        assert_eq!(post(&server, "/v1/ag-ui", &agui("r", &long)).await.status(), 400, "{length}");
    }
    for method in [reqwest::Method::GET, reqwest::Method::DELETE] {
        let asked =
            client().request(method, format!("{}/v1/sessions/{long}", server.url)).send().await;
        assert_eq!(asked.unwrap().status(), 400);
    }
    assert_eq!(post(&server, "/v1/assist", &v2(&"x".repeat(1024))).await.status(), 200);
    server.stop().await;
}

#[tokio::test]
async fn a_body_of_many_small_values_is_refused_before_it_is_read() {
    let server = limited(Limits { body_values: 1_000, ..Limits::default() }).await;
    let mut body = serde_json::to_value(ask("/tokens 1")).unwrap();
    body["payload"]["payload"]["state"] = vec![json!({ "a": {} }); 400].into();
    let refused = problem(post(&server, "/v1/assist", &body).await).await;
    assert_eq!((refused.status, refused.code.as_str()), (413, "payload_too_large"));
    body["payload"]["payload"]["state"] = "[{},{}]".repeat(1_000).into();
    assert_eq!(post(&server, "/v1/assist", &body).await.status(), 200, "text is one value");
    server.stop().await;
}

#[tokio::test]
async fn memory_of_open_requests_is_limited_and_released() {
    let tenant = |name: &str| Tenant::new(name, vec![KeyHash::of(name)]);
    let limits = Limits {
        bytes_in_flight_per_tenant: 700_000,
        bytes_in_flight: 1_000_000,
        ..Limits::default()
    };
    let timeouts = Timeouts { drain: Duration::ZERO, ..Timeouts::default() };
    let tenants = vec![tenant("a"), tenant("b"), tenant("c")].into();
    let server = start(Settings { tenants, limits, timeouts, ..Settings::default() }).await;
    let hang = |key: &'static str| {
        let request = ask(&format!("/hang {}", " ".repeat(100_000)));
        client().post(format!("{}/v1/assist", server.url)).bearer_auth(key).json(&request).send()
    };
    let (first, second) = (hang("a").await.unwrap(), hang("a").await.unwrap());
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    let refused = problem(hang("a").await.unwrap()).await;
    assert_eq!((refused.status, refused.code.as_str()), (429, "session_limit_exceeded"));
    let quiet = hang("b").await.unwrap();
    assert_eq!(quiet.status(), 200, "one tenant does not take it all");
    let refused = problem(hang("c").await.unwrap()).await;
    assert_eq!((refused.status, refused.code.as_str()), (503, "service_unavailable"));
    let stop = format!("{}/v1/streams/{}", server.url, stream_of(&first));
    assert_eq!(client().delete(stop).bearer_auth("a").send().await.unwrap().status(), 200);
    // What it took is given back once its relay is gone, a moment after its last packet.
    let mut next = hang("a").await.unwrap();
    while next.status() == 429 {
        next = hang("a").await.unwrap();
    }
    assert_eq!(next.status(), 200);
    drop((second, quiet, next));
    server.stop().await;
}

#[tokio::test]
async fn beyond_the_runs_that_may_wait_a_run_ends_instead() {
    let server = limited(Limits { waiting_per_tenant: 2, ..Limits::default() }).await;
    let requests: Vec<_> = (0..4).map(|_| ask("/flaky 1 --wait 60")).collect();
    for (n, request) in requests.iter().enumerate() {
        let seen = all(server.post(request).await).await;
        let last = errors(&seen).pop().unwrap().clone();
        match n {
            0 | 1 => {
                assert_eq!((last.severity, close_reason(&seen)), (ErrorSeverity::Transient, None))
            }
            _ => {
                assert_eq!(last.severity, ErrorSeverity::Fatal, "rule 3");
                assert_eq!(close_reason(&seen).as_deref(), Some("error"));
                let seqs: Vec<_> = crate::common::seqs(&seen);
                assert_eq!(
                    seqs,
                    (1..=seqs.len() as u64).collect::<Vec<_>>(),
                    "no packet was lost on the way"
                );
            }
        }
    }
    // One goes on, so that there is room again.
    assert_eq!(
        close_reason(&all(server.post(&requests[0]).await).await).as_deref(),
        Some("completed")
    );
    let seen = all(server.post(&ask("/flaky 1 --wait 60")).await).await;
    assert_eq!(close_reason(&seen), None);
    server.stop().await;
}

#[tokio::test]
async fn armed_runs_take_no_more_room_than_there_is() {
    let server = limited(Limits { runs_per_tenant: 1, ..Limits::default() }).await;
    let waiting = [ask("/flaky 1 --wait 60"), ask("/flaky 1 --wait 60")];
    for request in &waiting {
        let mut response = server.post(request).await;
        while response.status() == 429 {
            response = server.post(request).await;
        }
        all(response).await;
    }
    let mut busy = server.post(&ask("/hang")).await;
    while busy.status() == 429 {
        busy = server.post(&ask("/hang")).await;
    }
    let [first, second] = [server.post(&waiting[0]).await, server.post(&waiting[1]).await];
    assert_eq!(
        (first.status().as_u16(), second.status().as_u16()),
        (200, 200),
        "arming is never refused"
    );
    assert_eq!(problem(server.post(&ask("/tokens 1")).await).await.code, "session_limit_exceeded");
    let stopped = server.delete(&format!("/v1/streams/{}", stream_of(&busy))).await;
    assert_eq!(stopped.status(), 200);
    for armed in [first, second] {
        assert_eq!(
            close_reason(&all(armed).await).as_deref(),
            Some("completed"),
            "when there was room"
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn an_answer_too_large_for_one_object_names_its_stream_and_the_run_goes_on() {
    let server = limited(Limits { whole_bytes: 20_000, ..Limits::default() }).await;
    let request = ask("/tokens 1000");
    let refused = server.post_with(&request, &[("accept", "application/json")]).await;
    let stream = stream_of(&refused);
    let refused = problem(refused).await;
    assert_eq!((refused.status, refused.code.as_str()), (406, "answer_too_large"));
    assert!(refused.detail.unwrap().contains(&format!("/v1/streams/{stream}")));
    let seen = all(server.get(&format!("/v1/streams/{stream}")).await).await;
    assert_eq!(close_reason(&seen).as_deref(), Some("completed"));
    assert!(text(&seen).ends_with("tok1000 "));
    server.stop().await;
}

#[tokio::test]
async fn a_session_is_read_in_pages_of_bounded_size_and_has_a_size_of_its_own() {
    let server = limited(Limits { bytes_per_session: 9_000_000, ..Limits::default() }).await;
    let session = Uuid::now_v7();
    let long = format!("/echo {}", "x".repeat(1_500_000));
    for _ in 0..2 {
        let answered = server.post(&ask_in(session, &long)).await;
        assert_eq!(close_reason(&all(answered).await).as_deref(), Some("completed"));
    }
    let page: Value = server.get(&format!("/v1/sessions/{session}")).await.json().await.unwrap();
    assert_eq!((page["turns"].as_array().unwrap().len(), page["next"].as_u64()), (1, Some(1)));
    let page: Value =
        server.get(&format!("/v1/sessions/{session}?from=1")).await.json().await.unwrap();
    assert_eq!((page["turns"].as_array().unwrap().len(), page["next"].as_u64()), (1, None));
    all(server.post(&ask_in(session, &long)).await).await;
    let refused = problem(server.post(&ask_in(session, &long)).await).await;
    assert_eq!((refused.status, refused.code.as_str()), (429, "message_limit_exceeded"));
    server.stop().await;
}

/// Whoever asks for much is answered in its own time: what others wait for is how much of it is
/// made at once.
#[tokio::test]
async fn of_one_tenants_lists_and_pages_one_is_read_at_a_time() {
    let store = OddStore::new().shared();
    let server = start_on(store.journal(), Settings::default()).await;
    let session = Uuid::now_v7();
    let stream = all(server.post(&ask_in(session, "/tokens 1")).await).await[0].stream_id;
    store.most_reading.store(0, Ordering::Relaxed);
    let paths = [
        "/v1/streams".to_owned(),
        format!("/v1/sessions/{session}"),
        "/v1/console/runs".to_owned(),
        "/v1/console/overview".to_owned(),
        format!("/v1/console/find?q={stream}"),
        format!("/v1/console/sessions/local/{session}"),
        "/v1/a2a/tasks".to_owned(),
    ];
    let read = |n: usize| server.get(&paths[n % paths.len()]);
    let answers = join_all((0..8 * paths.len()).map(read)).await;
    assert!(answers.iter().all(|answer| answer.status() == 200), "{answers:?}");
    assert_eq!(store.most_reading.load(Ordering::Relaxed), 1);
    server.stop().await;
}

#[tokio::test]
async fn keys_stay_out_of_urls_and_answers_out_of_caches() {
    let tenants = vec![Tenant::new("a", vec![KeyHash::of("key-a")])].into();
    let server = start(Settings { tenants, ..Settings::default() }).await;
    for name in ["KEY", "token", "apikey", "api-key", "Access_Token", "AUTHORIZATION"] {
        let refused = problem(server.get(&format!("/v1/streams?{name}=key-a")).await).await;
        assert_eq!(refused.status, 400, "{name}");
        assert!(refused.detail.unwrap().contains("URL"));
    }
    let list = client()
        .get(format!("{}/v1/streams", server.url))
        .bearer_auth("key-a")
        .send()
        .await
        .unwrap();
    assert_eq!(
        (list.status().as_u16(), &list.headers()["cache-control"]),
        (200, &"no-store".parse().unwrap())
    );
    // A page elsewhere that calls this machine by a name of its own is not this machine.
    let metrics = format!("{}/metrics", server.url);
    assert_eq!(client().get(&metrics).send().await.unwrap().status(), 200);
    let foreign = client().get(&metrics).header("host", "evil.example").send().await.unwrap();
    assert_eq!(foreign.status(), 403);
    server.stop().await;
}

#[tokio::test]
async fn a_ticket_dies_with_the_key_that_it_stands_in_for() {
    let tenants: capstan_gateway::Tenants =
        vec![Tenant::new("a", vec![KeyHash::of("old"), KeyHash::of("new")])].into();
    let server = start(Settings { tenants: tenants.clone(), ..Settings::default() }).await;
    let response = server.post_with(&ask("/tokens 3"), &[("authorization", "Bearer old")]).await;
    let ticket = response.headers()["x-stream-ticket"].to_str().unwrap().to_owned();
    let url = format!("/v1/streams/{}?ticket={ticket}", stream_of(&response));
    all(response).await;
    assert_eq!(server.get(&url).await.status(), 200);
    tenants.replace(vec![Tenant::new("a", vec![KeyHash::of("new")])]);
    assert_eq!(server.get(&url).await.status(), 403);
    server.stop().await;
}

/// Everything that comes until the server closes the connection.
async fn until_closed(socket: &mut TcpStream) -> Vec<u8> {
    let mut seen = Vec::new();
    // A reset ends it as well.
    let _ = socket.read_to_end(&mut seen).await;
    seen
}

fn address(server: &Server) -> &str {
    server.url.trim_start_matches("http://")
}

#[tokio::test]
async fn connections_that_are_idle_or_half_open_are_closed_in_either_version_of_http() {
    let timeouts = Timeouts {
        request: Duration::from_millis(200),
        idle_connection: Duration::from_millis(200),
        ..Timeouts::default()
    };
    let server = start(Settings { timeouts, ..Settings::default() }).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    // HEADERS of stream 1 that never end: no END_HEADERS, and no CONTINUATION follows.
    let half = [0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82];
    let opened = [preface.as_slice(), &settings].concat();
    let half_open = [opened.as_slice(), &half].concat();
    let get = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec();
    for said in [Vec::new(), preface[..10].to_vec(), opened, half_open, b"GET /he".to_vec(), get] {
        let mut socket = TcpStream::connect(address(&server)).await.unwrap();
        socket.write_all(&said).await.unwrap();
        until_closed(&mut socket).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_full_server_still_reports_its_health() {
    let limits = Limits { connections: 4, connections_per_address: 100, ..Limits::default() };
    let server = limited(limits).await;
    let mut idle = Vec::new();
    for _ in 0..4 {
        let mut socket = TcpStream::connect(address(&server)).await.unwrap();
        socket.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut first = [0; 12];
        socket.read_exact(&mut first).await.unwrap();
        idle.push(socket);
    }
    let asked = |path: &'static str| {
        let url = format!("{}{path}", server.url);
        async move { client().get(url).send().await.unwrap() }
    };
    for path in ["/health", "/livez", "/readyz"] {
        assert_eq!(asked(path).await.status(), 200, "{path}");
    }
    let refused = problem(asked("/v1/streams").await).await;
    assert_eq!((refused.status, refused.code.as_str()), (503, "service_unavailable"));
    drop(idle);
    while asked("/v1/streams").await.status() == 503 {}
    server.stop().await;
}

#[tokio::test]
async fn requests_beside_each_other_on_a_connection_count_as_connections() {
    let limits = Limits { connections: 64, connections_per_address: 8, ..Limits::default() };
    let server = limited(limits).await;
    let stream = stream_of(&server.post(&ask("/hang")).await);
    let mut socket = TcpStream::connect(address(&server)).await.unwrap();
    let path = format!("/v1/streams/{stream}");
    socket.write_all(&crate::common::http2::gets(&path, "", 20)).await.unwrap();
    let mut seen = Vec::new();
    let (served, refused) = loop {
        socket.read_buf(&mut seen).await.unwrap();
        let (served, refused) = crate::common::http2::statuses(&seen);
        if served + refused == 20 {
            break (served, refused);
        }
    };
    // The client that began the run may hold a connection.
    assert!((7..=8).contains(&served), "{served} served, {refused} refused");
    drop(socket);
    let asked = || async {
        client().get(format!("{}/v1/streams", server.url)).send().await.unwrap().status()
    };
    while asked().await == 503 {}
    assert_eq!(asked().await, 200, "their places are free again");
    server.stop().await;
}

/// Asks for this and reads no more than the status.
async fn unread(server: &Server, path: &str) -> (TcpStream, String) {
    let mut socket = TcpStream::connect(address(server)).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    socket.read_exact(&mut status).await.unwrap();
    (socket, String::from_utf8_lossy(&status[9..]).into_owned())
}

#[tokio::test]
async fn an_answer_that_is_not_read_counts_whichever_face_made_it() {
    const MOST: usize = 6 * 1024 * 1024;
    let server = limited(Limits { bytes_in_flight_per_tenant: MOST, ..Limits::default() }).await;
    let text = "x".repeat(600_000);
    let response = json!({ "model": "demo", "input": format!("/echo {text}") });
    let response: Value = post(&server, "/v1/responses", &response).await.json().await.unwrap();
    let message = json!({ "role": "user", "messageId": "m", "parts": [{ "kind": "text",
    "text": format!("/echo {text}") }] });
    let task = json!({ "jsonrpc": "2.0", "id": 1, "method": "message/send",
    "params": { "message": message } });
    let task: Value = post(&server, "/v1/a2a", &task).await.json().await.unwrap();
    let (response, task) =
        (response["id"].as_str().unwrap(), task["result"]["id"].as_str().unwrap());
    let paths = [
        format!("/v1/responses/{response}"),
        format!("/v1/responses/{response}/input_items"),
        format!("/v1/a2a/tasks/{task}"),
        format!("/v1/console/runs/{task}/body"),
        format!("/v1/streams/{task}/packets"),
    ];
    for path in &paths {
        let (mut held, mut last) = (Vec::new(), "200".to_owned());
        while last == "200" && held.len() <= MOST / text.len() {
            let (socket, status) = unread(&server, path).await;
            held.push(socket);
            last = status;
        }
        assert_eq!(last, "429", "{path}: {} are held", held.len());
        drop(held);
        // What they held is given back when their connections are found to be gone.
        while unread(&server, path).await.1 != "200" {}
    }
    server.stop().await;
}

#[tokio::test]
async fn one_address_leaves_room_for_others() {
    let server =
        limited(Limits { connections: 64, connections_per_address: 2, ..Limits::default() }).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut socket = TcpStream::connect(address(&server)).await.unwrap();
        socket.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        socket.read_exact(&mut [0; 12]).await.unwrap();
        open.push(socket);
    }
    let asked = client().get(format!("{}/v1/streams", server.url)).send().await.unwrap();
    assert_eq!(asked.status(), 503, "the third of one address is told so");
    drop(open);
    while client().get(format!("{}/v1/streams", server.url)).send().await.unwrap().status() == 503 {
    }
    server.stop().await;
}

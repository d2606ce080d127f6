//! How much: every limit refuses by its own name, before a claim is left behind.

use std::time::Duration;

use crate::common::{
    Server, all, ask, ask_in, client, close_reason, disk, errors, problem, start, start_on,
    stream_of, text,
};
use capstan_gateway::{KeyHash, Limits, Settings, Tenant, Timeouts};
use capstan_protocol::{ErrorSeverity, ServiceRequest};
use serde_json::Value;
use uuid::Uuid;

async fn limited(limits: Limits) -> Server {
    limited_for(Vec::new(), limits).await
}

/// A server that is not held up by runs that hang when it stops.
async fn limited_for(tenants: Vec<Tenant>, limits: Limits) -> Server {
    let timeouts = Timeouts { drain: Duration::ZERO, ..Timeouts::default() };
    start(Settings { tenants: tenants.into(), limits, timeouts, ..Settings::default() }).await
}

async fn streams(server: &Server) -> usize {
    let list: Value = server.get("/v1/streams").await.json().await.unwrap();
    list["streams"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_full_server_refuses_with_a_wait_and_takes_the_next_run_when_there_is_room() {
    let server = limited(Limits { runs: 1, ..Limits::default() }).await;
    let (busy, next) = (ask("/hang"), ask("/tokens 1"));
    let response = server.post(&busy).await;
    for headers in [&[][..], &[("accept", "application/json")]] {
        let refused = server.post_with(&next, headers).await;
        assert_eq!(refused.status(), 503);
        let problem = problem(refused).await;
        assert_eq!((problem.code.as_str(), problem.retry_after), ("service_unavailable", Some(1)));
    }
    assert_eq!(streams(&server).await, 1, "a refusal leaves no claim");
    let stream = stream_of(&response);
    assert_eq!(stream_of(&server.post(&busy).await), stream, "attaching is exempt");
    server.delete(&format!("/v1/streams/{stream}")).await;
    assert_eq!(close_reason(&all(response).await).as_deref(), Some("cancelled"));
    // The room is free once the relay is gone, a moment after its last packet.
    while server.post(&next).await.status() == 503 {}
    assert_eq!(text(&all(server.post(&next).await).await), "tok1 ");
    server.stop().await;
}

#[tokio::test]
async fn one_tenants_runs_do_not_take_anothers_room() {
    let tenant = |name: &str| Tenant::new(name, vec![KeyHash::of(name)]);
    let limits = Limits { runs_per_tenant: 1, ..Limits::default() };
    let server = limited_for(vec![tenant("a"), tenant("b")], limits).await;
    let hang = |key: &'static str| {
        client()
            .post(format!("{}/v1/assist", server.url))
            .bearer_auth(key)
            .json(&ask("/hang"))
            .send()
    };
    let _open = (hang("a").await.unwrap(), hang("b").await.unwrap());
    let refused = hang("a").await.unwrap();
    assert_eq!(refused.status(), 429);
    let problem = problem(refused).await;
    assert_eq!(problem.code, "session_limit_exceeded");
    assert_eq!(problem.detail.as_deref(), Some("Too many runs are under way."));
    server.stop().await;
}

#[tokio::test]
async fn a_full_session_is_fatal_and_another_one_is_not() {
    let server = limited(Limits { messages_per_session: 1, ..Limits::default() }).await;
    let session = Uuid::now_v7();
    let first = ask_in(session, "/tokens 1");
    all(server.post(&first).await).await;
    let refused = server.post(&ask_in(session, "/tokens 1")).await;
    assert_eq!(refused.status(), 429);
    let problem = problem(refused).await;
    assert_eq!(
        (problem.code.as_str(), problem.severity),
        ("message_limit_exceeded", ErrorSeverity::Fatal)
    );
    assert_eq!((problem.retryable, problem.retry_after), (false, None));
    all(server.post(&first).await).await;
    all(server.post(&ask("/tokens 1")).await).await;
    server.stop().await;
}

#[tokio::test]
async fn when_sessions_run_out_the_known_ones_go_on() {
    let server = limited(Limits { sessions: 1, ..Limits::default() }).await;
    let session = Uuid::now_v7();
    all(server.post(&ask_in(session, "/tokens 1")).await).await;
    let refused = server.post(&ask("/tokens 1")).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(problem(refused).await.code, "session_limit_exceeded");
    all(server.post(&ask_in(session, "/tokens 2")).await).await;
    server.stop().await;
}

#[tokio::test]
async fn open_responses_have_a_limit_of_their_own() {
    let server = limited(Limits { readers_per_tenant: 1, ..Limits::default() }).await;
    let response = server.post(&ask("/hang")).await;
    let path = format!("/v1/streams/{}", stream_of(&response));
    for refused in [server.post(&ask("/tokens 1")).await, server.get(&path).await] {
        assert_eq!(refused.status(), 503);
        assert_eq!(problem(refused).await.retry_after, Some(1));
    }
    assert_eq!(streams(&server).await, 1, "a refusal leaves no claim");
    assert_eq!(server.delete(&path).await.status(), 200, "a stop is no open response");
    server.stop().await;
}

#[tokio::test]
async fn a_stream_that_grows_too_long_is_ended() {
    let by_packets = Limits { packets_per_stream: 10, ..Limits::default() };
    let by_bytes = Limits { bytes_per_stream: 2_000, ..Limits::default() };
    for limits in [by_packets, by_bytes] {
        let server = limited(limits).await;
        let packets = all(server.post(&ask("/tokens 500")).await).await;
        assert!((8..20).contains(&packets.len()), "{} packets", packets.len());
        let error = errors(&packets).pop().unwrap();
        assert_eq!(
            (error.code.as_str(), error.severity),
            ("stream_too_long", ErrorSeverity::Fatal)
        );
        assert_eq!(close_reason(&packets).as_deref(), Some("error"));
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rush_does_not_get_past_the_limit() {
    let server = limited(Limits { runs: 3, ..Limits::default() }).await;
    let requests: Vec<_> = (0..60).map(|_| ask("/hang")).collect();
    let responses =
        futures_util::future::join_all(requests.iter().map(|request| server.post(request))).await;
    let started = responses.iter().filter(|response| response.status() == 200).count();
    assert_eq!((started, streams(&server).await), (3, 3));
    drop(responses);
    server.stop().await;
}

#[tokio::test]
async fn health_is_served_at_the_connection_limit() {
    let limits = Limits { connections: 1, ..Limits::default() };
    let server = start(Settings { limits, ..Settings::default() }).await;
    let viewer = server.post(&ask("/hang")).await;
    for path in ["/livez", "/readyz", "/health"] {
        assert_eq!(server.get(path).await.status(), 200, "{path}");
    }
    let refused = server.post(&ask("/tokens 1")).await;
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(problem(refused).await.code, "service_unavailable");
    drop(viewer);
    // The server sees the end of a connection when it next looks.
    while server.post(&ask("/tokens 1")).await.status() != 200 {}
}

async fn dry(server: &Server, key: &str, text: &str) -> u64 {
    let post = client().post(format!("{}/v1/assist", server.url)).bearer_auth(key).json(&ask(text));
    let refused = problem(post.send().await.unwrap()).await;
    assert_eq!((refused.status, refused.code.as_str()), (429, "rate_limit_exceeded"));
    assert_eq!(refused.detail.as_deref(), Some("The tokens of this day are used up."));
    assert_eq!(refused.details.unwrap()["limit"], "tokens_per_day");
    refused.retry_after.unwrap()
}

#[tokio::test]
async fn tokens_that_are_used_up_come_back_with_the_day_and_a_restart_brings_none() {
    let folder = tempfile::tempdir().unwrap();
    let tenant = |name: &str| Tenant::new(name, vec![KeyHash::of(name)]);
    let rich = Tenant { tokens_per_day: Some(0), ..tenant("rich") };
    let settings = || Settings {
        tenants: vec![tenant("poor"), rich.clone()].into(),
        limits: Limits { tokens_per_day: 60, ..Limits::default() },
        ..Settings::default()
    };
    let server = start_on(disk(folder.path()), settings()).await;
    let post = async |server: &Server, key: &str, request: &ServiceRequest| {
        server.post_with(request, &[("authorization", &format!("Bearer {key}"))]).await
    };
    let (first, waits) = (ask("/tokens 58"), ask("/flaky 1 --wait 60"));
    all(post(&server, "poor", &waits).await).await;
    // It reads two and writes the rest.
    all(post(&server, "poor", &first).await).await;
    let metrics = server.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("capstan_tokens_total{name=\"demo\"} 60"), "{metrics}");
    let wait = dry(&server, "poor", "/tokens 1").await;
    assert!((1..=86_400).contains(&wait), "{wait}");
    // What there is goes on: attaching and arming are never refused.
    assert_eq!(
        text(&all(post(&server, "poor", &first).await).await).split_whitespace().count(),
        58
    );
    assert_eq!(
        close_reason(&all(post(&server, "poor", &waits).await).await).as_deref(),
        Some("completed")
    );
    for _ in 0..3 {
        all(post(&server, "rich", &ask("/tokens 18")).await).await;
    }
    server.stop().await;

    let server = start_on(disk(folder.path()), settings()).await;
    let wait = dry(&server, "poor", "/tokens 1").await;
    // Two seconds before it is over, and when it is.
    server.clock.set_by(i64::try_from(wait).unwrap() - 2);
    assert!(dry(&server, "poor", "/tokens 1").await <= 2);
    server.clock.set_by(2);
    all(post(&server, "poor", &ask("/tokens 1")).await).await;
    server.stop().await;
}

//! The run contract over HTTP, against a real server: start once, stream, fail in types, resume,
//! stop.

use crate::common::{
    all, ask, client, close_reason, errors, journal, packets, problem, seqs, start, start_on, text,
};
use capstan_gateway::{KeyHash, Limits, Settings, Tenant};
use capstan_protocol::{CATALOGUE, ErrorSeverity, Payload};
use serde_json::Value;

#[tokio::test]
async fn a_run_streams_its_text_and_closes() {
    let server = start(Settings::default()).await;
    let response = server.post(&ask("/tokens 50")).await;
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-store, no-transform"),
        ("x-accel-buffering", "no"),
    ] {
        assert_eq!(response.headers()[name], value);
    }
    assert!(
        response.headers().contains_key("x-request-id")
            && response.headers().contains_key("x-stream-id")
    );
    let packets = all(response).await;
    assert_eq!(seqs(&packets), (1..=51).collect::<Vec<_>>());
    assert_eq!(close_reason(&packets).as_deref(), Some("completed"));
    server.stop().await;
}

#[tokio::test]
async fn a_cut_at_every_packet_resumes_with_the_very_same_bytes() {
    let server = start(Settings::default()).await;
    let request = ask("/tokens 30");
    let response = server.post(&request).await;
    let stream = response.headers()["x-stream-id"].to_str().unwrap().to_owned();
    let whole = response.bytes().await.unwrap();
    let frames = packets(&whole).len();
    for after in 0..frames {
        let cursor = format!("{stream}:{after}");
        let resumed =
            server.post_with(&request, &[("last-event-id", &cursor)]).await.bytes().await.unwrap();
        assert!(resumed.starts_with(format!("retry: 500\nid: {cursor}\n\n").as_bytes()));
        let opening = format!("retry: 500\nid: {cursor}\n\n").len();
        assert!(whole.ends_with(&resumed[opening..]), "after {after}");
        assert_eq!(packets(&resumed).len(), frames - after);
    }
    let literal = server.post_with(&request, &[("last-event-id", &stream)]).await;
    assert_eq!(literal.bytes().await.unwrap(), whole, "a bare stream id replays from the start");
    server.stop().await;
}

#[tokio::test]
async fn racing_duplicates_are_one_run() {
    let server = start(Settings::default()).await;
    let request = ask("/tokens 20");
    let posts = (0..200).map(|_| server.post(&request));
    let responses = futures_util::future::join_all(posts).await;
    let mut streams: Vec<_> =
        responses.iter().map(|r| r.headers()["x-stream-id"].clone()).collect();
    streams.dedup();
    assert_eq!(streams.len(), 1);
    for response in responses {
        assert_eq!(all(response).await.len(), 21);
    }
    server.stop().await;
}

#[tokio::test]
async fn another_body_under_the_same_key_is_a_conflict() {
    let server = start(Settings::default()).await;
    let mut request = ask("/tokens 1");
    all(server.post(&request).await).await;
    request.payload.payload.insert("query".into(), "/tokens 2".into());
    let response = server.post(&request).await;
    assert_eq!(response.status(), 409);
    assert_eq!(problem(response).await.code, "request_conflict");
    server.stop().await;
}

#[tokio::test]
async fn every_fatal_fault_ends_in_error_and_close() {
    let server = start(Settings::default()).await;
    for entry in CATALOGUE.iter().filter(|e| e.severity == ErrorSeverity::Fatal) {
        let packets = all(server.post(&ask(&format!("/fault {}", entry.code))).await).await;
        let error = errors(&packets).pop().unwrap().clone();
        assert_eq!((error.code.as_str(), error.severity), (entry.code, ErrorSeverity::Fatal));
        assert_eq!(close_reason(&packets).as_deref(), Some("error"), "{}", entry.code);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_transient_fault_waits_for_its_client_and_ends_when_no_attempt_is_left() {
    let server = start(Settings::default()).await;
    let request = ask("/fault upstream_truncated");
    let first = all(server.post(&request).await).await;
    let told = errors(&first).pop().unwrap().clone();
    assert_eq!(
        (told.code.as_str(), told.severity),
        ("upstream_truncated", ErrorSeverity::Transient)
    );
    assert!(told.retry_after().is_some());
    assert_eq!(close_reason(&first), None, "the body ends without CLOSE");
    all(server.post(&request).await).await;
    let last = all(server.post(&request).await).await;
    assert_eq!(errors(&last).pop().unwrap().severity, ErrorSeverity::Fatal);
    assert_eq!(close_reason(&last).as_deref(), Some("error"));
    assert_eq!(text(&last), text(&first), "what was said before is not said again");
    assert_eq!(server.waits(), [0.5, 1.0], "each attempt begins when its wait is over");
    server.stop().await;
}

#[tokio::test]
async fn the_gateway_heals_short_interruptions_itself() {
    let server = start(Settings::default()).await;
    let healed = all(server.post(&ask("/flaky 1")).await).await;
    let untroubled = all(server.post(&ask("/flaky 0")).await).await;
    assert_eq!(text(&healed), text(&untroubled));
    assert_eq!(
        errors(&healed).iter().map(|e| e.severity).collect::<Vec<_>>(),
        [ErrorSeverity::Warning]
    );
    assert_eq!(close_reason(&healed).as_deref(), Some("completed"));
    assert_eq!(server.waits(), [0.5]);
    all(server.post(&ask("/flaky 2 --wait 2")).await).await;
    assert_eq!(server.waits(), [0.5, 2.0, 2.0], "a fault's own wait, if it is longer");
    server.stop().await;
}

#[tokio::test]
async fn a_diverging_attempt_resets_only_those_who_can() {
    let server = start(Settings::default()).await;
    let literal = all(server.post(&ask("/diverge")).await).await;
    assert_eq!(errors(&literal).pop().unwrap().code, "attempt_diverged");
    let able =
        all(server.post_with(&ask("/diverge"), &[("x-cap-accept", "stream_reset")]).await).await;
    assert_eq!(close_reason(&able).as_deref(), Some("completed"));
    let has_reset = able
        .iter()
        .any(|p| matches!(&p.payload, Payload::Event(raw) if raw.get().contains("stream_reset")));
    assert!(has_reset);
    server.stop().await;
}

#[tokio::test]
async fn a_panic_is_an_execution_error_that_says_nothing_about_the_inside() {
    let server = start(Settings::default()).await;
    let packets = all(server.post(&ask("/panic")).await).await;
    let error = errors(&packets).pop().unwrap().clone();
    assert_eq!((error.code.as_str(), error.details), ("agent_execution_error", None));
    assert_eq!(error.message, "An error occurred processing your request.");
    server.stop().await;
}

#[tokio::test]
async fn a_stop_answers_when_the_close_is_journalled() {
    let server = start(Settings::default()).await;
    let response = server.post(&ask("/hang")).await;
    let stream = response.headers()["x-stream-id"].to_str().unwrap().to_owned();
    let url = format!("{}/v1/streams/{stream}", server.url);
    let stopped: Value = client().delete(&url).send().await.unwrap().json().await.unwrap();
    assert_eq!((&stopped["state"], &stopped["reason"]), (&"closed".into(), &"cancelled".into()));
    assert_eq!(close_reason(&all(response).await).as_deref(), Some("cancelled"));
    let again: Value = client().delete(&url).send().await.unwrap().json().await.unwrap();
    assert_eq!(again["closed_at"], stopped["closed_at"], "a finished run is unchanged");
    server.stop().await;
}

#[tokio::test]
async fn viewers_attach_by_get_and_stop_at_the_end() {
    let server = start(Settings::default()).await;
    let response = server.post(&ask("/tokens 5")).await;
    let stream = response.headers()["x-stream-id"].to_str().unwrap().to_owned();
    let whole = response.bytes().await.unwrap();
    let path = format!("/v1/streams/{stream}");
    assert_eq!(server.get(&path).await.bytes().await.unwrap(), whole);
    assert_eq!(server.get(&format!("{path}?after=6")).await.status(), 204);
    assert_eq!(problem(server.get(&format!("{path}?after=7")).await).await.code, "stream_lost");
    let page: Value =
        server.get(&format!("{path}/packets?after=2&limit=2")).await.json().await.unwrap();
    assert_eq!((page["packets"].as_array().unwrap().len(), &page["next"]), (2, &4.into()));
    let list: Value = server.get("/v1/streams").await.json().await.unwrap();
    assert_eq!(
        (&list["streams"][0]["packets"], &list["streams"][0]["model"]),
        (&6.into(), &"demo".into())
    );
    server.stop().await;
}

#[tokio::test]
async fn a_client_past_the_end_gets_the_close_again_and_keeps_its_cursor() {
    let server = start(Settings::default()).await;
    let request = ask("/tokens 3");
    let response = server.post(&request).await;
    let stream = response.headers()["x-stream-id"].to_str().unwrap().to_owned();
    let whole = response.bytes().await.unwrap();
    let cursor = format!("{stream}:4");
    let again =
        server.post_with(&request, &[("last-event-id", &cursor)]).await.bytes().await.unwrap();
    let opening = format!("retry: 500\nid: {cursor}\n\n");
    assert!(again.starts_with(opening.as_bytes()), "never a lower cursor");
    assert!(whole.ends_with(&again[opening.len()..]));
    assert_eq!(close_reason(&packets(&again)).as_deref(), Some("completed"));
    server.stop().await;
}

#[tokio::test]
async fn a_waiting_run_is_armed_even_if_no_further_run_may_start() {
    let limits = Limits { runs: 1, ..Limits::default() };
    let server = start(Settings { limits, ..Settings::default() }).await;
    let waiting = ask("/flaky 1 --wait 6");
    let seen = all(server.post(&waiting).await).await;
    assert_eq!(errors(&seen).pop().unwrap().retry_after(), Some(6.0));
    // The body ends a moment before the run's place is free.
    let hang = ask("/hang");
    let mut busy = server.post(&hang).await;
    while busy.status() == 503 {
        busy = server.post(&hang).await;
    }
    assert_eq!(problem(server.post(&ask("/tokens 1")).await).await.code, "service_unavailable");
    let armed = server.post(&waiting).await;
    assert_eq!(armed.status(), 200, "it was admitted when it started");
    // It waits for its place as it waits for its time: the attempt begins when both are there.
    let state: Value = server
        .get(&format!("/v1/streams/{}/packets?limit=1", crate::common::stream_of(&armed)))
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(state["stream"]["state"], "running");
    server.delete(&format!("/v1/streams/{}", crate::common::stream_of(&busy))).await;
    assert_eq!(close_reason(&all(armed).await).as_deref(), Some("completed"));
    assert_eq!(server.waits(), [6.0]);
    server.stop().await;
}

#[tokio::test]
async fn json_mode_answers_with_the_whole_run_or_its_problem() {
    let server = start(Settings::default()).await;
    let accept = [("accept", "application/json")];
    let answer: Value = server.post_with(&ask("/tokens 3"), &accept).await.json().await.unwrap();
    assert!(answer["output"]["text"].as_str().unwrap().starts_with("tok"));
    assert_eq!(answer["metrics"]["attempts"], 1);
    let healed: Value = server.post_with(&ask("/flaky 1"), &accept).await.json().await.unwrap();
    assert_eq!(healed["metrics"]["attempts"], 2, "a healed run is a success");
    let response = server.post_with(&ask("/fault content_refused"), &accept).await;
    assert_eq!(response.status(), 502);
    assert_eq!(problem(response).await.code, "content_refused");
    server.stop().await;
}

#[tokio::test]
async fn bad_input_gets_a_problem_that_names_the_place() {
    let server = start(Settings::default()).await;
    let url = format!("{}/v1/assist", server.url);
    let json = |body: &'static str| {
        client().post(&url).header("content-type", "application/json").body(body).send()
    };
    for (response, status, code, part) in [
        (json("{").await, 400, "invalid_request", "not valid JSON"),
        (json("{}").await, 400, "invalid_request", "request_id: required"),
        (json("[]").await, 400, "invalid_request", "expected an object"),
        (
            client().post(&url).body("x").send().await,
            415,
            "unsupported_media_type",
            "application/json",
        ),
        (client().put(&url).send().await, 405, "method_not_allowed", ""),
        (client().get(format!("{}/nowhere", server.url)).send().await, 404, "route_not_found", ""),
        (
            client().get(format!("{}/v1/streams/x", server.url)).send().await,
            404,
            "stream_not_found",
            "",
        ),
        (
            client()
                .post(&url)
                .header("content-type", "application/json")
                .body(vec![b' '; 10 << 20])
                .send()
                .await,
            413,
            "payload_too_large",
            "larger",
        ),
    ] {
        let response = response.unwrap();
        assert_eq!(response.status(), status, "{code}");
        let problem = problem(response).await;
        assert_eq!(problem.code, code);
        assert!(problem.detail.unwrap().contains(part), "{code}: {part}");
    }
    let request = ask("/tokens 1");
    let wrong = server.post_with(&request, &[("last-event-id", "nonsense")]).await;
    assert_eq!(problem(wrong).await.code, "invalid_request");
    server.stop().await;
}

fn tenants() -> Settings {
    let tenant = |name: &str, key: &str| Tenant::new(name, vec![KeyHash::of(key)]);
    Settings {
        tenants: vec![tenant("a", "key-a"), tenant("b", "key-b")].into(),
        ..Settings::default()
    }
}

#[tokio::test]
async fn a_tenant_cannot_tell_whether_anothers_stream_exists() {
    let server = start(tenants()).await;
    let request = ask("/tokens 1");
    assert_eq!(problem(server.post(&request).await).await.code, "tenant_required");
    assert_eq!(
        problem(server.post_with(&request, &[("authorization", "Bearer nope")]).await).await.code,
        "tenant_unauthorized"
    );
    let claimed = [("authorization", "Bearer key-a"), ("x-tenant-id", "b")];
    assert_eq!(
        problem(server.post_with(&request, &claimed).await).await.code,
        "tenant_unauthorized"
    );
    let response = server.post_with(&request, &[("authorization", "Bearer key-a")]).await;
    let stream = response.headers()["x-stream-id"].to_str().unwrap().to_owned();
    all(response).await;
    let look = |stream: String| {
        client().get(format!("{}/v1/streams/{stream}", server.url)).bearer_auth("key-b").send()
    };
    let (theirs, nobodys) =
        (look(stream).await.unwrap(), look(uuid::Uuid::now_v7().to_string()).await.unwrap());
    assert_eq!(theirs.status(), nobodys.status());
    let (mut theirs, mut nobodys) = (problem(theirs).await, problem(nobodys).await);
    (theirs.request_id, nobodys.request_id) = (None, None);
    assert_eq!(theirs, nobodys);
    server.stop().await;
}

#[tokio::test]
async fn without_tenants_only_this_machine_may_ask() {
    let server = start(Settings::default()).await;
    let foreign = |name: &'static str, value: &'static str| {
        client().get(format!("{}/v1/streams", server.url)).header(name, value).send()
    };
    assert_eq!(foreign("host", "evil.example").await.unwrap().status(), 403);
    assert_eq!(foreign("origin", "https://evil.example").await.unwrap().status(), 403);
    let friendly = foreign("origin", "http://localhost:5173").await.unwrap();
    assert_eq!(friendly.headers()["access-control-allow-origin"], "http://localhost:5173");
    server.stop().await;
}

#[tokio::test]
async fn a_rate_limit_refuses_with_the_true_wait_and_leaves_no_claim() {
    let limits = Limits { requests_per_minute: 1, ..Limits::default() };
    let server = start(Settings { limits, ..Settings::default() }).await;
    let first = ask("/tokens 1");
    all(server.post(&first).await).await;
    let response = server.post(&ask("/tokens 1")).await;
    assert_eq!(response.status(), 429);
    let wait: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    let problem = problem(response).await;
    assert_eq!((problem.code.as_str(), problem.retry_after), ("rate_limit_exceeded", Some(wait)));
    assert!((1..=60).contains(&wait));
    all(server.post(&first).await).await;
    server.stop().await;
}

#[tokio::test]
async fn the_server_reports_health_and_metrics() {
    let server = start(Settings::default()).await;
    all(server.post(&ask("/tokens 4")).await).await;
    let health: Value = server.get("/health").await.json().await.unwrap();
    assert_eq!(health["status"], "ok");
    for path in ["/livez", "/readyz", "/", "/v1/errors", "/errors/rate-limited"] {
        assert_eq!(server.get(path).await.status(), 200, "{path}");
    }
    let metrics = server.get("/metrics").await.text().await.unwrap();
    for line in [
        "capstan_runs_total{outcome=\"completed\",agent=\"demo\"} 1",
        "capstan_packets_total{name=\"DELTA\"} 4",
        "capstan_attempts_total{name=\"demo\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_drained_server_interrupts_its_runs_and_another_life_continues_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::default();
    settings.timeouts.drain = std::time::Duration::ZERO;
    let server =
        crate::common::start_on(crate::common::disk(folder.path()), settings.clone()).await;
    let request = ask("/hang");
    let response = server.post(&request).await;
    server.stop().await;
    let seen = all(response).await;
    assert_eq!(errors(&seen).pop().unwrap().code, "run_interrupted");
    assert_eq!(close_reason(&seen), None);
    let server = crate::common::start_on(crate::common::disk(folder.path()), settings).await;
    let response = server.post(&request).await;
    let stream = response.headers()["x-stream-id"].to_str().unwrap().to_owned();
    client().delete(format!("{}/v1/streams/{stream}", server.url)).send().await.unwrap();
    assert_eq!(close_reason(&all(response).await).as_deref(), Some("cancelled"));
    server.stop().await;
}

#[tokio::test]
async fn a_server_whose_journal_takes_no_claim_is_not_ready() {
    let journal = journal();
    let server = start_on(journal.clone(), Settings::default()).await;
    journal.store().close().await.unwrap();
    let refused = problem(server.post(&ask("Hi")).await).await;
    assert_eq!((refused.status, refused.code.as_str()), (503, "journal_unavailable"));
    assert_eq!(server.get("/readyz").await.status(), 503);
    let health: Value = server.get("/health").await.json().await.unwrap();
    assert_eq!(health["status"], "degraded");
}

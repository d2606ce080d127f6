//! The AG-UI face over HTTP, against a real server: whole runs, every failure of the story, resume,
//! joins, both faces.

use std::fmt;
use std::time::Duration;

use crate::common::{Server, client, start};
use capstan_agent::{Agent, Failure, Outcome, Turn, Writer, async_trait};
use capstan_demo::Demo;
use capstan_gateway::{Gateway, KeyHash, Limits, Settings, Tenant, Timeouts};
use capstan_protocol::fault::{
    AgentNotFound, CapabilityNotFound, MessageLimitExceeded, PermissionDenied, RateLimitExceeded,
    ServiceUnavailable, SessionLimitExceeded, SessionNotFound, TenantRequired, UpstreamStatus,
    UpstreamTimeout, Validation,
};
use capstan_protocol::{AguiErrorCode, CATALOGUE, Exposure};
use serde_json::{Value, json};
use uuid::Uuid;

const SECRET: &str = "/srv/tenants/acme/secret.db";

/// What an agent may stumble over; its text must not leave the process.
#[derive(Debug)]
struct Inside;

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot open {SECRET}")
    }
}

impl std::error::Error for Inside {}

/// Says a word, then fails as it is told; `payload` shows what it was given.
struct Failing;

#[async_trait]
impl Agent for Failing {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        if turn.text() == "payload" {
            let given = json!([
                &*turn.tools,
                turn.state.as_deref(),
                &*turn.context,
                turn.forwarded.as_deref()
            ]);
            let history: Vec<String> = turn.history.iter().map(|message| message.text()).collect();
            out.delta(json!([given, history]).to_string()).await?;
            return Ok(());
        }
        out.delta("Well, ").await?;
        Err(failure(&turn.text()).await)
    }
}

async fn failure(name: &str) -> Failure {
    match name {
        "rate limit" => RateLimitExceeded { retry_after: None }.into(),
        "session limit" => SessionLimitExceeded.into(),
        "message limit" => MessageLimitExceeded.into(),
        "time-out" => tokio::time::timeout(Duration::ZERO, std::future::pending::<()>())
            .await
            .unwrap_err()
            .into(),
        "upstream time-out" => UpstreamTimeout.into(),
        "upstream status" => UpstreamStatus { status: 500, retry_after: None }.into(),
        "agent not found" => AgentNotFound.into(),
        "capability not found" => CapabilityNotFound.into(),
        "tenant required" => TenantRequired.into(),
        "permission denied" => PermissionDenied.into(),
        "validation" => Validation { message: "amount: must be positive".into() }.into(),
        "session not found" => SessionNotFound.into(),
        "service unavailable" => ServiceUnavailable.into(),
        "lookup" => std::env::var("CAPSTAN_NO_SUCH_VARIABLE").unwrap_err().into(),
        _ => Inside.into(),
    }
}

/// Every exception of the story, and what the bridge must make of it.
const STORY: &[(&str, AguiErrorCode, u16)] = &[
    ("rate limit", AguiErrorCode::RateLimited, 429),
    ("session limit", AguiErrorCode::RateLimited, 429),
    ("message limit", AguiErrorCode::RateLimited, 429),
    ("time-out", AguiErrorCode::Timeout, 504),
    ("upstream time-out", AguiErrorCode::Timeout, 504),
    ("upstream status", AguiErrorCode::UpstreamError, 502),
    ("agent not found", AguiErrorCode::CapabilityNotFound, 404),
    ("capability not found", AguiErrorCode::CapabilityNotFound, 404),
    ("tenant required", AguiErrorCode::TenantRequired, 401),
    ("permission denied", AguiErrorCode::TenantUnauthorized, 403),
    ("validation", AguiErrorCode::InvalidRequest, 400),
    ("session not found", AguiErrorCode::SessionNotFound, 404),
    ("service unavailable", AguiErrorCode::ServiceUnavailable, 503),
    ("lookup", AguiErrorCode::AgentExecutionError, 500),
    ("anything else", AguiErrorCode::AgentExecutionError, 500),
];

async fn start_failing(settings: Settings) -> Server {
    let demo = Demo::with_delay(Duration::ZERO);
    let gateway =
        Gateway::new(crate::common::journal()).agent("failing", Failing).agent("demo", demo);
    crate::common::serve_gateway(gateway.settings(settings)).await
}

fn input(text: &str) -> Value {
    json!({ "threadId": Uuid::now_v7().to_string(), "runId": format!("run {}", Uuid::now_v7()),
    "state": {},
        "messages": [{ "id": "u", "role": "user", "content": text }], "tools": [], "context": [] })
}

fn of_v1(mut input: Value) -> Value {
    input["protocolVersion"] = "1.0".into();
    input
}

async fn post_to(
    server: &Server,
    path: &str,
    input: &Value,
    headers: &[(&str, &str)],
) -> reqwest::Response {
    let mut request = client().post(format!("{}{path}", server.url)).json(input);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap()
}

async fn post(server: &Server, input: &Value, headers: &[(&str, &str)]) -> reqwest::Response {
    post_to(server, "/v1/ag-ui", input, headers).await
}

/// A frame: its id, its name, its event.
#[derive(Debug, Clone, PartialEq)]
struct Said {
    id: Option<String>,
    name: Option<String>,
    event: Value,
}

fn said(body: &str) -> Vec<Said> {
    assert!(!body.contains('\r') && !body.contains("data: \n") && body.ends_with("\n\n"), "{body}");
    let line = |frame: &str, name: &str| {
        frame.lines().find_map(|l| l.strip_prefix(name)).map(str::to_owned)
    };
    let frames = body.split("\n\n").filter(|frame| frame.contains("data: "));
    let said = |frame: &str| Said {
        id: line(frame, "id: "),
        name: line(frame, "event: "),
        event: serde_json::from_str(&line(frame, "data: ").unwrap()).unwrap(),
    };
    frames.map(said).collect()
}

async fn body(response: reqwest::Response) -> String {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    response.text().await.unwrap()
}

async fn run(server: &Server, input: &Value) -> Vec<Said> {
    said(&body(post(server, input, &[]).await).await)
}

fn types(said: &[Said]) -> Vec<&str> {
    said.iter().map(|said| said.event["type"].as_str().unwrap()).collect()
}

fn text(said: &[Said]) -> String {
    let pieces = said.iter().filter(|said| said.event["type"] == "TEXT_MESSAGE_CONTENT");
    pieces.map(|said| said.event["delta"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_run_is_framed_as_agui_clients_want_it() {
    let server = start(Settings::default()).await;
    let response = post(&server, &input("/tokens 3"), &[]).await;
    let stream = response.headers()["x-stream-id"].to_str().unwrap().to_owned();
    assert_eq!(response.headers()["cache-control"], "no-store, no-transform");
    let said = said(&body(response).await);
    let expected = [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ];
    assert_eq!(types(&said), expected);
    let ids: Vec<String> = said.iter().map(|said| said.id.clone().unwrap()).collect();
    let places = ["0.1", "1.1", "1.2", "2.1", "3.1", "4.1", "4.2"];
    assert_eq!(ids, places.map(|place| format!("{stream}:{place}")));
    assert!(said.iter().all(|said| said.event["timestamp"].is_i64() && said.name.is_none()));
    server.stop().await;
}

#[tokio::test]
async fn every_exception_of_the_story_becomes_its_run_error() {
    let server = start_failing(Settings::default()).await;
    for (name, code, status) in STORY {
        let said = run(&server, &input(name)).await;
        let last = said.last().unwrap();
        assert_eq!(last.name.as_deref(), Some("RUN_ERROR"), "{name}");
        let event = &last.event;
        assert_eq!(
            (&event["code"], &event["http_status"]),
            (&code.as_str().into(), &(*status).into()),
            "{name}"
        );
        assert!(event["message"].is_string() && event["details"].is_object(), "{name}");
        assert_eq!(said.iter().filter(|said| said.event["type"] == "RUN_ERROR").count(), 1);
        assert_eq!(text(&said), "Well, ", "what was said before stays: {name}");
        let ours = &event["metadata"]["capstan"];
        for member in ["kind", "severity", "domain", "retryable", "type"] {
            assert!(!ours[member].is_null(), "{name}: {member}");
        }
        assert_eq!(&ours["http_status"], &event["http_status"]);
    }
    let limited = run(&server, &input("rate limit")).await;
    assert_eq!(limited.last().unwrap().event["retry_after"], 60);
    let full = run(&server, &input("message limit")).await;
    assert_eq!(full.last().unwrap().event.get("retry_after"), None, "absent, never null");
    server.stop().await;
}

#[tokio::test]
async fn every_kind_of_the_catalogue_ends_a_run_with_its_code() {
    let server = start(Settings::default()).await;
    for entry in CATALOGUE {
        let said = run(&server, &input(&format!("/fault {}", entry.code))).await;
        let event = &said.last().unwrap().event;
        assert_eq!(event["code"], entry.agui.as_str(), "{}", entry.code);
        assert_eq!(event["http_status"], entry.agui.http_status(), "{}", entry.code);
        assert_eq!(event["metadata"]["capstan"]["kind"], entry.code);
    }
    server.stop().await;
}

#[tokio::test]
async fn in_production_nothing_of_the_inside_leaves() {
    let server = start_failing(Settings::default()).await;
    for name in ["anything else", "lookup"] {
        let body = body(post(&server, &input(name), &[]).await).await;
        for leak in [
            SECRET,
            "secret",
            "Inside",
            "VarError",
            "src/",
            "acme",
            "error_type",
            "source_chain",
            "backtrace",
        ] {
            assert!(!body.contains(leak), "{leak} in {body}");
        }
        let event = said(&body).pop().unwrap().event;
        assert_eq!(event["message"], "An error occurred processing your request.");
        assert_eq!(event["details"], json!({}));
    }
    let demo = |text: &str| input(text);
    let panicked =
        body(post_to(&server, "/v1/agents/demo/ag-ui", &demo("/panic"), &[]).await).await;
    assert!(!panicked.contains("asked to panic") && panicked.contains("AGENT_EXECUTION_ERROR"));
    server.stop().await;
}

#[tokio::test]
async fn in_debug_mode_an_unknown_failure_names_its_type() {
    let server = start_failing(Settings { exposure: Exposure::Debug, ..Settings::default() }).await;
    let said = run(&server, &input("anything else")).await;
    let event = &said.last().unwrap().event;
    assert_eq!(
        (&event["code"], &event["http_status"]),
        (&"AGENT_EXECUTION_ERROR".into(), &500.into())
    );
    assert!(event["details"]["error_type"].as_str().unwrap().contains("Inside"), "{event}");
    assert_eq!(event["message"], "An error occurred processing your request.");
    server.stop().await;
}

#[tokio::test]
async fn a_peer_that_declares_its_version_gets_metadata_only() {
    let server = start(Settings::default()).await;
    let said = run(&server, &of_v1(input("/fault rate_limit_exceeded"))).await;
    assert_eq!(said[0].event["protocolVersion"], "1.0");
    let event = said.last().unwrap().event.as_object().unwrap().clone();
    let mut members: Vec<&str> = event.keys().map(String::as_str).collect();
    members.sort_unstable();
    assert_eq!(members, ["code", "message", "metadata", "timestamp", "type"]);
    assert_eq!(event["metadata"]["capstan"]["retry_after"], 60);
    server.stop().await;
}

#[tokio::test]
async fn the_text_message_for_old_front_ends_is_a_switch() {
    let server = start(Settings { agui_error_text: true, ..Settings::default() }).await;
    let said = run(&server, &input("/fault content_refused")).await;
    let end = [
        "TEXT_MESSAGE_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_ERROR",
    ];
    assert_eq!(types(&said)[said.len() - 5..], end);
    let (told, error) = (&said[said.len() - 3].event, &said.last().unwrap().event);
    assert_eq!(told["delta"], error["message"]);
    server.stop().await;
}

#[tokio::test]
async fn a_cut_at_every_event_resumes_with_the_very_same_bytes() {
    let server = start(Settings::default()).await;
    for command in ["/tokens 8", "/events", "/diverge", "/fault content_refused", "/warn"] {
        let input = input(command);
        let whole = body(post(&server, &input, &[]).await).await;
        let frames = said(&whole);
        for (at, frame) in frames.iter().enumerate() {
            let id = frame.id.as_deref().unwrap();
            let resumed = body(post(&server, &input, &[("last-event-id", id)]).await).await;
            if at + 1 == frames.len() {
                let again = said(&resumed);
                assert_eq!(
                    (again.len(), &again[0].event, &again[0].id),
                    (1, &frame.event, &None),
                    "the end again"
                );
            } else {
                let rest = resumed.strip_prefix(":\n").unwrap();
                assert!(
                    whole.ends_with(rest) && said(rest).len() == frames.len() - at - 1,
                    "{command} after {id}"
                );
            }
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn tanstacks_join_replays_all_and_takes_cursors() {
    let server = start(Settings::default()).await;
    let input = input("/tokens 5");
    let whole = body(post(&server, &input, &[]).await).await;
    let ids: Vec<String> = said(&whole).into_iter().map(|said| said.id.unwrap()).collect();
    let join = |query: &[(&str, &str)]| {
        let mut url = reqwest::Url::parse(&format!("{}/v1/ag-ui", server.url)).unwrap();
        url.query_pairs_mut().extend_pairs(query);
        client().get(url)
    };
    let run_id = input["runId"].as_str().unwrap();
    let all = join(&[("runId", run_id), ("offset", "-1")]).send().await.unwrap();
    assert_eq!(body(all).await, whole);
    let after = join(&[("runId", run_id), ("offset", &ids[2])]).send().await.unwrap();
    assert_eq!(said(&body(after).await), said(&whole)[3..]);
    let header = join(&[("runId", run_id), ("offset", "-1")]).header("last-event-id", &ids[4]);
    assert_eq!(
        said(&body(header.send().await.unwrap()).await),
        said(&whole)[5..],
        "the header is the newer word"
    );
    let unknown = said(&body(join(&[("runId", "nobody")]).send().await.unwrap()).await);
    assert_eq!(
        (types(&unknown), &unknown[0].event["code"]),
        (vec!["RUN_ERROR"], &"SESSION_NOT_FOUND".into())
    );
    for wrong in [&[("offset", "-1")][..], &[("runId", run_id), ("offset", "soon")]] {
        let response = join(wrong).send().await.unwrap();
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_late_joiner_gets_the_whole_conversation() {
    let server = start(Settings::default()).await;
    let mut input = input("/events");
    input["state"] = json!({ "n": 1 });
    let whole = run(&server, &input).await;
    let joined = run(&server, &input).await;
    assert_eq!(types(&joined)[..3], ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT"]);
    assert_eq!(joined[2].event["snapshot"], json!({ "n": 1 }));
    let messages = joined[1].event["messages"].as_array().unwrap();
    assert_eq!(messages[0], input["messages"][0], "the input as it came");
    let answer: String = messages[1..]
        .iter()
        .filter(|m| m["role"] == "assistant")
        .map(|m| m["content"].as_str().unwrap())
        .collect();
    assert_eq!(answer + &text(&joined), text(&whole));
    let custom = |said: &[Said]| {
        said.iter()
            .filter(|s| s.event["type"] == "CUSTOM")
            .map(|s| s.event.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(custom(&joined), custom(&whole));
    assert_eq!(joined.last(), whole.last());
    server.stop().await;
}

#[tokio::test]
async fn a_waiting_run_sends_run_error_and_continues_after_it() {
    let server = start(Settings::default()).await;
    let input = input("/flaky 1 --wait 6");
    let first = run(&server, &input).await;
    let error = first.last().unwrap();
    assert_eq!(
        (&error.event["code"], &error.event["retry_after"]),
        (&"UPSTREAM_ERROR".into(), &6.into())
    );
    assert_eq!(error.event["metadata"]["capstan"]["severity"], "TRANSIENT");
    let second = said(
        &body(post(&server, &input, &[("last-event-id", error.id.as_deref().unwrap())]).await)
            .await,
    );
    assert_eq!(types(&second)[..3], ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]);
    assert_eq!(
        second[1].event["messageId"], first[1].event["messageId"],
        "the same message goes on"
    );
    assert_eq!(types(&second).last(), Some(&"RUN_FINISHED"));
    assert_eq!(server.waits(), [6.0], "it goes on when the wait is over, and not before");
    let whole = run(
        &server,
        &json!({ "threadId": "t", "runId": "steady", "messages": [{ "id": "u",
    "role": "user", "content": "/flaky 0" }] }),
    )
    .await;
    assert_eq!(text(&first) + &text(&second), text(&whole));
    // For whoever replays it later, the failed attempt is history.
    let path = format!(
        "/v1/ag-ui?runId={}&offset=-1",
        input["runId"].as_str().unwrap().replace(' ', "%20")
    );
    let replay = said(&body(server.get(&path).await).await);
    let failed = replay.iter().find(|said| said.event["name"] == "capstan.attempt_failed").unwrap();
    assert_eq!(failed.event["value"]["code"], "upstream_truncated");
    assert_eq!(types(&replay).iter().filter(|kind| kind.starts_with("RUN_")).count(), 2);
    server.stop().await;
}

#[tokio::test]
async fn a_diverging_attempt_restates_the_messages() {
    let server = start(Settings::default()).await;
    let said = run(&server, &input("/diverge")).await;
    let at = types(&said).iter().position(|kind| *kind == "MESSAGES_SNAPSHOT").unwrap();
    assert_eq!(said[at + 1].event["name"], "capstan.reset");
    let messages = said[at].event["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2);
    let kept = messages[1]["content"].as_str().unwrap();
    let whole = "The answer, I am quite sure, depends on the question; on second thoughts I \
     should have asked for that before I spoke.";
    assert_eq!(format!("{kept}{}", text(&said[at..])), whole);
    server.stop().await;
}

#[tokio::test]
async fn a_stop_is_cancelled_for_peers_that_know_the_word() {
    let server = start(Settings::default()).await;
    for (input, outcome) in
        [(input("/hang"), Value::Null), (of_v1(input("/hang")), json!({ "type": "cancelled" }))]
    {
        let response = post(&server, &input, &[]).await;
        let stream = response.headers()["x-stream-id"].to_str().unwrap().to_owned();
        client().delete(format!("{}/v1/streams/{stream}", server.url)).send().await.unwrap();
        let said = said(&body(response).await);
        assert_eq!(types(&said), ["RUN_STARTED", "RUN_FINISHED"]);
        assert_eq!(said[1].event["outcome"], outcome);
        assert_eq!(said[1].event["metadata"]["capstan"]["reason"], "cancelled");
    }
    server.stop().await;
}

#[tokio::test]
async fn either_face_can_watch_what_the_other_started() {
    let server = start(Settings::default()).await;
    let response = server.post(&crate::common::ask("/tokens 3")).await;
    let stream = response.headers()["x-stream-id"].to_str().unwrap().to_owned();
    crate::common::all(response).await;
    let path = format!("/v1/streams/{stream}?face=ag-ui");
    let joined = said(&body(server.get(&path).await).await);
    assert_eq!(types(&joined)[..2], ["RUN_STARTED", "MESSAGES_SNAPSHOT"]);
    assert_eq!(joined[1].event["messages"][0]["content"], "/tokens 3");
    let all = said(&body(server.get(&format!("{path}&after=0")).await).await);
    assert_eq!(text(&all), "tok1 tok2 tok3 ");
    let last = all.last().unwrap().id.clone().unwrap();
    let ended = client()
        .get(format!("{}{path}", server.url))
        .header("last-event-id", last)
        .send()
        .await
        .unwrap();
    assert_eq!(ended.status(), 204, "an EventSource stops");
    let response = post(&server, &input("/tokens 2"), &[]).await;
    let stream = response.headers()["x-stream-id"].to_str().unwrap().to_owned();
    body(response).await;
    let packets =
        crate::common::all(server.get(&format!("/v1/streams/{stream}?face=cap")).await).await;
    assert_eq!(crate::common::text(&packets), "tok1 tok2 ");
    let wrong = server.get(&format!("/v1/streams/{stream}?face=soap")).await;
    assert_eq!(wrong.status(), 400);
    server.stop().await;
}

#[tokio::test]
async fn a_key_is_one_run_whatever_the_face() {
    let timeouts = Timeouts { drain: Duration::ZERO, ..Timeouts::default() };
    let server = start(Settings { timeouts, ..Settings::default() }).await;
    let request = crate::common::ask("/tokens 1");
    crate::common::all(server.post(&request).await).await;
    let mut same = input("/tokens 1");
    same["runId"] = request.request_id.to_string().into();
    let said = run(&server, &same).await;
    assert_eq!(
        (types(&said), &said[0].event["metadata"]["capstan"]["kind"]),
        (vec!["RUN_ERROR"], &"request_conflict".into())
    );
    let input = input("/hang");
    let (first, second) = (post(&server, &input, &[]).await, post(&server, &input, &[]).await);
    assert_eq!(first.headers()["x-stream-id"], second.headers()["x-stream-id"]);
    server.stop().await;
}

#[tokio::test]
async fn refusals_before_the_run_are_a_stream_of_one_run_error() {
    let limits = Limits { requests_per_minute: 1, ..Limits::default() };
    let server = start(Settings { limits, ..Settings::default() }).await;
    run(&server, &input("/tokens 1")).await;
    let limited = run(&server, &input("/tokens 1")).await;
    assert_eq!((types(&limited), &limited[0].id), (vec!["RUN_ERROR"], &None));
    assert_eq!(limited[0].event["code"], "RATE_LIMITED");
    assert!((1..=60).contains(&limited[0].event["retry_after"].as_u64().unwrap()));
    let nobody =
        said(&body(post_to(&server, "/v1/agents/nobody/ag-ui", &input("Hi"), &[]).await).await);
    assert_eq!(nobody[0].event["code"], "CAPABILITY_NOT_FOUND");
    let gone = format!("{}:3.1", Uuid::now_v7());
    let gone = said(&body(post(&server, &input("Hi"), &[("last-event-id", &gone)]).await).await);
    assert_eq!(gone[0].event["metadata"]["capstan"]["kind"], "stream_expired");
    server.stop().await;
    let limits = Limits { messages_per_session: 1, sessions: 1, ..Limits::default() };
    let server = start(Settings { limits, ..Settings::default() }).await;
    let mut first = input("/tokens 1");
    run(&server, &first).await;
    first["runId"] = "another".into();
    for (input, kind) in
        [(first, "message_limit_exceeded"), (input("Hi"), "session_limit_exceeded")]
    {
        let said = run(&server, &input).await;
        assert_eq!(said[0].event["metadata"]["capstan"]["kind"], kind);
        assert_eq!(
            (&said[0].event["code"], &said[0].event["http_status"]),
            (&"RATE_LIMITED".into(), &429.into())
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn unreadable_and_unauthorised_requests_get_http_statuses() {
    let tenant = Tenant::new("acme", vec![KeyHash::of("key-a")]);
    let server = start(Settings { tenants: vec![tenant].into(), ..Settings::default() }).await;
    let key = [("authorization", "Bearer key-a")];
    for (response, status, code) in [
        (post(&server, &input("Hi"), &[]).await, 401, "tenant_required"),
        (
            post(&server, &input("Hi"), &[("authorization", "Bearer no")]).await,
            403,
            "tenant_unauthorized",
        ),
        (post(&server, &json!({ "threadId": "t" }), &key).await, 400, "invalid_request"),
        (post(&server, &json!([]), &key).await, 400, "invalid_request"),
        (
            post(&server, &input("Hi"), &[key[0], ("last-event-id", "x")]).await,
            400,
            "invalid_request",
        ),
    ] {
        assert_eq!(response.status(), status, "{code}");
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let problem: Value = response.json().await.unwrap();
        assert_eq!(problem["code"], code);
        assert!(
            !problem.to_string().contains("acme"),
            "another tenant's name is nobody's business"
        );
    }
    assert_eq!(text(&said(&body(post(&server, &input("/tokens 1"), &key).await).await)), "tok1 ");
    server.stop().await;
}

#[tokio::test]
async fn a_drained_server_ends_its_runs_in_types() {
    let mut settings = Settings::default();
    settings.timeouts.drain = Duration::ZERO;
    let server = start(settings).await;
    let response = post(&server, &input("/hang"), &[]).await;
    server.stop().await;
    let said = said(&body(response).await);
    assert_eq!(types(&said), ["RUN_STARTED", "RUN_ERROR"]);
    assert_eq!(said[1].event["metadata"]["capstan"]["kind"], "run_interrupted");
    assert_eq!(said[1].event["code"], "SERVICE_UNAVAILABLE");
}

#[tokio::test]
async fn a_body_without_a_terminal_event_never_ends_cleanly() {
    let mut settings = Settings::default();
    settings.timeouts.drain = Duration::ZERO;
    let server = start(settings).await;
    let waiting = input("/fault upstream_truncated");
    let error = run(&server, &waiting).await.pop().unwrap();
    // A viewer that has seen the run's RUN_ERROR and waits for what comes next, which is the end of
    // the server.
    let url = format!(
        "{}/v1/ag-ui?runId={}",
        server.url,
        waiting["runId"].as_str().unwrap().replace(' ', "%20")
    );
    let viewer = client().get(url).header("last-event-id", error.id.unwrap()).send().await.unwrap();
    assert_eq!(viewer.status(), 200);
    server.stop().await;
    assert!(viewer.text().await.is_err(), "a clean end would be read as success");
}

#[tokio::test]
async fn the_agent_gets_tools_state_context_and_history() {
    let server = start_failing(Settings::default()).await;
    let mut input = input("payload");
    input["tools"] = json!([{ "name": "search", "description": "d", "parameters": {} }]);
    input["state"] = json!({ "n": 1 });
    input["context"] = json!([{ "description": "d", "value": "v" }]);
    input["forwardedProps"] = json!({ "x": 2 });
    input["messages"] = json!([
        { "id": "1", "role": "user", "content": "a" }, { "id": "2", "role": "assistant",
        "content": "b" },
        { "id": "3", "role": "user", "content": "payload" } ]);
    let given: Value = serde_json::from_str(&text(&run(&server, &input).await)).unwrap();
    assert_eq!(
        given,
        json!([
            [input["tools"], input["state"], input["context"], input["forwardedProps"]],
            ["a", "b"]
        ])
    );
    server.stop().await;
}

#[tokio::test]
async fn events_are_counted_by_type_and_errors_by_code() {
    let server = start(Settings::default()).await;
    run(&server, &input("/tokens 4")).await;
    run(&server, &input("/fault content_refused")).await;
    post_to(&server, "/v1/agents/nobody/ag-ui", &input("Hi"), &[]).await.text().await.unwrap();
    let metrics = server.get("/metrics").await.text().await.unwrap();
    for line in [
        "capstan_face_events_total{face=\"ag-ui\",name=\"RUN_STARTED\"} 2",
        "capstan_face_events_total{face=\"ag-ui\",name=\"TEXT_MESSAGE_CONTENT\"} 7",
        "capstan_face_events_total{face=\"ag-ui\",name=\"RUN_ERROR\"} 2",
        "capstan_face_errors_total{face=\"ag-ui\",name=\"UPSTREAM_ERROR\"} 1",
        "capstan_face_errors_total{face=\"ag-ui\",name=\"CAPABILITY_NOT_FOUND\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    server.stop().await;
}

#[tokio::test]
async fn of_many_joiners_one_reads_the_stream() {
    const PACKETS: usize = 3000;
    let store = crate::common::odd_store::OddStore::new().shared();
    let gateway =
        capstan_gateway::Gateway::new(store.journal()).agent("demo", crate::common::demo());
    let server = crate::common::serve_gateway(gateway).await;
    let response = server.post(&crate::common::ask(&format!("/tokens {PACKETS}"))).await;
    let path = format!("/v1/streams/{}?face=ag-ui", crate::common::stream_of(&response));
    let said = crate::common::text(&crate::common::all(response).await);
    let before = store.frames.load(std::sync::atomic::Ordering::Relaxed);
    for _ in 0..10 {
        let body = server.get(&path).await.text().await.unwrap();
        assert!(body.contains(said.trim_end()) && body.contains("RUN_FINISHED"));
    }
    let read = store.frames.load(std::sync::atomic::Ordering::Relaxed) - before;
    assert!(read < 2 * PACKETS, "{read} frames were read for ten viewers of {PACKETS}");
}

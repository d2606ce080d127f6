//! The console's questions: what they tell, to whom, and what they keep to themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::io;
use std::sync::{Arc, Mutex};

use capstan_gateway::{
    ConsoleSettings, ContentRule, Gateway, KeyHash, Operator, Right, Scope, Settings, Tenant, TenantKey,
};
use common::{
    Server, all, ask, ask_in, client, demo, disk, journal, problem, serve_gateway, start, stream_of,
};
use reqwest::{Method, Response};
use serde_json::Value;
use uuid::Uuid;

/// What nobody may see who may not.
const SECRET: &str = "xyzzy-secret-word";

async fn send(server: &Server, method: &str, path: &str, key: Option<&str>) -> Response {
    let request = client().request(method.parse::<Method>().unwrap(), format!("{}{path}", server.url));
    key.into_iter().fold(request, |request, key| request.bearer_auth(key)).send().await.unwrap()
}

async fn json(server: &Server, path: &str, key: Option<&str>) -> Value {
    let response = send(server, "GET", path, key).await;
    assert_eq!(response.status(), 200, "{path}");
    assert_eq!(response.headers()["cache-control"], "no-store", "{path}");
    response.json().await.unwrap()
}

/// Runs it to its end; its stream.
async fn run(server: &Server, text: &str, headers: &[(&str, &str)]) -> String {
    let response = server.post_with(&ask(text), headers).await;
    let stream = stream_of(&response);
    all(response).await;
    stream
}

async fn run_as(server: &Server, key: &str, text: &str) -> String {
    run(server, text, &[("authorization", &format!("Bearer {key}"))]).await
}

fn operator(name: &str, tenants: &[&str], may: &[Right]) -> Operator {
    let (keys, tenants) = (vec![KeyHash::of(name)], tenants.iter().map(|name| (*name).to_owned()).collect());
    Operator { name: name.to_owned(), keys, tenants, may: may.to_vec() }
}

/// Two tenants, one of whom nothing is stored, one that lets nobody see what was said; and operators.
fn settings() -> Settings {
    let tenant = |name: &str| Tenant::new(name, vec![KeyHash::of(&format!("key-{name}"))]);
    let mut a = tenant("a");
    a.keys.push(TenantKey { hash: KeyHash::of("reader-a"), scopes: [Scope::Read].into_iter().collect() });
    let silent = Tenant { no_store: true, ..tenant("silent") };
    let closed = Tenant { console_content: false, ..tenant("closed") };
    let operators = vec![
        operator("looker", &["*"], &[Right::Look]),
        operator("seer", &["*"], &[Right::Look, Right::Content]),
        operator("doer", &["*"], &[Right::Look, Right::Act]),
        operator("of-b", &["b"], &[Right::Look, Right::Content, Right::Act]),
        operator("blind", &["*"], &[Right::Content]),
    ];
    let tenants = vec![a, tenant("b"), silent, closed];
    Settings { tenants: tenants.into(), operators: operators.into(), ..Settings::default() }
}

fn ids(list: &Value) -> Vec<String> {
    list["runs"].as_array().unwrap().iter().map(|run| run["stream_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_run_is_told_with_all_attempts_what_its_fault_means_and_what_to_do() {
    let server = start(Settings::default()).await;
    let healed = run(&server, "/flaky 1", &[("x-request-id", "ticket-7")]).await;
    let told = json(&server, &format!("/v1/console/runs/{healed}"), None).await;
    assert_eq!(told["row"]["state"], "healed");
    assert_eq!(told["row"]["attempts"].as_array().unwrap().len(), 2);
    let attempts = told["attempts"].as_array().unwrap();
    assert!(attempts[0]["fault"].is_string() && attempts[0]["fault_title"].is_string());
    assert!(attempts[0]["began_at"].is_string() && attempts[0]["ended_at"].is_string());
    assert!(attempts[1].get("fault").is_none());
    assert!(told.get("fault").is_none(), "it was healed: {told}");
    assert!(told["sentence"].as_str().unwrap().starts_with("Done in attempt 2"), "{told}");
    assert_eq!(told["request_id"], "ticket-7");
    assert_eq!(told["may"], serde_json::json!({ "content": true, "act": true }));

    let failed = run(&server, "/fault context_length_exceeded", &[]).await;
    let told = json(&server, &format!("/v1/console/runs/{failed}"), None).await;
    assert_eq!(told["row"]["state"], "failed");
    let fault = &told["fault"];
    assert_eq!(fault["code"], told["row"]["fault"]);
    for member in ["title", "meaning", "remedy", "agui_code", "severity", "domain"] {
        assert!(fault[member].is_string(), "{member}: {fault}");
    }
    assert!(fault["status"].as_u64().is_some_and(|status| status >= 400));
    assert!(fault["details"]["message"].is_string(), "its own words, for who may see them: {fault}");
    assert!(told["sentence"].as_str().unwrap().starts_with("Failed after 1 attempt in"), "{told}");
    assert_eq!(told["viewers_sum"]["joined"], 1, "{told}");
}

#[tokio::test]
async fn runs_are_listed_by_what_people_ask_for_and_a_page_says_how_far_it_looked() {
    let server = start(Settings::default()).await;
    let done = run(&server, "/tokens 3", &[]).await;
    let healed = run(&server, "/flaky 1", &[]).await;
    let failed = run(&server, "/fault context_length_exceeded", &[]).await;
    let list = async |query: &str| json(&server, &format!("/v1/console/runs?{query}"), None).await;
    let everything = list("").await;
    assert_eq!(ids(&everything), [failed.clone(), healed.clone(), done.clone()]);
    assert_eq!((&everything["complete"], &everything["next"]), (&Value::Bool(true), &Value::Null));
    assert_eq!(everything["looked_back_to"], Value::Null);
    let row = &everything["runs"][2];
    assert!(
        row["first_packet_ms"].is_u64() && row["duration_ms"].is_u64() && row["packets"].as_u64() > Some(3)
    );
    for (query, expected) in [
        ("state=done", vec![&done]),
        ("state=healed", vec![&healed]),
        ("state=failed", vec![&failed]),
        ("state=running", vec![]),
        ("fault=context_length_exceeded", vec![&failed]),
        ("agent=demo&state=done", vec![&done]),
        ("agent=nobody", vec![]),
        ("tenant=local&limit=9", vec![&failed, &healed, &done]),
        ("tenant=nobody", vec![]),
        ("since=2999-01-01T00:00:00Z", vec![]),
        ("until=2001-01-01T00:00:00Z", vec![]),
    ] {
        let found = ids(&list(query).await);
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{query}");
    }
    let first = list("limit=1").await;
    assert_eq!((ids(&first), first["complete"].as_bool()), (vec![failed], Some(false)));
    assert!(first["looked_back_to"].is_string());
    let next = list(&format!("limit=1&before={}", first["next"].as_str().unwrap())).await;
    assert_eq!(ids(&next), [healed]);
    let wrong = server.get("/v1/console/runs?state=odd").await;
    assert!(problem(wrong).await.detail.unwrap().contains("healed"));
}

#[tokio::test]
async fn any_id_leads_to_its_run_and_a_refused_request_to_its_refusal() {
    let server = start(Settings { limits: limits_of_one_request(), ..Settings::default() }).await;
    let session = Uuid::now_v7();
    let request = ask_in(session, "/tokens 2");
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let response =
        server.post_with(&request, &[("x-request-id", "ticket-1"), ("traceparent", &parent)]).await;
    let stream = stream_of(&response);
    all(response).await;
    let key = request.request_id.to_string();
    let find = async |q: &str| json(&server, &format!("/v1/console/find?q={q}"), None).await;
    for (q, kind) in [
        (stream.as_str(), "stream"),
        (&stream[..13], "stream"),
        (&format!("{stream}:2"), "cursor"),
        ("ticket-1", "request_id"),
        (trace, "trace"),
        (&key, "key"),
    ] {
        let found = find(q).await;
        assert_eq!(found["hits"][0]["kind"], kind, "{q}: {found}");
        assert_eq!(found["hits"][0]["stream_id"], stream.as_str(), "{q}");
        assert_eq!(found["hits"].as_array().unwrap().len(), 1, "{q}: {found}");
    }
    assert_eq!(find(&format!("{stream}:2")).await["hits"][0]["seq"], 2);
    let by_session = find(&session.to_string()).await;
    assert_eq!(by_session["hits"][0]["kind"], "session");
    // Never a part of something.
    for q in ["ticket", &stream[..7], "nothing"] {
        let found = find(q).await;
        assert!(found["hits"].as_array().unwrap().is_empty(), "{q}: {found}");
        assert!(!found["looked"].as_array().unwrap().is_empty(), "it says where it looked");
    }
    let refused = server.post_with(&ask("again"), &[("x-request-id", "ticket-2")]).await;
    assert_eq!(refused.status(), 429);
    let found = find("ticket-2").await;
    let refusal = &found["refusals"][0];
    assert_eq!((&refusal["status"], &refusal["route"]), (&429.into(), &"/v1/assist".into()), "{found}");
    assert!(refusal["title"].is_string() && found["hits"].as_array().unwrap().is_empty());
}

fn limits_of_one_request() -> capstan_gateway::Limits {
    capstan_gateway::Limits { requests_per_minute: 1, ..capstan_gateway::Limits::default() }
}

#[tokio::test]
async fn a_download_is_what_a_viewer_was_sent_and_marks_tell_no_word_of_it() {
    let server = start(Settings::default()).await;
    let stream = run(&server, &format!("/echo {SECRET}"), &[]).await;
    let watched = server.get(&format!("/v1/streams/{stream}")).await.bytes().await.unwrap();
    let frames = server.get(&format!("/v1/console/runs/{stream}/frames")).await;
    assert_eq!(frames.headers()["content-type"], "text/event-stream");
    assert_eq!(frames.bytes().await.unwrap(), watched, "byte for byte");
    for (face, query) in [("cap-v2", "profile=v2"), ("ag-ui", "face=ag-ui")] {
        let told = server.get(&format!("/v1/console/runs/{stream}/frames?face={face}")).await;
        let watched = server.get(&format!("/v1/streams/{stream}?{query}")).await;
        assert_eq!(told.bytes().await.unwrap(), watched.bytes().await.unwrap(), "{face}");
    }
    let some = server.get(&format!("/v1/console/runs/{stream}/frames?from=2&to=2")).await;
    assert_eq!(common::seqs(&common::packets(&some.bytes().await.unwrap())), [2]);
    assert_eq!(server.get(&format!("/v1/console/runs/{stream}/frames?face=odd")).await.status(), 400);
    let marks = json(&server, &format!("/v1/console/runs/{stream}/marks"), None).await;
    let last = common::packets(&watched).last().unwrap().seq;
    assert_eq!(marks["marks"].as_array().unwrap().len() as u64, last);
    assert_eq!((&marks["complete"], &marks["read_to"]), (&true.into(), &last.into()));
    assert_eq!(marks["marks"][0][0], 1);
    assert!(marks["marks"][0][1].as_i64().is_some_and(|ms| ms >= 0));
    assert_eq!(marks["marks"].as_array().unwrap().last().unwrap()[2], "CLOSE");
    assert!(!marks.to_string().contains(SECRET));
    let body = json(&server, &format!("/v1/console/runs/{stream}/body"), None).await;
    assert!(body.to_string().contains(SECRET));
}

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
        let answer =
            server.post_with(&ask_in(session, &format!("/echo {SECRET}")), &[("authorization", &auth)]).await;
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
        let body =
            send(&server, "GET", &format!("/v1/console/runs/{said}/body"), Some(&format!("key-{tenant}")))
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
    let console = ConsoleSettings { content: Some(ContentRule::Never), ..ConsoleSettings::default() };
    let server = start(Settings { console, ..settings() }).await;
    let stream = run_as(&server, "key-a", "/tokens 1").await;
    for key in ["seer", "key-a"] {
        let refused = send(&server, "GET", &format!("/v1/console/runs/{stream}/frames"), Some(key)).await;
        assert_eq!(refused.status(), 403, "{key}");
    }
    assert_eq!(json(&server, "/v1/console/me", Some("seer")).await["content"], "never");
}

/// Lines of the log of this test.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn whoever_looks_at_what_was_said_and_whatever_is_done_is_on_the_record() {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(lines.finish());
    let server = start(settings()).await;
    let request = ask("/hang");
    let auth = "Bearer key-a";
    let hanging = server.post_with(&request, &[("authorization", auth)]).await;
    let stream = stream_of(&hanging);
    let path = format!("/v1/console/runs/{stream}");
    assert_eq!(send(&server, "GET", &format!("{path}/body"), Some("seer")).await.status(), 200);
    assert_eq!(send(&server, "POST", &format!("{path}/stop"), Some("seer")).await.status(), 403);
    let stopped: Value =
        send(&server, "POST", &format!("{path}/stop"), Some("doer")).await.json().await.unwrap();
    assert_eq!((&stopped["state"], &stopped["reason"]), (&"stopped".into(), &"cancelled".into()));
    assert_eq!(
        common::close_reason(&all(hanging).await).as_deref(),
        Some("cancelled"),
        "it is in the journal"
    );
    let stream_gone = send(&server, "DELETE", &path, Some("doer")).await;
    assert_eq!((stream_gone.status().as_u16(), stream_gone.bytes().await.unwrap().len()), (204, 0));
    assert_eq!(send(&server, "GET", &path, Some("doer")).await.status(), 404);
    assert!(ids(&json(&server, "/v1/console/runs", Some("doer")).await).is_empty());
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let audit: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line["target"] == "audit" && line["what"].is_string())
        .collect();
    let told: Vec<_> = audit
        .iter()
        .map(|line| {
            (
                line["message"].as_str().unwrap(),
                line["operator"].as_str().unwrap(),
                line["what"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("console looked", "seer", "body"),
        ("console did", "doer", "stop"),
        ("console did", "doer", "purge"),
    ];
    assert_eq!(told, expected, "{text}");
    assert!(audit.iter().all(|line| line["owner"] == "a" && line["stream"] == stream.as_str()));
    let metrics = server.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("capstan_console_total{name=\"stop\"} 1"), "{metrics}");
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
        let refused = send(&server, "DELETE", &format!("/v1/console/runs/{stream}"), Some(key)).await;
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
        let request =
            headers.iter().fold(client().post(&url), |request, (name, value)| request.header(*name, *value));
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
    assert!(!response.headers().contains_key("access-control-allow-origin"), "nobody else's page reads it");
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
    assert_eq!(json(&server, "/v1/console/runs", Some("looker")).await["runs"].as_array().unwrap().len(), 1);
    let off = ConsoleSettings { enabled: false, ..ConsoleSettings::default() };
    let server = start(Settings { console: off, ..Settings::default() }).await;
    assert_eq!(server.get("/v1/console/me").await.status(), 404);
}

#[tokio::test]
async fn a_conversation_is_shown_as_its_user_saw_it_and_erased() {
    let server = start(Settings::default()).await;
    let session = Uuid::now_v7();
    for text in [format!("/echo {SECRET}"), "/fault context_length_exceeded".to_owned()] {
        all(server.post(&ask_in(session, &text)).await).await;
    }
    let path = format!("/v1/console/sessions/local/{session}");
    let told = json(&server, &path, None).await;
    assert_eq!(told["turns"].as_array().unwrap().len(), 2, "{told}");
    assert_eq!((&told["turns"][0]["n"], &told["turns"][1]["partial"]), (&1.into(), &true.into()));
    assert!(told["turns"][0]["messages"].to_string().contains(SECRET));
    assert_eq!(told["runs"][0]["state"], "failed");
    assert_eq!(send(&server, "DELETE", &path, None).await.status(), 204);
    assert_eq!(server.get(&path).await.status(), 404);
    assert!(ids(&json(&server, "/v1/console/runs", None).await).is_empty());
}

/// The next event of a feed: its name and data.
async fn next_event(body: &mut Response) -> (String, Value) {
    loop {
        let chunk = body.chunk().await.unwrap().unwrap();
        let text = String::from_utf8(chunk.to_vec()).unwrap();
        let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        if let (Some(event), Some(data)) = (line("event: "), line("data: ")) {
            return (event, serde_json::from_str(&data).unwrap());
        }
    }
}

#[tokio::test]
async fn what_happens_is_told_as_it_happens_to_those_who_may_see_it() {
    let server = start(settings()).await;
    let listen = async |key: &str| send(&server, "GET", "/v1/console/events", Some(key)).await;
    let (mut of_all, mut of_b) = (listen("looker").await, listen("key-b").await);
    assert_eq!(next_event(&mut of_all).await.0, "state");
    assert_eq!(next_event(&mut of_b).await.0, "state");
    let of_a = run_as(&server, "key-a", "/tokens 1").await;
    let stream_b = run_as(&server, "key-b", "/flaky 1").await;
    let mut told = Vec::new();
    for _ in 0..5 {
        let (event, data) = next_event(&mut of_all).await;
        assert_eq!(event, "run");
        told.push((
            data["what"].as_str().unwrap().to_owned(),
            data["run"]["stream_id"].as_str().unwrap().to_owned(),
        ));
    }
    let expected = [
        ("began", &of_a),
        ("closed", &of_a),
        ("began", &stream_b),
        ("attempt", &stream_b),
        ("closed", &stream_b),
    ];
    let expected: Vec<_> = expected.iter().map(|(what, id)| ((*what).to_owned(), (*id).clone())).collect();
    assert_eq!(told, expected);
    // The tenant hears of its own alone.
    for what in ["began", "attempt", "closed"] {
        let (_, data) = next_event(&mut of_b).await;
        assert_eq!((&data["what"], &data["run"]["stream_id"]), (&what.into(), &stream_b.as_str().into()));
    }
    // Twenty at once, and no more.
    let mut open = Vec::new();
    for _ in 0..18 {
        open.push(listen("looker").await);
    }
    assert_eq!(send(&server, "GET", "/v1/console/events", Some("looker")).await.status(), 503);
}

#[tokio::test]
async fn numbers_add_up_to_what_happened() {
    let server = start(settings()).await;
    run_as(&server, "key-a", "/tokens 1").await;
    run_as(&server, "key-a", "/flaky 1").await;
    run_as(&server, "key-b", "/fault context_length_exceeded").await;
    let refused = client().get(format!("{}/v1/streams/{}", server.url, Uuid::nil())).bearer_auth("key-b");
    assert_eq!(refused.send().await.unwrap().status(), 404);
    let faults = json(&server, "/v1/console/faults", Some("looker")).await;
    assert_eq!((&faults["runs_total"], &faults["step_seconds"]), (&3.into(), &60.into()));
    let sum = |table: &Value, member: &str| {
        let of = |rows: &str| {
            table[rows].as_array().unwrap().iter().map(|row| row[member].as_u64().unwrap()).sum::<u64>()
        };
        assert_eq!(of("cells"), of("series"), "{member}");
        of("cells")
    };
    assert_eq!(
        (sum(&faults, "fatal"), sum(&faults, "healed"), sum(&faults, "refused")),
        (1, 1, 1),
        "{faults}"
    );
    let of_a = json(&server, "/v1/console/faults", Some("key-a")).await;
    assert_eq!((of_a["runs_total"].as_u64(), sum(&of_a, "fatal"), sum(&of_a, "healed")), (Some(2), 0, 1));
    let agents = json(&server, "/v1/console/agents", Some("looker")).await;
    let demo = &agents["agents"][0];
    assert_eq!(
        demo["outcomes"],
        serde_json::json!({ "done": 1, "healed": 1, "failed": 1, "stopped": 0 }),
        "{demo}"
    );
    assert!(demo["first_packet_ms"]["p95"].is_u64() && demo["last_fault"]["code"].is_string());
    let tenants = json(&server, "/v1/console/tenants", Some("looker")).await;
    let b = tenants["tenants"].as_array().unwrap().iter().find(|tenant| tenant["name"] == "b").unwrap();
    assert_eq!((&b["requests_per_minute"]["limit"], &b["no_store"]), (&Value::Null, &false.into()));
    assert_eq!(b["refusals"]["stream_not_found"], 1, "{b}");
    let overview = json(&server, "/v1/console/overview", Some("looker")).await;
    assert!(overview["attention"].as_array().unwrap().is_empty(), "{overview}");
    assert_eq!(overview["faults"].as_array().unwrap().len(), 3);
    let health = json(&server, "/v1/console/health", Some("looker")).await;
    assert_eq!((&health["state"], &health["faults_5m"]), (&"ready".into(), &3.into()), "{health}");
    assert!(health["append_p95_ms"].is_number());
}

#[tokio::test]
async fn what_was_counted_by_the_hour_outlives_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let gateway = || Gateway::new(disk(&path)).agent("demo", demo());
    let server = serve_gateway(gateway()).await;
    run(&server, "/fault context_length_exceeded", &[]).await;
    server.stop().await;
    let server = serve_gateway(gateway()).await;
    let faults = json(&server, "/v1/console/faults?since=2020-01-01T00:00:00Z", None).await;
    assert_eq!((&faults["step_seconds"], &faults["runs_total"]), (&3600.into(), &1.into()), "{faults}");
    assert_eq!(faults["cells"][0]["fatal"], 1);
    let list = json(&server, "/v1/console/runs?fault=context_length_exceeded", None).await;
    assert_eq!(ids(&list).len(), 1, "and the index is there again");
}

#[tokio::test]
async fn a_run_that_waits_for_too_long_needs_somebody() {
    let server = serve_gateway(Gateway::new(journal()).agent("demo", demo())).await;
    let response = server.post(&ask("/flaky 1 --wait 6")).await;
    let stream = stream_of(&response);
    let _ = response.bytes().await.unwrap();
    let told = json(&server, &format!("/v1/console/runs/{stream}"), None).await;
    assert_eq!(told["row"]["state"], "waiting");
    assert!(told["sentence"].as_str().unwrap().contains("waits for its client"), "{told}");
    assert!(told["not_before"].is_string());
    let overview = json(&server, "/v1/console/overview", None).await;
    assert!(overview["attention"].as_array().unwrap().is_empty(), "its client has time: {overview}");
    server.clock.set_by(60);
    let overview = json(&server, "/v1/console/overview", None).await;
    assert_eq!(overview["attention"][0]["why"], "overdue", "{overview}");
    assert_eq!(overview["attention"][0]["run"]["stream_id"], stream.as_str());
}

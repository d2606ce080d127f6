//! Shows with the face for tests that a face needs only its own folder and one row.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::response::Response;
use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
use capstan_demo::Demo;
use capstan_journal::{Journal, TailLimits};
use capstan_protocol::ChatMessage;
use capstan_stores::{Durability, open};
use futures_util::StreamExt as _;
use http::{Request as HttpRequest, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::settings::Limits;
use crate::{Gateway, KeyHash, Service, Settings, Tenant, Tenants};

/// An agent that repeats its input.
struct Parrot;

#[async_trait]
impl Agent for Parrot {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let said: Vec<String> = turn.conversation().map(ChatMessage::text).collect();
        Ok(out.delta(format!("{}|{:?}", said.join(" "), turn.parameters.temperature)).await?)
    }
}

struct World {
    journal: String,
    settings: Settings,
}

impl World {
    fn new(settings: Settings) -> Self {
        Self { journal: "memory:".into(), settings }
    }

    /// Starts a gateway over the one journal.
    async fn life(&self) -> Service {
        let store = open(&self.journal, Durability::default()).unwrap();
        let journal = Journal::new(store, TailLimits::default());
        let demo = Demo::with_delay(Duration::from_millis(10));
        let gateway = Gateway::new(journal).agent("demo", demo).agent("parrot", Parrot);
        Service::start(gateway.settings(self.settings.clone())).await.unwrap()
    }
}

async fn plain() -> Router {
    World::new(Settings::default()).life().await.router()
}

fn of_tenants() -> Settings {
    let tenant = |name: &str, key| Tenant::new(name, vec![KeyHash::of(key)]);
    let tenants = Tenants::from(vec![tenant("acme", "sk"), tenant("other", "sk2")]);
    Settings { tenants, cors_origins: vec!["https://page.example".into()], ..Settings::default() }
}

fn request(method: &str, uri: &str, headers: &[(&str, &str)], body: &Value) -> HttpRequest<Body> {
    let here: SocketAddr = ([127, 0, 0, 1], 1).into();
    let mut request = HttpRequest::builder().method(method).uri(uri).header("host", "localhost");
    if !headers.iter().any(|(name, _)| *name == "content-type") {
        request = request.header("content-type", "application/json");
    }
    request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.extension(ConnectInfo(here)).body(Body::from(body.to_string())).unwrap()
}

async fn send(
    router: &Router,
    method: &str,
    uri: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Response {
    router.clone().oneshot(request(method, uri, headers, body)).await.unwrap()
}

/// Requests a stream.
async fn ask(router: &Router, text: &str) -> Response {
    let question = json!({ "chat": "c", "text": text, "stream": true });
    send(router, "POST", "/v1/numbers", &[], &question).await
}

async fn get(router: &Router, uri: &str) -> Response {
    send(router, "GET", uri, &[], &Value::Null).await
}

async fn text(response: Response) -> String {
    String::from_utf8(to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec()).unwrap()
}

async fn object(response: Response) -> Value {
    let text = text(response).await;
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
}

fn id_of(response: &Response) -> String {
    header(response, "numbers-id").to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_repeat_attaches_by_its_body_and_a_number_reads_on_without_a_preamble() {
    let router = plain().await;
    let first = ask(&router, "/echo one two").await;
    let id = id_of(&first);
    assert_eq!(id, format!("num_{}", header(&first, "x-stream-id")));
    let whole = text(first).await;
    assert!(whole.starts_with("10=") && whole.ends_with("=completed\nover\n"), "{whole}");
    let question = json!({ "chat": "c", "text": "/echo one two", "stream": true });
    let again = send(&router, "POST", "/v1/numbers", &[("numbers-repeat", "1")], &question).await;
    assert_eq!((id_of(&again), text(again).await), (id.clone(), whole.clone()));
    assert_ne!(
        id_of(&ask(&router, "/echo one two").await),
        id,
        "without a key it is another question"
    );
    let rest = get(&router, &format!("/v1/numbers/{id}?starting_after=10")).await;
    assert_eq!(text(rest).await, whole.split_once('\n').unwrap().1);
    let beyond = get(&router, &format!("/v1/numbers/{id}?starting_after=99990")).await;
    assert!(text(beyond).await.contains("stream_lost"));
}

#[tokio::test(start_paused = true)]
async fn a_given_key_starts_once_and_conflicts_in_the_faces_form() {
    let router = plain().await;
    let key = [("numbers-key", "k1")];
    let question = json!({ "text": "/echo one" });
    let first = object(send(&router, "POST", "/v1/numbers", &key, &question).await).await;
    assert_eq!(object(send(&router, "POST", "/v1/numbers", &key, &question).await).await, first);
    let other = send(&router, "POST", "/v1/numbers", &key, &json!({ "text": "/echo two" })).await;
    assert_eq!(other.status(), StatusCode::CONFLICT);
    assert_eq!(object(other).await["wrong"], "request_conflict");
}

#[tokio::test(start_paused = true)]
async fn the_gateway_waits_where_no_client_comes_back() {
    let router = plain().await;
    let told = text(ask(&router, "/flaky 2 --wait 30").await).await;
    assert!(told.contains("WARNING "), "{told}");
    assert!(told.ends_with("=completed\nover\n"), "{told}");
    // The same run as one object.
    let whole =
        send(&router, "POST", "/v1/numbers", &[], &json!({ "text": "/flaky 2 --wait 30" })).await;
    assert!(!header(&whole, "x-stream-id").is_empty());
    assert_eq!(object(whole).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_cleanly_and_the_next_process_continues() {
    let folder = tempfile::tempdir().unwrap();
    let journal = format!("disk:{}", folder.path().display());
    let world = World { journal, settings: Settings::default() };
    let life = world.life().await;
    let response = ask(&life.router(), "/tokens 50 --delay 1s").await;
    let id = id_of(&response);
    let mut body = response.into_body().into_data_stream();
    let begun = body.next().await.unwrap().unwrap();
    let drained = tokio::spawn(life.drain());
    let mut told = begun.to_vec();
    while let Some(bytes) = body.next().await {
        told.extend_from_slice(&bytes.expect("a clean end"));
    }
    let told = String::from_utf8(told).unwrap();
    assert!(told.ends_with("come back\n"), "{told}");
    drained.await.unwrap().unwrap();
    let router = world.life().await.router();
    let rest = text(get(&router, &format!("/v1/numbers/{id}?starting_after=0")).await).await;
    assert!(rest.ends_with("=completed\nover\n"), "{rest}");
}

#[tokio::test(start_paused = true)]
async fn heartbeats_and_body_duration_are_the_faces() {
    let router = plain().await;
    let began = tokio::time::Instant::now();
    let question = json!({ "text": "/hang", "stream": true });
    let hangs = send(&router, "POST", "/v1/numbers", &[("numbers-lasts", "60")], &question).await;
    let mut body = hangs.into_body().into_data_stream();
    while body.next().await.unwrap().unwrap().as_ref() != b"still here\n" {}
    assert!(began.elapsed() <= Duration::from_secs(4));
    let mut last = Vec::new();
    while let Some(bytes) = body.next().await {
        last = bytes.expect("a clean end").to_vec();
    }
    assert_eq!((last.as_slice(), began.elapsed().as_secs()), (&b"come back\n"[..], 60));
}

#[tokio::test(start_paused = true)]
async fn a_run_is_collected_in_every_state() {
    let router = plain().await;
    let done =
        object(send(&router, "POST", "/v1/numbers", &[], &json!({ "text": "/echo hi" })).await)
            .await;
    assert_eq!((&done["status"], &done["text"]), (&json!("completed"), &json!("hi")));
    let id = done["id"].as_str().unwrap();
    assert_eq!(object(get(&router, &format!("/v1/numbers/{id}")).await).await, done);
    // A failure has the face's own status and form. Later requests still get the run.
    let failed = send(&router, "POST", "/v1/numbers", &[], &json!({ "text": "/panic" })).await;
    assert_eq!(failed.status().as_u16(), 555);
    let id = format!("num_{}", header(&failed, "x-stream-id"));
    assert_eq!(object(failed).await["wrong"], "agent_execution_error");
    assert_eq!(object(get(&router, &format!("/v1/numbers/{id}")).await).await["status"], "error");
    let hangs = ask(&router, "/hang").await;
    let uri = format!("/v1/numbers/{}", id_of(&hangs));
    assert_eq!(object(get(&router, &uri).await).await["status"], "running");
    let stopped = send(&router, "POST", &format!("{uri}/stop"), &[], &Value::Null).await;
    assert_eq!(object(stopped).await["status"], "cancelled");
    assert!(text(hangs).await.ends_with("=cancelled\nover\n"));
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_returns_existing_or_new_events_or_none() {
    let router = plain().await;
    let uri = format!("/v1/numbers/{}", id_of(&ask(&router, "/tokens 3 --delay 10s").await));
    let began = tokio::time::Instant::now();
    let none = get(&router, &format!("{uri}?starting_after=0&wait=5")).await;
    assert_eq!((header(&none, "numbers-next"), began.elapsed().as_secs()), ("0", 5));
    assert_eq!(object(none).await, json!({ "said": [], "is_up_to_date": true, "is_over": false }));
    let (mut after, mut said) = ("0".to_owned(), Vec::new());
    loop {
        let batch = get(&router, &format!("{uri}?starting_after={after}&wait=20")).await;
        header(&batch, "numbers-next").clone_into(&mut after);
        let batch = object(batch).await;
        said.extend(batch["said"].as_array().unwrap().clone());
        if batch["is_over"] == true {
            break;
        }
    }
    assert_eq!((said.len(), said.last()), (4, Some(&json!("completed"))));
    let over = tokio::time::Instant::now();
    let end = object(get(&router, &format!("{uri}?starting_after={after}&wait=20")).await).await;
    assert_eq!((&end["is_over"], over.elapsed().as_secs()), (&json!(true), 0));
}

#[tokio::test(start_paused = true)]
async fn the_body_names_the_agent_the_parameters_and_the_line_of_answers() {
    let router = plain().await;
    let say = async |text: &str, previous: &str| {
        let question = json!({ "text": text, "model": "parrot", "temperature": 0.5 });
        let previous = [("numbers-previous", previous)];
        let headers = if previous[0].1.is_empty() { &[][..] } else { &previous[..] };
        let told = object(send(&router, "POST", "/v1/numbers", headers, &question).await).await;
        let said = told["text"].as_str().unwrap().trim_end_matches("|Some(0.5)").to_owned();
        (told["id"].as_str().unwrap().to_owned(), said)
    };
    let (first, said) = say("a", "").await;
    assert_eq!(said, "a");
    let (second, said) = say("b", &first).await;
    assert_eq!(said, "a a|Some(0.5) b");
    // Another branch from the first turn, and one from the second. Neither gets the other's
    // messages.
    assert_eq!(say("c", &first).await.1, "a a|Some(0.5) c");
    let (_, said) = say("d", &second).await;
    assert_eq!(said, "a a|Some(0.5) b a a|Some(0.5) b|Some(0.5) d");
    assert_eq!(say("e", "").await.1, "e", "a conversation of its own");
    let unknown = json!({ "text": "x", "model": "nobody" });
    let unknown = send(&router, "POST", "/v1/numbers", &[], &unknown).await;
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
    assert_eq!(object(unknown).await["wrong"], "agent_not_found");
}

#[tokio::test(start_paused = true)]
async fn a_chat_leads_to_its_newest_run() {
    let router = plain().await;
    for text in ["/echo one", "/echo two"] {
        send(&router, "POST", "/v1/numbers", &[], &json!({ "text": text, "chat": "c 1" })).await;
    }
    let newest = object(get(&router, "/v1/numbers/any/chats/c%201").await).await;
    assert_eq!(newest["text"], "two");
    let none = get(&router, "/v1/numbers/any/chats/c2").await;
    assert_eq!(object(none).await["wrong"], "stream_not_found");
}

#[tokio::test]
async fn refusals_have_its_shape_even_before_it_sees_the_request() {
    let router = World::new(of_tenants()).life().await.router();
    let page = ("origin", "https://page.example");
    let refused = send(&router, "POST", "/v1/numbers", &[page], &json!({})).await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(header(&refused, "access-control-allow-origin"), page.1, "a page can read why");
    let told = json!({ "wrong": "tenant_required", "at": "/v1/numbers", "was_read": false });
    assert_eq!(object(refused).await, told);
    let nowhere = send(&router, "GET", "/v1/numbers/a/b/c/d", &[], &Value::Null).await;
    assert_eq!(nowhere.status(), StatusCode::NOT_FOUND);
    assert_eq!(object(nowhere).await["wrong"], "route_not_found");
    let method =
        send(&router, "DELETE", "/v1/numbers", &[("authorization", "Bearer sk")], &Value::Null)
            .await;
    assert_eq!((method.status().as_u16(), header(&method, "allow")), (405, "POST"));
    assert_eq!(object(method).await["wrong"], "method_not_allowed");
}

#[tokio::test]
async fn refusals_of_bodies_have_its_shape() {
    let limits = Limits { body_bytes: 100, ..Limits::default() };
    let router = World::new(Settings { limits, ..Settings::default() }).life().await.router();
    let large = json!({ "text": "x".repeat(200) });
    let large = send(&router, "POST", "/v1/numbers", &[], &large).await;
    assert_eq!(large.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(object(large).await["wrong"], "payload_too_large");
    let kind = |kind: &'static str| [("content-type", kind)];
    let text = send(&router, "POST", "/v1/numbers", &kind("text/plain"), &json!({})).await;
    assert_eq!(object(text).await["wrong"], "unsupported_media_type");
    let own = kind("application/numbers+json");
    let own = send(&router, "POST", "/v1/numbers", &own, &json!({ "text": "/echo hi" })).await;
    assert_eq!(own.status(), StatusCode::OK);
    let unread = send(&router, "POST", "/v1/numbers", &[], &json!({ "text": 7 })).await;
    assert_eq!(unread.status(), StatusCode::BAD_REQUEST);
    let told = json!({ "wrong": "invalid_request", "at": "/v1/numbers", "was_read": true });
    assert_eq!(object(unread).await, told);
}

#[tokio::test]
async fn another_tenants_run_is_unknown_and_the_card_is_open() {
    let router = World::new(of_tenants()).life().await.router();
    let as_tenant = |key: &'static str| [("authorization", key)];
    let question = json!({ "text": "/echo hi" });
    let told = send(&router, "POST", "/v1/numbers", &as_tenant("Bearer sk"), &question).await;
    let uri = format!("/v1/numbers/{}", object(told).await["id"].as_str().unwrap());
    let own = send(&router, "GET", &uri, &as_tenant("Bearer sk"), &Value::Null).await;
    assert_eq!(own.status(), StatusCode::OK);
    let foreign = send(&router, "GET", &uri, &as_tenant("Bearer sk2"), &Value::Null).await;
    assert_eq!(object(foreign).await["wrong"], "stream_not_found");
    assert_eq!(get(&router, "/v1/numbers/card").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn pages_may_send_and_read_its_headers() {
    let router = World::new(of_tenants()).life().await.router();
    let origin = ("origin", "https://page.example");
    let preflight = [origin, ("access-control-request-method", "POST")];
    let allowed = send(&router, "OPTIONS", "/v1/numbers", &preflight, &Value::Null).await;
    let names = header(&allowed, "access-control-allow-headers");
    assert!(names.contains("numbers-key") && names.contains("authorization"), "{names}");
    let card = send(&router, "GET", "/v1/numbers/card", &[origin], &Value::Null).await;
    let names = header(&card, "access-control-expose-headers");
    assert!(names.contains("numbers-next") && names.contains("x-stream-id"), "{names}");
}

#[test]
fn its_routes_are_described_with_its_own_headers_places_and_refusals() {
    let document = crate::openapi();
    let chat = &document["paths"]["/v1/numbers/{agent}/chats/{chat}"]["get"]["parameters"];
    assert_eq!((&chat[0]["name"], &chat[1]["name"]), (&json!("agent"), &json!("chat")));
    let components = &document["components"];
    assert!(components["parameters"]["Numbers-Key"].is_object());
    assert!(components["headers"]["Numbers-Next"].is_object());
    let responses = &document["paths"]["/v1/numbers"]["post"]["responses"];
    assert!(responses["404"]["content"]["application/json"]["schema"].is_object(), "{responses}");
    assert_eq!(document["paths"]["/v1/numbers/card"]["get"]["security"], json!([]));
}

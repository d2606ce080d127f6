//! A third face, for tests only: one file and one row, with what CAP and AG-UI do not need. It has no preamble, its key is
//! derived, a reader resumes by GET with a number, a clean end means "come back", its errors are HTTP statuses in a shape
//! of its own, and nobody sends a request again: the gateway arms.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Request as HttpRequest, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use capstan_agent::async_trait;
use capstan_journal::{ArmedBy, RunState};
use capstan_protocol::{ChatMessage, Fault, FaultKind, Payload, sse};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Asker, Face, FaceWriter, Next, Opening, Request, Telling};
use crate::app::App;
use crate::ask::{Ask, invalid};
use crate::openapi::{self, Model, Routes, Row, Tag, model};
use crate::reader::View;
use crate::refusal::{Refusal, journal_fault};
use crate::resume::ResumePoint;
use crate::{post, query};

pub(super) struct Numbers;

const TAG: Tag = Tag { name: "Numbers", says: "A face for tests." };
const POST: Row = Row { tag: &TAG, summary: "Ask in numbers", ..Row::NONE };
const GET: Row = Row { tag: &TAG, summary: "Read on", place: Some(&openapi::STREAM), ..Row::NONE };

#[derive(Deserialize, JsonSchema)]
struct Question {
    chat: String,
    text: String,
}

#[derive(Deserialize)]
struct Params {
    starting_after: Option<u64>,
}

#[async_trait]
impl Face for Numbers {
    fn name(&self) -> &'static str {
        "numbers"
    }

    fn routes(self: Arc<Self>) -> Routes {
        let face = self.clone();
        let read_on = async move |State(app): State<App>, Path(id): Path<String>, request: HttpRequest| {
            face.read_on(&app, &id, request).await
        };
        Routes::default().start("/v1/numbers", self, &POST).get("/v1/numbers/{id}", read_on, &GET)
    }

    fn events(&self) -> Model {
        model::<Question>
    }

    fn decode(&self, body: &[u8]) -> Result<Ask, Fault> {
        let question: Question = capstan_protocol::decode::from_slice(body).map_err(|e| invalid(&e))?;
        Ok(Ask::new(String::new(), question.chat, vec![ChatMessage::user(question.text)]))
    }

    /// The same words in the same chat are the same request.
    fn key(&self, ask: &Ask, request: &Request<'_>) -> String {
        let digest = Sha256::digest(request.body);
        format!("{}:{digest:x}", ask.session)
    }

    fn armed_by(&self) -> ArmedBy {
        ArmedBy::Gateway
    }

    fn owns(&self, path: &str) -> bool {
        path.starts_with("/v1/numbers")
    }

    fn refuse(&self, _: &App, fault: &Fault, _: Asker<'_>) -> Option<Response> {
        let status = StatusCode::from_u16(fault.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Some((status, Json(json!({ "wrong": fault.code() }))).into_response())
    }

    async fn open(&self, _: &App, opening: Opening<'_>) -> Result<Box<dyn FaceWriter>, Fault> {
        Ok(Box::new(NumbersWriter { base: opening.point.in_run(opening.run)? }))
    }
}

impl Numbers {
    async fn read_on(&self, app: &App, id: &str, request: HttpRequest) -> Result<Response, Refusal> {
        let (parts, _) = request.into_parts();
        let answered = async {
            let params: Params = query::parse(&parts.uri)?;
            let stream = id.parse().map_err(|_| Fault::new(FaultKind::StreamNotFound))?;
            let run = app.journal.store().run(stream).await.map_err(journal_fault)?;
            let run = run.ok_or_else(|| Fault::new(FaultKind::StreamNotFound))?;
            let point = ResumePoint::default().or_after(params.starting_after);
            let opening = Opening { run: &run, point, view: View::Get, parts: &parts, posted: None };
            post::watch(app, self, opening).await
        };
        answered.await.map_err(|fault| super::refusal(app, self, fault, Asker::Viewer))
    }
}

struct NumbersWriter {
    base: u64,
}

impl FaceWriter for NumbersWriter {
    fn base(&self) -> u64 {
        self.base
    }

    fn opening(&mut self, _: &App) -> Bytes {
        Bytes::new()
    }

    fn frames<'a>(&'a mut self, _: &'a App, frames: Vec<Bytes>) -> Telling<'a> {
        let packets = frames.iter().filter_map(|frame| sse::decode_packet(frame));
        let told: String =
            packets.map(|packet| format!("{}={}\n", packet.seq, said(&packet.payload))).collect();
        Telling::Now(Next::Write(told.into()))
    }

    fn caught_up(&mut self, _: &App, state: RunState, _: View) -> Next {
        match state {
            RunState::Closed => Next::Last("over\n".into()),
            RunState::Running | RunState::Waiting => Next::Write(Bytes::new()),
        }
    }

    fn closing(&mut self) -> Next {
        Next::Last("come back\n".into())
    }

    fn heartbeat(&self) -> &'static [u8] {
        b"still here\n"
    }

    fn heartbeat_every(&self, _: Duration) -> Duration {
        Duration::from_secs(3)
    }
}

fn said(payload: &Payload) -> String {
    match payload {
        Payload::Delta(text) => text.clone(),
        Payload::Event(_) => "event".into(),
        Payload::Error(error) => format!("{} {}", error.severity, error.code),
        Payload::Close(close) => close.reason().to_owned(),
    }
}

mod tests {
    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::extract::ConnectInfo;
    use capstan_demo::Demo;
    use capstan_journal::{Durability, Journal, TailLimits, open};
    use futures_util::StreamExt as _;
    use http::{Request as HttpRequest, StatusCode};
    use std::net::SocketAddr;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{Gateway, KeyHash, Service, Settings, Tenant, Tenants};

    struct World {
        journal: String,
        settings: Settings,
    }

    impl World {
        fn new(settings: Settings) -> Self {
            Self { journal: "memory:".into(), settings }
        }

        /// A process's life over the one journal.
        async fn life(&self) -> Service {
            let store = open(&self.journal, Durability::default()).unwrap();
            let journal = Journal::new(store, TailLimits::default());
            let demo = Demo::with_delay(Duration::from_millis(10));
            let gateway = Gateway::new(journal).agent("demo", demo).settings(self.settings.clone());
            Service::start(gateway).await.unwrap()
        }
    }

    fn request(method: &str, uri: &str, body: &Value) -> HttpRequest<Body> {
        let here: SocketAddr = ([127, 0, 0, 1], 1).into();
        HttpRequest::builder()
            .method(method)
            .uri(uri)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .extension(ConnectInfo(here))
            .body(Body::from(body.to_string()))
            .unwrap()
    }

    async fn ask(router: &Router, text: &str) -> Response {
        let question = json!({ "chat": "c", "text": text });
        router.clone().oneshot(request("POST", "/v1/numbers", &question)).await.unwrap()
    }

    async fn text(response: Response) -> String {
        String::from_utf8(to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec()).unwrap()
    }

    fn stream_of(response: &Response) -> String {
        response.headers()["x-stream-id"].to_str().unwrap().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_words_attach_and_a_number_reads_on_without_a_preamble() {
        let world = World::new(Settings::default());
        let router = world.life().await.router();
        let first = ask(&router, "/echo one two").await;
        let stream = stream_of(&first);
        let whole = text(first).await;
        assert!(whole.starts_with("1=") && whole.ends_with("=completed\nover\n"), "{whole}");
        let again = ask(&router, "/echo one two").await;
        assert_eq!((stream_of(&again), text(again).await), (stream.clone(), whole.clone()));
        let other = ask(&router, "/echo three").await;
        assert_ne!(stream_of(&other), stream);
        let uri = format!("/v1/numbers/{stream}?starting_after=1");
        let rest = router.clone().oneshot(request("GET", &uri, &Value::Null)).await.unwrap();
        assert_eq!(text(rest).await, whole.split_once('\n').unwrap().1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_wait_is_the_gateways_where_nobody_comes_back() {
        let world = World::new(Settings::default());
        let router = world.life().await.router();
        let told = text(ask(&router, "/flaky 2 --wait 30").await).await;
        assert!(told.contains("WARNING "), "{told}");
        assert!(told.ends_with("=completed\nover\n"), "{told}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_ends_cleanly_and_the_next_life_goes_on_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let journal = format!("disk:{}", folder.path().display());
        let world = World { journal, settings: Settings::default() };
        let life = world.life().await;
        let response = ask(&life.router(), "/tokens 50 --delay 1s").await;
        let stream = stream_of(&response);
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
        let uri = format!("/v1/numbers/{stream}?starting_after=0");
        let rest = router.clone().oneshot(request("GET", &uri, &Value::Null)).await.unwrap();
        let rest = text(rest).await;
        assert!(rest.ends_with("=completed\nover\n"), "{rest}");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_broken_in_its_own_words_and_time() {
        let world = World::new(Settings::default());
        let router = world.life().await.router();
        let mut body = ask(&router, "/hang").await.into_body().into_data_stream();
        let began = tokio::time::Instant::now();
        loop {
            let bytes = body.next().await.unwrap().unwrap();
            if bytes.as_ref() == b"still here\n" {
                break;
            }
        }
        assert!(began.elapsed() <= Duration::from_secs(4));
    }

    #[tokio::test]
    async fn refusals_have_its_shape_even_before_it_sees_the_request() {
        let tenants = Tenants::from(vec![Tenant::new("acme", vec![KeyHash::of("sk")])]);
        let world = World::new(Settings { tenants, ..Settings::default() });
        let router = world.life().await.router();
        let refused = ask(&router, "hi").await;
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        assert!(text(refused).await.starts_with(r#"{"wrong":"#));
        let open = World::new(Settings::default()).life().await.router();
        let unread = open.clone().oneshot(request("POST", "/v1/numbers", &json!({}))).await.unwrap();
        assert_eq!(unread.status(), StatusCode::BAD_REQUEST);
        assert_eq!(text(unread).await, r#"{"wrong":"invalid_request"}"#);
    }
}

//! Responses over a WebSocket, with a real client against a real server.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Server, client, journal, serve_gateway};
use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, KeyHash, Limits, Settings, Tenant, Timeouts};
use capstan_protocol::Role;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Only a server that never answers needs the guard.
const GUARD: Duration = Duration::from_secs(30);

/// Says what it was told. With a tool of the caller's it calls that first.
struct Teller;

#[async_trait]
impl Agent for Teller {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let all = turn.history.iter().map(|message| (**message).clone());
        let all: Vec<_> = all.chain(turn.messages.iter().cloned()).collect();
        let is_called = all.iter().any(|message| message.role == Role::Tool);
        if let Some(tool) = turn.tools.first().filter(|_| !is_called) {
            let start = json!({ "toolCallId": "c1", "toolCallName": tool.name });
            out.event("TOOL_CALL_START", &start).await?;
            out.event("TOOL_CALL_ARGS", &json!({ "toolCallId": "c1", "delta": "{}" })).await?;
            out.event("TOOL_CALL_END", &json!({ "toolCallId": "c1" })).await?;
            return Ok(());
        }
        out.delta(serde_json::to_string(&all).unwrap()).await?;
        Ok(())
    }
}

/// Begins, and ends when it is let.
struct Slow(Arc<Semaphore>);

#[async_trait]
impl Agent for Slow {
    async fn run(&self, _: Turn, out: &mut Writer) -> Outcome {
        out.delta("begun ").await?;
        self.0.acquire().await.unwrap().forget();
        out.delta("done").await?;
        Ok(())
    }
}

async fn serve(settings: Settings) -> (Server, Arc<Semaphore>) {
    let goes_on = Arc::new(Semaphore::new(0));
    let gateway = Gateway::new(journal())
        .agent("teller", Teller)
        .agent("slow", Slow(goes_on.clone()))
        .settings(settings);
    (serve_gateway(gateway).await, goes_on)
}

async fn try_connect(server: &Server, headers: &[(&'static str, &str)]) -> Result<Socket, Error> {
    let url = format!("{}/v1/responses", server.url.replace("http:", "ws:"));
    let mut request = url.into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    connect_async(request).await.map(|(socket, _)| socket)
}

async fn connect(server: &Server) -> Socket {
    try_connect(server, &[]).await.unwrap()
}

fn status(refused: Result<Socket, Error>) -> u16 {
    match refused {
        Err(Error::Http(response)) => response.status().as_u16(),
        other => panic!("{other:?}"),
    }
}

async fn send(socket: &mut Socket, frame: &Value) {
    socket.send(Message::text(frame.to_string())).await.unwrap();
}

/// The next frame that is no ping.
async fn next(socket: &mut Socket) -> Message {
    loop {
        let message = tokio::time::timeout(GUARD, socket.next()).await.expect("a frame comes");
        let message = message.expect("the connection is open").unwrap();
        if !matches!(message, Message::Ping(_) | Message::Pong(_)) {
            return message;
        }
    }
}

async fn event(socket: &mut Socket) -> Value {
    let message = next(socket).await;
    serde_json::from_str(message.to_text().unwrap()).unwrap()
}

/// All events of an answer.
async fn answer(socket: &mut Socket) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        let event = event(socket).await;
        let kind = event["type"].as_str().unwrap().to_owned();
        events.push(event);
        if ["response.completed", "response.failed", "error"].contains(&kind.as_str()) {
            return events;
        }
    }
}

async fn asked(socket: &mut Socket, frame: &Value) -> Vec<Value> {
    send(socket, frame).await;
    answer(socket).await
}

fn create(input: Value) -> Value {
    json!({ "type": "response.create", "model": "teller", "store": false, "input": input })
}

fn user(text: &str) -> Value {
    json!({ "type": "message", "role": "user",
        "content": [{ "type": "input_text", "text": text }] })
}

fn after(mut frame: Value, events: &[Value]) -> Value {
    frame["previous_response_id"] = last(events)["id"].clone();
    frame
}

fn last(events: &[Value]) -> &Value {
    &events.last().unwrap()["response"]
}

fn text_of(response: &Value) -> &str {
    let items = response["output"].as_array().unwrap();
    let message = items.iter().find(|item| item["type"] == "message").unwrap();
    message["content"][0]["text"].as_str().unwrap()
}

async fn close_code(socket: &mut Socket) -> u16 {
    let message = next(socket).await;
    let Message::Close(Some(frame)) = message else { panic!("{message:?}") };
    frame.code.into()
}

#[tokio::test]
async fn a_frame_is_answered_by_the_events_that_a_post_gets() {
    let (server, _) = serve(Settings::default()).await;
    let mut socket = connect(&server).await;
    let events = asked(&mut socket, &create("Hi".into())).await;
    assert!(text_of(last(&events)).contains("Hi"));
    let id = last(&events)["id"].as_str().unwrap();
    let path = format!("/v1/responses/{id}?stream=true");
    let streamed = server.get(&path).await.text().await.unwrap();
    let data = streamed.lines().filter_map(|line| line.strip_prefix("data: "));
    let streamed: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    assert_eq!(events, streamed);
    // One connection is for many questions.
    assert!(text_of(last(&asked(&mut socket, &create("Ho".into())).await)).contains("Ho"));
}

#[tokio::test]
async fn an_unstored_conversation_continues_with_new_items() {
    let (server, _) = serve(Settings::default()).await;
    let mut socket = connect(&server).await;
    let mut warm = create(json!([user("You are terse.")]));
    warm["generate"] = false.into();
    let warmed = asked(&mut socket, &warm).await;
    let kinds: Vec<_> = warmed.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["response.created", "response.completed"]);
    assert_eq!(
        (&last(&warmed)["status"], &last(&warmed)["output"]),
        (&"completed".into(), &json!([]))
    );
    let runs: Value = server.get("/v1/streams").await.json().await.unwrap();
    assert_eq!(runs["streams"], json!([]), "nothing ran");

    let tools = json!([{ "type": "function", "name": "weather",
        "parameters": { "type": "object" } }]);
    let mut turn = after(create(json!([user("Bern?")])), &warmed);
    turn["tools"] = tools.clone();
    let called = asked(&mut socket, &turn).await;
    let call = &last(&called)["output"][0];
    assert_eq!((&call["type"], &call["call_id"]), (&"function_call".into(), &"c1".into()));
    assert_eq!(last(&called)["previous_response_id"], Value::Null);

    let output = json!({ "type": "function_call_output", "call_id": "c1", "output": "rain" });
    let mut turn = after(create(json!([output])), &called);
    turn["tools"] = tools.clone();
    let told = asked(&mut socket, &turn).await;

    // The agent is asked as if all of it had been posted.
    let mut whole = json!({ "model": "teller", "store": false, "tools": tools,
        "input": [user("You are terse."), user("Bern?"), call, output] });
    let post = async |body: &Value| -> Value {
        let url = format!("{}/v1/responses", server.url);
        client().post(url).json(body).send().await.unwrap().json().await.unwrap()
    };
    assert_eq!(text_of(last(&told)), text_of(&post(&whole).await));
    let next = asked(&mut socket, &after(create(json!([user("And now?")])), &told)).await;
    let input = whole["input"].as_array_mut().unwrap();
    input.extend([last(&told)["output"][0].clone(), user("And now?")]);
    assert_eq!(text_of(last(&next)), text_of(&post(&whole).await));
}

#[tokio::test]
async fn a_stored_answer_is_gone_on_from_as_ever() {
    let (server, _) = serve(Settings::default()).await;
    let mut socket = connect(&server).await;
    let stored = json!({ "type": "response.create", "model": "teller", "input": "Hi" });
    let first = asked(&mut socket, &stored).await;
    let second = asked(&mut socket, &after(stored.clone(), &first)).await;
    assert_eq!(last(&second)["previous_response_id"], last(&first)["id"]);
    // Any connection may.
    let mut other = connect(&server).await;
    let third = asked(&mut other, &after(stored, &first)).await;
    assert_eq!(last(&third)["previous_response_id"], last(&first)["id"]);
}

#[tokio::test]
async fn a_refusal_is_a_frame_and_the_connection_goes_on() {
    let (server, _) = serve(Settings::default()).await;
    let mut socket = connect(&server).await;
    let mut unknown = create("Hi".into());
    unknown["model"] = "nobody".into();
    let mut gone = create("Hi".into());
    gone["previous_response_id"] = format!("resp_{}", uuid::Uuid::now_v7().simple()).into();
    let mut cold = gone.clone();
    cold["generate"] = false.into();
    for (frame, status, code) in [
        (json!({ "type": "response.cancel" }), 400, "invalid_request"),
        (create(json!(5)), 400, "invalid_request"),
        (create(json!([])), 400, "invalid_request"),
        (unknown, 404, "model_not_found"),
        (gone, 400, "previous_response_not_found"),
        (cold, 400, "previous_response_not_found"),
    ] {
        let events = asked(&mut socket, &frame).await;
        let told = &events[0];
        assert_eq!(told["type"], "error", "{told}");
        assert_eq!((&told["status"], &told["error"]["code"]), (&json!(status), &json!(code)));
        assert!(told["error"]["message"].is_string() && told["error"]["type"].is_string());
        assert_eq!(told["headers"], json!({}), "nothing to wait for");
    }
    assert!(text_of(last(&asked(&mut socket, &create("Hi".into())).await)).contains("Hi"));
    let metrics = server.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("invalid_request"), "refusals are counted: {metrics}");
}

#[tokio::test]
async fn a_refusal_that_passes_says_how_long_to_wait() {
    let limits = Limits { requests_per_minute: 1, ..Limits::default() };
    let (server, _) = serve(Settings { limits, ..Settings::default() }).await;
    let mut socket = connect(&server).await;
    asked(&mut socket, &create("Hi".into())).await;
    let events = asked(&mut socket, &create("Hi".into())).await;
    let (status, wait) = (&events[0]["status"], events[0]["headers"]["retry-after"].as_str());
    assert_eq!(status, 429);
    assert!(wait.unwrap().parse::<u64>().unwrap() > 0);
}

#[tokio::test]
async fn one_answer_at_a_time() {
    let (server, goes_on) = serve(Settings::default()).await;
    let mut socket = connect(&server).await;
    let mut slow = create("Hi".into());
    slow["model"] = "slow".into();
    send(&mut socket, &slow).await;
    while event(&mut socket).await["type"] != "response.output_text.delta" {}
    let refused = asked(&mut socket, &slow).await;
    assert_eq!(refused[0]["error"]["code"], "response_in_progress");
    goes_on.add_permits(1);
    let rest = answer(&mut socket).await;
    assert_eq!(text_of(last(&rest)), "begun done");
}

#[tokio::test]
async fn a_closed_socket_stops_nothing() {
    let (server, goes_on) = serve(Settings::default()).await;
    let mut socket = connect(&server).await;
    let mut slow = create("Hi".into());
    slow["model"] = "slow".into();
    send(&mut socket, &slow).await;
    let id = event(&mut socket).await["response"]["id"].as_str().unwrap().to_owned();
    drop(socket);
    goes_on.add_permits(1);
    // Reading on waits for the end.
    let path = format!("/v1/responses/{id}?stream=true");
    let told = server.get(&path).await.text().await.unwrap();
    assert!(told.contains("begun done"), "{told}");
}

/// Codex comes back by itself, and sends what it has sent before.
#[tokio::test]
async fn a_cut_client_resumes_the_same_answer() {
    let (server, goes_on) = serve(Settings::default()).await;
    let session = [("session-id", "s"), ("thread-id", "t")];
    let slow = |sent: u64| {
        let mut frame = create(json!([user("Hi")]));
        frame["model"] = "slow".into();
        frame["client_metadata"] = json!({ "turn_id": "1", "sent": sent });
        frame
    };
    let mut socket = try_connect(&server, &session).await.unwrap();
    send(&mut socket, &slow(1)).await;
    let first = event(&mut socket).await["response"]["id"].clone();
    drop(socket);
    nobody_reads(&server).await;

    let mut socket = try_connect(&server, &session).await.unwrap();
    send(&mut socket, &slow(2)).await;
    assert_eq!(event(&mut socket).await["response"]["id"], first);
    drop(socket);
    nobody_reads(&server).await;

    // It may go on by POST, and the answer may be complete by then.
    let post = async |session: &str| -> Value {
        let mut body = slow(3);
        let members = body.as_object_mut().unwrap();
        members.remove("type");
        members.insert("stream".into(), true.into());
        let url = format!("{}/v1/responses", server.url);
        let posted = client().post(url).header("session-id", session).header("thread-id", "t");
        let told = posted.json(&body).send().await.unwrap().text().await.unwrap();
        let last = told.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
        serde_json::from_str(last.unwrap()).unwrap()
    };
    goes_on.add_permits(1);
    let told = post("s").await;
    assert_eq!((&told["response"]["id"], text_of(&told["response"])), (&first, "begun done"));
    goes_on.add_permits(1);
    assert_ne!(post("z").await["response"]["id"], first, "another session is another asker");
}

/// A connection composes a request from the items that it sent. A client that connects again sends
/// the same items without members that say nothing.
#[tokio::test]
async fn a_client_that_was_cut_in_a_later_answer_reads_the_same_answer() {
    let (server, goes_on) = serve(Settings::default()).await;
    let session = [("session-id", "s")];
    let mut socket = try_connect(&server, &session).await.unwrap();
    let first = asked(&mut socket, &create(json!([user("Hi")]))).await;
    let slow = |input: Value| {
        let mut frame = create(input);
        frame["model"] = "slow".into();
        frame
    };
    send(&mut socket, &after(slow(json!([user("And?")])), &first)).await;
    let second = event(&mut socket).await["response"]["id"].clone();
    drop(socket);
    nobody_reads(&server).await;

    let message = &last(&first)["output"][0];
    let back = json!({ "type": "message", "id": message["id"], "role": "assistant",
        "phase": null, "content": [{ "type": "output_text", "text": text_of(last(&first)) }] });
    let mut socket = try_connect(&server, &session).await.unwrap();
    send(&mut socket, &slow(json!([user("Hi"), back, user("And?")]))).await;
    assert_eq!(event(&mut socket).await["response"]["id"], second);
    goes_on.add_permits(1);
}

async fn nobody_reads(server: &Server) {
    let metrics = || async { server.get("/metrics").await.text().await.unwrap() };
    let left = async { while !metrics().await.contains("capstan_active_readers 0\n") {} };
    tokio::time::timeout(GUARD, left).await.expect("the reader has left");
}

#[tokio::test]
async fn switched_off_it_sends_clients_to_post_at_once() {
    let (server, _) = serve(Settings { openai_websocket: false, ..Settings::default() }).await;
    assert_eq!(status(try_connect(&server, &[]).await), 426);
    let plain = server.get("/v1/responses").await;
    assert_eq!(
        (plain.status().as_u16(), &plain.headers()["allow"]),
        (405, &"POST".parse().unwrap())
    );
    let (server, _) = serve(Settings::default()).await;
    assert_eq!(server.get("/v1/responses").await.status(), 405);
}

/// A proxy that forwards no upgrades forwards the rest of the handshake.
#[tokio::test]
async fn a_handshake_without_its_upgrade_sends_clients_to_post_at_once() {
    let (server, _) = serve(Settings::default()).await;
    let handshake = client()
        .get(format!("{}/v1/responses", server.url))
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    assert_eq!(handshake.send().await.unwrap().status(), 426);
}

#[tokio::test]
async fn a_connection_belongs_to_the_tenant_of_its_handshake() {
    let tenant = |name: &str| Tenant::new(name, vec![KeyHash::of(name)]);
    let tenants = vec![tenant("a"), tenant("b")].into();
    let (server, _) = serve(Settings { tenants, ..Settings::default() }).await;
    assert_eq!(status(try_connect(&server, &[]).await), 401);
    let mut socket = try_connect(&server, &[("authorization", "Bearer a")]).await.unwrap();
    let id = last(&asked(&mut socket, &create("Hi".into())).await)["id"].clone();
    let look = |key: &'static str| {
        let url = format!("{}/v1/responses/{}", server.url, id.as_str().unwrap());
        client().get(url).bearer_auth(key).send()
    };
    assert_eq!(look("a").await.unwrap().status(), 200);
    assert_eq!(look("b").await.unwrap().status(), 404);
}

#[tokio::test]
async fn a_connection_counts_as_an_open_response_and_as_a_connection() {
    let limits = Limits { readers_per_tenant: 1, ..Limits::default() };
    let (server, _) = serve(Settings { limits, ..Settings::default() }).await;
    let first = connect(&server).await;
    assert_eq!(status(try_connect(&server, &[]).await), 503);
    drop(first);
    let again = async { while try_connect(&server, &[]).await.is_err() {} };
    tokio::time::timeout(GUARD, again).await.expect("there is room again");

    let limits = Limits { connections: 1, connections_per_address: 1, ..Limits::default() };
    let (server, _) = serve(Settings { limits, ..Settings::default() }).await;
    let mut socket = connect(&server).await;
    asked(&mut socket, &create("Hi".into())).await;
    let models = async || server_models(&server).await;
    assert_eq!(models().await, 503, "the connection keeps its place");
    drop(socket);
    let again = async { while models().await != 200 {} };
    tokio::time::timeout(GUARD, again).await.expect("there is room again");
}

/// Over a connection of its own.
async fn server_models(server: &Server) -> u16 {
    let url = format!("{}/v1/models", server.url);
    let asked = client().get(url).header("connection", "close").send().await;
    asked.map_or(0, |response| response.status().as_u16())
}

#[tokio::test]
async fn a_draining_server_closes_after_the_answer() {
    let (server, goes_on) = serve(Settings::default()).await;
    let (mut idle, mut busy) = (connect(&server).await, connect(&server).await);
    let mut slow = create("Hi".into());
    slow["model"] = "slow".into();
    send(&mut busy, &slow).await;
    while event(&mut busy).await["type"] != "response.output_text.delta" {}
    let stopping = tokio::spawn(server.stop());
    assert_eq!(close_code(&mut idle).await, 1001);
    goes_on.add_permits(1);
    assert_eq!(text_of(last(&answer(&mut busy).await)), "begun done");
    assert_eq!(close_code(&mut busy).await, 1001);
    drop((idle, busy));
    stopping.await.unwrap();
}

#[tokio::test]
async fn a_run_that_outlasts_the_server_breaks_off() {
    let timeouts = Timeouts { drain: Duration::from_millis(10), ..Timeouts::default() };
    let (server, _goes_on) = serve(Settings { timeouts, ..Settings::default() }).await;
    let mut socket = connect(&server).await;
    let mut slow = create("Hi".into());
    slow["model"] = "slow".into();
    send(&mut socket, &slow).await;
    while event(&mut socket).await["type"] != "response.output_text.delta" {}
    let stopping = tokio::spawn(server.stop());
    // What became of the run may be told before.
    let code = loop {
        let told = next(&mut socket).await;
        if let Message::Close(frame) = told {
            break u16::from(frame.unwrap().code);
        }
        assert!(told.to_text().unwrap().contains("run_interrupted"));
    };
    assert_eq!(code, 1001);
    drop(socket);
    stopping.await.unwrap();
}

#[tokio::test]
async fn frames_that_are_too_large_or_no_text_end_the_connection() {
    let limits = Limits { body_bytes: 10_000, ..Limits::default() };
    let (server, _) = serve(Settings { limits, ..Settings::default() }).await;
    let mut socket = connect(&server).await;
    send(&mut socket, &create("x".repeat(20_000).into())).await;
    assert_eq!(close_code(&mut socket).await, 1009);
    let mut socket = connect(&server).await;
    socket.send(Message::binary(vec![1])).await.unwrap();
    assert_eq!(close_code(&mut socket).await, 1003);
}

/// What it remembers of an answer is bounded: then the client says all of it again.
#[tokio::test]
async fn an_answer_that_is_too_long_is_not_remembered() {
    let limits = Limits { body_bytes: 3_000, ..Limits::default() };
    let (server, _) = serve(Settings { limits, ..Settings::default() }).await;
    let mut socket = connect(&server).await;
    let long = asked(&mut socket, &create("x".repeat(2_000).into())).await;
    let next = asked(&mut socket, &after(create("Hi".into()), &long)).await;
    // It is found where answers are kept for a while.
    assert_eq!(last(&next)["previous_response_id"], last(&long)["id"]);
}

#[tokio::test]
async fn a_connection_that_idles_is_closed() {
    let timeouts = Timeouts { waiting: Duration::from_millis(20), ..Timeouts::default() };
    let (server, _) = serve(Settings { timeouts, ..Settings::default() }).await;
    assert_eq!(close_code(&mut connect(&server).await).await, 1000);
}

/// A peer that asks for much and reads nothing of it.
#[tokio::test]
async fn a_peer_that_takes_nothing_is_cut_and_its_run_goes_on() {
    let timeouts = Timeouts { stalled_reader: Duration::from_millis(30), ..Timeouts::default() };
    let gateway = Gateway::new(journal()).agent("demo", crate::common::demo());
    let server =
        serve_gateway(gateway.settings(Settings { timeouts, ..Settings::default() })).await;
    let host = server.url.strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(host).await.unwrap();
    SockRef::from(&socket).set_recv_buffer_size(16 * 1024).unwrap();
    socket.write_all(handshake(host).as_bytes()).await.unwrap();
    // Some 5 MB: more than the kernel holds for a connection.
    let frame = json!({ "type": "response.create", "model": "demo", "input": "/tokens 25000" });
    let frame = frame.to_string();
    let head = [0x81, 0x80 | u8::try_from(frame.len()).unwrap(), 0, 0, 0, 0];
    socket.write_all(&head).await.unwrap();
    socket.write_all(frame.as_bytes()).await.unwrap();

    let metrics = || async { server.get("/metrics").await.text().await.unwrap() };
    let cut = async { while metrics().await.contains("capstan_stalled_readers_total 0\n") {} };
    tokio::time::timeout(GUARD, cut).await.expect("the reader is cut");
    nobody_reads(&server).await;
    let ended = async {
        loop {
            let runs: Value = server.get("/v1/streams").await.json().await.unwrap();
            if runs["streams"][0]["state"] == "closed" {
                break;
            }
        }
    };
    tokio::time::timeout(GUARD, ended).await.expect("its run is completed");
    let mut read = Vec::new();
    let end = socket.read_to_end(&mut read).await;
    assert!(end.is_err(), "the connection is reset after {} bytes", read.len());
}

fn handshake(host: &str) -> String {
    format!(
        "GET /v1/responses HTTP/1.1\r\nhost: {host}\r\nconnection: upgrade\r\n\
         upgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

/// A peer that answers no ping, though it takes all that is sent.
#[tokio::test]
async fn a_peer_that_is_not_there_is_given_up() {
    let timeouts = Timeouts { ping: Duration::from_millis(10), ..Timeouts::default() };
    let (server, _) = serve(Settings { timeouts, ..Settings::default() }).await;
    let host = server.url.strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(host).await.unwrap();
    socket.write_all(handshake(host).as_bytes()).await.unwrap();
    let mut read = Vec::new();
    tokio::time::timeout(GUARD, socket.read_to_end(&mut read)).await.expect("it ends").unwrap();
    assert!(read.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&read));
    assert!(read.ends_with(&[0x89, 0, 0x89, 0, 0x89, 0]), "three pings and nothing else");
}

//! The AI SDK face over HTTP, against a real server: whole chats, reloads, stops, tools, approvals,
//! refusals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Server, client, disk, journal, serve_gateway, start, start_on};
use capstan_agent::{Agent, Interrupt, Outcome, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, KeyHash, Limits, Settings, Tenant, Timeouts};
use capstan_protocol::{Fault, FaultKind, Part, Problem};
use serde_json::{Value, json};

const CHAT: &str = "/v1/ai-sdk/chat";

fn user(text: &str) -> Value {
    json!({ "id": format!("u {text}"), "role": "user", "parts": [{ "type": "text",
    "text": text }] })
}

fn submit(chat: &str, text: &str) -> Value {
    json!({ "id": chat, "messages": [user(text)], "trigger": "submit-message" })
}

async fn post_to(
    server: &Server,
    path: &str,
    body: &Value,
    headers: &[(&str, &str)],
) -> reqwest::Response {
    let mut request = client().post(format!("{}{path}", server.url)).json(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap()
}

async fn post(server: &Server, body: &Value) -> reqwest::Response {
    post_to(server, CHAT, body, &[]).await
}

async fn come_back(server: &Server, chat: &str, cursor: Option<&str>) -> reqwest::Response {
    let mut request = client().get(format!("{}{CHAT}/{chat}/stream", server.url));
    if let Some(cursor) = cursor {
        request = request.header("last-event-id", cursor);
    }
    request.send().await.unwrap()
}

async fn body(response: reqwest::Response) -> String {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["x-vercel-ai-ui-message-stream"], "v1");
    response.text().await.unwrap()
}

/// The chunks of a body, which ends with `[DONE]`.
fn chunks(body: &str) -> Vec<Value> {
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let mut data: Vec<&str> = data.collect();
    assert_eq!(data.pop(), Some("[DONE]"), "{body}");
    data.into_iter().map(|data| serde_json::from_str(data).unwrap()).collect()
}

fn types(chunks: &[Value]) -> Vec<&str> {
    chunks.iter().map(|chunk| chunk["type"].as_str().unwrap()).collect()
}

fn text(chunks: &[Value]) -> String {
    let deltas = chunks.iter().filter(|chunk| chunk["type"] == "text-delta");
    deltas.map(|chunk| chunk["delta"].as_str().unwrap()).collect()
}

fn find<'a>(chunks: &'a [Value], kind: &str) -> &'a Value {
    chunks
        .iter()
        .find(|chunk| chunk["type"] == kind)
        .unwrap_or_else(|| panic!("no {kind}: {chunks:?}"))
}

#[tokio::test]
async fn an_answer_is_one_message_and_comes_back_whole_under_the_same_id() {
    let server = start(Settings::default()).await;
    let response = post(&server, &submit("a chat", "/echo Hello, world")).await;
    let stream = crate::common::stream_of(&response);
    let first = body(response).await;
    let told = chunks(&first);
    assert_eq!(told[0], json!({ "type": "start", "messageId": format!("msg_{stream}") }));
    assert_eq!(text(&told), "Hello, world");
    let all = types(&told);
    assert_eq!(all[..3], ["start", "start-step", "text-start"]);
    assert_eq!(all[all.len() - 4..], ["text-end", "data-capstan-close", "finish-step", "finish"]);
    assert_eq!(find(&told, "finish")["finishReason"], "stop");
    assert_eq!(body(come_back(&server, "a%20chat", None).await).await, first, "byte for byte");
    // A cut at any chunk is resumed right after it.
    let ids: Vec<&str> = first.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    for id in &ids[..ids.len() - 1] {
        let rest = body(come_back(&server, "a%20chat", Some(id)).await).await;
        let (_, expected) = first.split_once(&format!("id: {id}\n")).unwrap();
        let (_, expected) = expected.split_once("\n\n").unwrap();
        assert_eq!(rest.strip_prefix(":\n"), Some(expected), "after {id}");
    }
    // The last one is all there is to have.
    let end = format!(
        "/v1/streams/{stream}?face=ai-sdk&after={}",
        ids.last().unwrap().rsplit(':').next().unwrap()
    );
    assert_eq!(server.get(&end).await.status(), 204);
    server.stop().await;
}

#[tokio::test]
async fn every_presentation_event_has_a_chunk_that_readers_know() {
    let server = start(Settings::default()).await;
    let told = chunks(&body(post(&server, &submit("c", "/events")).await).await);
    let reasoning = find(&told, "reasoning-delta");
    assert!(!reasoning["delta"].as_str().unwrap().is_empty());
    let source = find(&told, "source-url");
    assert!(source["sourceId"].is_string() && source["url"].as_str().unwrap().starts_with("http"));
    assert!(find(&told, "data-citations")["data"]["citations"].is_array());
    assert!(find(&told, "file")["mediaType"].is_string());
    assert!(find(&told, "data-media")["data"]["items"].is_array());
    assert!(find(&told, "data-progress")["data"]["status"].is_string());
    let told = chunks(&body(post(&server, &submit("d", "/user-error")).await).await);
    assert_eq!(find(&told, "data-user-error")["data"]["code"], 503);
    let told = chunks(&body(post(&server, &submit("e", "/warn")).await).await);
    assert_eq!(find(&told, "data-capstan-warning")["data"]["severity"], "WARNING");
    server.stop().await;
}

#[tokio::test]
async fn a_failure_is_sent_typed_and_then_as_a_sentence() {
    let server = start(Settings::default()).await;
    let body_of = submit("c", "/fault rate_limit_exceeded --retry-after 7");
    let told = chunks(&body(post(&server, &body_of).await).await);
    let all = types(&told);
    assert_eq!(all[all.len() - 4..], ["text-end", "data-capstan-error", "error", "finish"]);
    let fault = &told[told.len() - 3];
    assert_eq!((&fault["transient"], &fault["data"]["severity"]), (&json!(true), &json!("FATAL")));
    assert_eq!(told[told.len() - 2]["errorText"], fault["data"]["message"]);
    assert_eq!(told.last().unwrap()["finishReason"], "error");
    server.stop().await;
}

#[tokio::test]
async fn an_attempt_that_fails_is_healed_by_the_gateway_alone() {
    let server = start(Settings::default()).await;
    let told = chunks(&body(post(&server, &submit("c", "/flaky 1 --wait 1")).await).await);
    assert!(types(&told).contains(&"finish"), "{told:?}");
    server.stop().await;
}

#[tokio::test]
async fn the_same_message_starts_once_and_another_answer_is_another_run() {
    let server = start(Settings::default()).await;
    let sent = submit("c", "/echo Once");
    let (one, other) = tokio::join!(post(&server, &sent), post(&server, &sent));
    let first = crate::common::stream_of(&one);
    assert_eq!(crate::common::stream_of(&other), first);
    assert_eq!(body(one).await, body(other).await);
    let again =
        json!({ "id": "c", "messages": [user("/echo Once")], "trigger": "regenerate-message" });
    let (one, other) = (post(&server, &again).await, post(&server, &again).await);
    assert_ne!(crate::common::stream_of(&one), crate::common::stream_of(&other));
    assert_ne!(crate::common::stream_of(&one), first);
    // The chat goes on with the newest.
    let newest = crate::common::stream_of(&other);
    assert_eq!(crate::common::stream_of(&come_back(&server, "c", None).await), newest);
    let keyed = post_to(&server, CHAT, &again, &[("idempotency-key", "k")]).await;
    let repeat = post_to(&server, CHAT, &again, &[("idempotency-key", "k")]).await;
    assert_eq!(crate::common::stream_of(&keyed), crate::common::stream_of(&repeat));
    let conflict = post_to(&server, CHAT, &submit("c", "Else"), &[("idempotency-key", "k")]).await;
    assert_eq!(
        (conflict.status().as_u16(), &conflict.headers()["x-capstan-code"]),
        (409, &"request_conflict".parse().unwrap())
    );
    server.stop().await;
}

/// Fails at once, and from then on says nothing until it is stopped.
struct FailsOnce(AtomicBool);

#[async_trait]
impl Agent for FailsOnce {
    async fn run(&self, _turn: Turn, _out: &mut Writer) -> Outcome {
        if self.0.swap(false, Ordering::Relaxed) {
            return Err(Fault::new(FaultKind::AgentExecutionError).into());
        }
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_failed_message_sent_again_is_one_new_run() {
    let timeouts = Timeouts { drain: Duration::ZERO, ..Timeouts::default() };
    let gateway = Gateway::new(journal()).agent("demo", FailsOnce(AtomicBool::new(true)));
    let server =
        serve_gateway(gateway.settings(Settings { timeouts, ..Settings::default() })).await;
    let sent = submit("c", "Hello");
    let first = post(&server, &sent).await;
    let failed = crate::common::stream_of(&first);
    assert!(body(first).await.contains("\"error\""));
    let (one, other) = tokio::join!(post(&server, &sent), post(&server, &sent));
    assert_ne!(crate::common::stream_of(&one), failed);
    assert_eq!(crate::common::stream_of(&one), crate::common::stream_of(&other));
    server.stop().await;
}

#[tokio::test]
async fn a_chat_is_come_back_to_while_it_runs_and_for_five_minutes_after() {
    let server = start(Settings::default()).await;
    assert_eq!(come_back(&server, "c", None).await.status(), 204, "nobody knows it");
    let live = post(&server, &submit("c", "/hang")).await;
    let back = come_back(&server, "c", None).await;
    assert_eq!(crate::common::stream_of(&live), crate::common::stream_of(&back));
    let stopped = server.delete(&format!("{CHAT}/c/stream")).await;
    assert_eq!(stopped.status(), 204);
    for response in [live, back] {
        let told = chunks(&body(response).await);
        let end = [
            json!({ "type": "abort", "reason": "cancelled" }),
            json!({ "type": "finish", "finishReason": "other" }),
        ];
        assert_eq!(told[told.len() - 2..], end);
    }
    // A clock that runs a little fast is no clock that was set: time passes.
    for _ in 0..33 {
        server.clock.set_by(9);
        assert_eq!(come_back(&server, "c", None).await.status(), 200);
    }
    server.clock.set_by(9);
    assert_eq!(come_back(&server, "c", None).await.status(), 204);
    assert_eq!(server.delete(&format!("{CHAT}/c/stream")).await.status(), 204, "it is over");
    assert_eq!(server.delete(&format!("{CHAT}/unknown/stream")).await.status(), 404);
    server.stop().await;
}

#[tokio::test]
async fn a_chat_outlives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on(disk(folder.path()), Settings::default()).await;
    let first = body(post(&server, &submit("c", "/echo Kept")).await).await;
    server.stop().await;
    let server = start_on(disk(folder.path()), Settings::default()).await;
    assert_eq!(body(come_back(&server, "c", None).await).await, first);
    server.stop().await;
}

/// Calls the page's tool, says what came back; pays only if it may; looks things up by itself.
struct Clerk;

#[async_trait]
impl Agent for Clerk {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        if let Some(answer) = turn.answer("may-pay") {
            let said = answer.payload.as_ref().map_or("nothing", |payload| payload.get());
            out.event(
                "TOOL_CALL_RESULT",
                &json!({ "messageId": "m", "toolCallId": "pay-1", "content": "paid" }),
            )
            .await?;
            return Ok(out.delta(format!("You said {said}.")).await?);
        }
        if let Some(Part::ToolCallResponse { response, .. }) =
            turn.messages.last().and_then(|last| last.parts.last())
        {
            return Ok(out.delta(format!("It is {}.", response.get())).await?);
        }
        let (id, name) = match turn.text().as_str() {
            "pay" => ("pay-1", "pay"),
            "look" => ("look-1", "look"),
            _ => ("where-1", "whereAmI"),
        };
        out.delta("One moment. ").await?;
        out.event("TOOL_CALL_START", &json!({ "toolCallId": id, "toolCallName": name })).await?;
        out.event("TOOL_CALL_ARGS", &json!({ "toolCallId": id, "delta": "{\"n\":1}" })).await?;
        out.event("TOOL_CALL_END", &json!({ "toolCallId": id })).await?;
        match name {
            "pay" => {
                let asked = Interrupt {
                    tool_call_id: Some(id.into()),
                    ..Interrupt::new("may-pay", "approval").message("Pay?")
                };
                out.ask(asked).await?;
            }
            "look" => {
                out.event(
                    "TOOL_CALL_RESULT",
                    &json!({ "messageId": "m", "toolCallId": id, "content": "{\"found\":2}" }),
                )
                .await?;
                out.delta("Two.").await?;
            }
            _ => {}
        }
        Ok(())
    }
}

async fn start_clerk() -> Server {
    crate::common::serve_gateway(Gateway::new(journal()).agent("clerk", Clerk)).await
}

/// The message as a page holds it, with a call in this state.
fn assistant(message_id: &Value, call: &Value) -> Value {
    json!({ "id": message_id, "role": "assistant", "parts": [
        { "type": "step-start" }, { "type": "text", "text": "One moment. ", "state": "done" },
        call ] })
}

#[tokio::test]
async fn a_tool_of_the_page_makes_a_round_trip_within_one_message() {
    let server = start_clerk().await;
    let told = chunks(&body(post(&server, &submit("c", "where")).await).await);
    let input = find(&told, "tool-input-available");
    assert_eq!(
        input,
        &json!({ "type": "tool-input-available", "toolCallId": "where-1", "toolName": "whereAmI",
        "input": { "n": 1 } })
    );
    assert_eq!(find(&told, "finish")["finishReason"], "tool-calls");
    let id = &told[0]["messageId"];
    let call = json!({ "type": "tool-whereAmI", "toolCallId": "where-1",
    "state": "output-available", "input": { "n": 1 }, "output": { "city": "Rome" } });
    let sent = json!({ "id": "c", "messages": [user("where"), assistant(id, &call)],
    "trigger": "submit-message", "messageId": id });
    let told = chunks(&body(post(&server, &sent).await).await);
    assert_eq!(told[0], json!({ "type": "start", "messageId": id }), "it goes on with the message");
    assert_eq!(types(&told)[..2], ["start", "start-step"], "who posts has the rest");
    assert_eq!(text(&told), r#"It is {"city":"Rome"}."#);
    // Whoever reloads gets all of the message.
    let back = chunks(&body(come_back(&server, "c", None).await).await);
    assert_eq!(text(&back), r#"One moment. It is {"city":"Rome"}."#);
    assert_eq!(find(&back, "tool-output-available")["output"], json!({ "city": "Rome" }));
    // Pages that keep the chat on the server send what is new.
    let alone = json!({ "id": "c", "message": assistant(id, &call) });
    let told = chunks(&body(post(&server, &alone).await).await);
    assert_eq!(text(&told), r#"It is {"city":"Rome"}."#);
    server.stop().await;
}

#[tokio::test]
async fn an_approval_makes_a_round_trip_and_the_result_finds_its_call() {
    let server = start_clerk().await;
    let told = chunks(&body(post(&server, &submit("c", "pay")).await).await);
    let request = find(&told, "tool-approval-request");
    assert_eq!((&request["toolCallId"], &request["reason"]), (&json!("pay-1"), &json!("Pay?")));
    let id = &told[0]["messageId"];
    let call = json!({ "type": "tool-pay", "toolCallId": "pay-1", "state": "approval-responded",
    "input": { "n": 1 },
        "approval": { "id": request["approvalId"], "approved": true } });
    let sent = json!({ "id": "c", "messages": [user("pay"), assistant(id, &call)],
    "trigger": "submit-message" });
    let told = chunks(&body(post(&server, &sent).await).await);
    assert_eq!(
        find(&told, "tool-output-available"),
        &json!({ "type": "tool-output-available", "toolCallId": "pay-1", "output": "paid" })
    );
    assert_eq!(text(&told), r#"You said {"approved":true,"reason":null}."#);
    server.stop().await;
}

#[tokio::test]
async fn a_question_is_a_call_whose_output_is_the_answer() {
    let server = start(Settings::default()).await;
    let told = chunks(&body(post(&server, &submit("c", "/ask Blue?")).await).await);
    let asked = find(&told, "tool-input-available");
    assert_eq!(
        (&asked["toolName"], &asked["input"]["message"]),
        (&json!("interrupt"), &json!("Blue?"))
    );
    let id = &told[0]["messageId"];
    let call = json!({ "type": "tool-interrupt", "toolCallId": asked["toolCallId"],
    "state": "output-available",
        "input": asked["input"], "output": { "approved": true } });
    let sent = json!({ "id": "c", "messages": [user("/ask Blue?"), assistant(id, &call)],
    "trigger": "submit-message" });
    let told = chunks(&body(post(&server, &sent).await).await);
    assert_eq!(text(&told), r#"You answered {"approved":true}, so I go on."#);
    server.stop().await;
}

#[tokio::test]
async fn output_after_the_agents_own_result_is_a_new_step() {
    let server = start_clerk().await;
    let told = chunks(&body(post(&server, &submit("c", "look")).await).await);
    let all = types(&told);
    let result = all.iter().position(|kind| *kind == "tool-output-available").unwrap();
    assert_eq!(all[result + 1..result + 4], ["finish-step", "start-step", "text-start"]);
    assert_eq!(find(&told, "finish")["finishReason"], "stop");
    let dynamic = json!({ "id": "d", "messages": [user("look")], "dynamicTools": true });
    let told = chunks(&body(post(&server, &dynamic).await).await);
    assert_eq!(find(&told, "tool-input-start")["dynamic"], true);
    server.stop().await;
}

#[tokio::test]
async fn an_agent_of_its_own_has_chats_of_its_own() {
    let gateway =
        Gateway::new(journal()).agent("demo", crate::common::demo()).agent("clerk", Clerk);
    let server = crate::common::serve_gateway(gateway).await;
    let of_clerk = "/v1/agents/clerk/ai-sdk/chat";
    let told = chunks(&body(post_to(&server, of_clerk, &submit("c", "look"), &[]).await).await);
    assert_eq!(text(&told), "One moment. Two.");
    assert_eq!(server.get(&format!("{of_clerk}/c/stream")).await.status(), 200);
    assert_eq!(server.get("/v1/agents/demo/ai-sdk/chat/c/stream").await.status(), 204);
    let unknown = post_to(&server, "/v1/agents/nobody/ai-sdk/chat", &submit("c", "x"), &[]).await;
    assert_eq!(
        (unknown.status().as_u16(), &unknown.headers()["x-capstan-code"]),
        (404, &"agent_not_found".parse().unwrap())
    );
    server.stop().await;
}

#[tokio::test]
async fn refusals_are_sentences_or_problems_by_accept() {
    let limits = Limits { runs: 1, ..Limits::default() };
    let server = start(Settings { limits, ..Settings::default() }).await;
    let sentence = async |response: reqwest::Response| {
        assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
        let (status, code) = (
            response.status().as_u16(),
            response.headers()["x-capstan-code"].to_str().unwrap().to_owned(),
        );
        let text = response.text().await.unwrap();
        assert!(!text.starts_with('{') && text.contains(' '), "{text}");
        (status, code)
    };
    let wrong = post(&server, &json!({ "messages": [] })).await;
    assert_eq!(sentence(wrong).await, (400, "invalid_request".into()));
    let _live = post(&server, &submit("c", "/hang")).await;
    let limited = post(&server, &submit("d", "/hang")).await;
    let (status, code) = sentence(limited).await;
    assert_eq!(status, 503, "{code}");
    let asked = post_to(
        &server,
        CHAT,
        &submit("d", "/hang"),
        &[("accept", "text/event-stream, application/problem+json")],
    )
    .await;
    let problem: Problem = asked.json().await.unwrap();
    assert_eq!(problem.code, code);
    assert_eq!(sentence(server.get(CHAT).await).await.0, 405);
    server.delete(&format!("{CHAT}/c/stream")).await;
    server.stop().await;
}

/// For clients that read a message as a stream of Durable Streams: they send no key there.
#[tokio::test]
async fn a_message_is_readable_as_a_durable_stream_without_a_body() {
    let tenants = vec![Tenant::new("acme", vec![KeyHash::of("key-of-acme")])].into();
    let server = start(Settings { tenants, ..Settings::default() }).await;
    let key = ("authorization", "Bearer key-of-acme");
    let streamed = post_to(&server, CHAT, &submit("c", "/echo Ours"), &[key]).await;
    assert!(streamed.headers()["location"].to_str().unwrap().starts_with("/v1/durable/"));
    let again =
        post_to(&server, CHAT, &submit("c", "/echo Ours"), &[key, ("prefer", "respond-async")])
            .await;
    assert_eq!(again.headers()["x-stream-id"], streamed.headers()["x-stream-id"], "the same run");
    let back = client().get(format!("{}{CHAT}/c/stream", server.url)).bearer_auth("key-of-acme");
    let back = back.header("prefer", "respond-async").send().await.unwrap();
    for told in [again, back] {
        assert_eq!(
            (told.status().as_u16(), &told.headers()["preference-applied"]),
            (202, &"respond-async".parse().unwrap())
        );
        let place = told.headers()["location"].to_str().unwrap().to_owned();
        assert!(told.bytes().await.unwrap().is_empty());
        let items: Value = server.get(&place).await.json().await.unwrap();
        assert_eq!(text(items.as_array().unwrap()), "Ours", "{items}");
        let without = place.split("&ticket").next().unwrap();
        assert_eq!(server.get(without).await.status(), 401);
    }
    server.stop().await;
}

#[tokio::test]
async fn chats_of_another_tenant_are_unknown() {
    let tenants = ["acme", "other"]
        .map(|name| Tenant::new(name, vec![KeyHash::of(&format!("key-of-{name}"))]));
    let server = start(Settings { tenants: tenants.to_vec().into(), ..Settings::default() }).await;
    let acme = [("authorization", "Bearer key-of-acme")];
    let told = chunks(&body(post_to(&server, CHAT, &submit("c", "/echo Ours"), &acme).await).await);
    assert_eq!(text(&told), "Ours");
    let stranger = server.get(&format!("{CHAT}/c/stream")).await;
    assert_eq!(
        (stranger.status().as_u16(), stranger.headers()["content-type"].to_str().unwrap()),
        (401, "text/plain; charset=utf-8")
    );
    let get = |key: &'static str| {
        client().get(format!("{}{CHAT}/c/stream", server.url)).bearer_auth(key).send()
    };
    assert_eq!(get("key-of-other").await.unwrap().status(), 204);
    assert_eq!(get("key-of-acme").await.unwrap().status(), 200);
    let stop = client()
        .delete(format!("{}{CHAT}/c/stream", server.url))
        .bearer_auth("key-of-other")
        .send()
        .await
        .unwrap();
    assert_eq!(stop.status(), 404);
    server.stop().await;
}

//! The A2A face over HTTP, against a real server: both versions, both bindings, cards, tasks that
//! ask, cuts, refusals.

use crate::common::{Server, client, start};
use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, KeyHash, Settings, Tenant};
use serde_json::{Value, json};
use uuid::Uuid;

const URL: &str = "/v1/a2a";

fn message(text: &str) -> Value {
    json!({ "messageId": Uuid::now_v7().to_string(), "role": "ROLE_USER",
    "parts": [{ "text": text }] })
}

async fn post(
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

/// The answer of a JSON-RPC call.
async fn call(server: &Server, method: &str, params: Value) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": "c", "method": method, "params": params });
    let response = post(server, URL, &body, &[]).await;
    assert_eq!(response.status(), 200);
    let answer: Value = response.json().await.unwrap();
    assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!("c")));
    answer
}

async fn result(server: &Server, method: &str, params: Value) -> Value {
    let answer = call(server, method, params).await;
    assert!(answer.get("error").is_none(), "{answer}");
    answer["result"].clone()
}

async fn code(server: &Server, method: &str, params: Value) -> i64 {
    let answer = call(server, method, params).await;
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{answer}"))
}

async fn stream(server: &Server, method: &str, params: Value) -> reqwest::Response {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    let response = post(server, URL, &body, &[]).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    response
}

/// The events of a body, each the result of call 7.
fn events(body: &str) -> Vec<Value> {
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = data.map(|data| serde_json::from_str::<Value>(data).unwrap());
    events
        .map(|event| {
            assert_eq!((&event["jsonrpc"], &event["id"]), (&json!("2.0"), &json!(7)));
            event["result"].clone()
        })
        .collect()
}

fn text_of(parts: &Value) -> String {
    parts.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()).collect()
}

fn streamed_text(events: &[Value]) -> String {
    events.iter().map(|event| text_of(&event["artifactUpdate"]["artifact"]["parts"])).collect()
}

#[tokio::test]
async fn a_message_becomes_a_stored_streamed_task() {
    let server = start(Settings::default()).await;
    let sent = json!({ "message": message("/echo Hello, world") });
    let told =
        events(&stream(&server, "SendStreamingMessage", sent.clone()).await.text().await.unwrap());
    let task = &told[0]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_WORKING");
    assert_eq!(streamed_text(&told), "Hello, world");
    assert_eq!(told[1]["artifactUpdate"]["append"], false);
    assert!(told[2..told.len() - 1].iter().all(|event| event["artifactUpdate"]["append"] == true));
    let last = &told.last().unwrap()["statusUpdate"];
    assert_eq!(last["status"]["state"], "TASK_STATE_COMPLETED");
    let id = task["id"].as_str().unwrap();
    let kept = result(&server, "GetTask", json!({ "id": id })).await;
    assert_eq!(kept["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(text_of(&kept["artifacts"][0]["parts"]), "Hello, world");
    // The message's id starts once, however it is sent.
    let again = result(&server, "SendMessage", sent.clone()).await;
    assert_eq!(again["task"]["id"], id);
    let mut other = sent.clone();
    other["message"]["parts"][0]["text"] = "/echo Else".into();
    assert_eq!(code(&server, "SendMessage", other).await, -32602);
    // The context is the session.
    let next = json!({ "message": { "contextId": task["contextId"], "messageId": "2nd",
    "role": "ROLE_USER", "parts": [{ "text": "Hi" }] } });
    let next = result(&server, "SendMessage", next).await;
    assert_eq!(next["task"]["contextId"], task["contextId"]);
    let listed = result(&server, "ListTasks", json!({ "contextId": task["contextId"] })).await;
    let ids: Vec<&Value> =
        listed["tasks"].as_array().unwrap().iter().map(|task| &task["id"]).collect();
    assert_eq!(ids, [&next["task"]["id"], &task["id"]]);
    server.stop().await;
}

#[tokio::test]
async fn the_older_version_has_its_own_words_at_the_same_address() {
    let server = start(Settings::default()).await;
    let message = json!({ "kind": "message", "messageId": "m", "role": "user",
    "parts": [{ "kind": "text", "text": "/echo Hi there" }] });
    let told = events(
        &stream(&server, "message/stream", json!({ "message": message }))
            .await
            .text()
            .await
            .unwrap(),
    );
    assert_eq!(
        (&told[0]["kind"], &told[0]["status"]["state"]),
        (&json!("task"), &json!("working"))
    );
    assert_eq!(told[1]["kind"], "artifact-update");
    assert_eq!(told[1]["artifact"]["parts"][0]["kind"], "text");
    let last = told.last().unwrap();
    assert_eq!(
        (&last["kind"], &last["status"]["state"], &last["final"]),
        (&json!("status-update"), &json!("completed"), &json!(true))
    );
    let kept = result(&server, "tasks/get", json!({ "id": told[0]["id"] })).await;
    assert_eq!(
        (&kept["kind"], text_of(&kept["artifacts"][0]["parts"]).as_str()),
        (&json!("task"), "Hi there")
    );
    server.stop().await;
}

#[tokio::test]
async fn a_failure_is_a_task_that_failed_in_words_and_in_types() {
    let server = start(Settings::default()).await;
    let sent = json!({ "message": message("/fault content_refused") });
    let told = events(&stream(&server, "SendStreamingMessage", sent).await.text().await.unwrap());
    let status = &told.last().unwrap()["statusUpdate"]["status"];
    assert_eq!(status["state"], "TASK_STATE_FAILED");
    assert!(status["message"]["parts"][0]["text"].as_str().unwrap().ends_with('.'));
    assert_eq!(status["message"]["parts"][1]["data"]["code"], "content_refused");
    let kept = result(&server, "GetTask", json!({ "id": told[0]["task"]["id"] })).await;
    assert_eq!(kept["status"]["message"]["parts"], status["message"]["parts"]);
    server.stop().await;
}

#[tokio::test]
async fn an_answered_task_continues_under_its_id() {
    let server = start(Settings::default()).await;
    let asked =
        result(&server, "SendMessage", json!({ "message": message("/ask Paint it blue?") })).await
            ["task"]
            .clone();
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    assert_eq!(asked["status"]["message"]["parts"][0]["text"], "Paint it blue?");
    assert!(asked["status"]["message"]["parts"][1]["data"]["interrupts"].is_array());
    let mut answer = message("");
    answer["parts"] = json!([{ "data": { "approved": true } }]);
    answer["taskId"] = asked["id"].clone();
    let answered =
        result(&server, "SendMessage", json!({ "message": answer })).await["task"].clone();
    assert_eq!((&answered["id"], &answered["contextId"]), (&asked["id"], &asked["contextId"]));
    assert_eq!(answered["status"]["state"], "TASK_STATE_COMPLETED");
    // The same again is the same task; another one comes too late.
    assert_eq!(
        result(&server, "SendMessage", json!({ "message": answer })).await["task"],
        answered
    );
    answer["messageId"] = "another".into();
    assert_eq!(code(&server, "SendMessage", json!({ "message": answer })).await, -32004);
    let kept = result(&server, "GetTask", json!({ "id": asked["id"] })).await;
    assert_eq!(kept["status"]["state"], "TASK_STATE_COMPLETED");
    let said: Vec<String> =
        kept["artifacts"].as_array().unwrap().iter().map(|a| text_of(&a["parts"])).collect();
    assert!(
        said[0].contains("decision of yours")
            && said[1].contains(r#"You answered {"approved":true}"#),
        "{said:?}"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_task_that_asks_is_not_over() {
    let server = start(Settings::default()).await;
    let ask = async || {
        let sent = json!({ "message": message("/ask Paint it blue?") });
        result(&server, "SendMessage", sent).await["task"].clone()
    };
    let asked = ask().await;
    let id = &asked["id"];
    // Whoever subscribes has it as it stands.
    let told = events(
        &stream(&server, "SubscribeToTask", json!({ "id": id })).await.text().await.unwrap(),
    );
    assert_eq!(told.iter().map(|event| &event["task"]).collect::<Vec<_>>(), [&asked]);
    // It can be cancelled, once, and then asks for nothing any more.
    let canceled = result(&server, "CancelTask", json!({ "id": id })).await;
    assert_eq!(
        (&canceled["id"], &canceled["status"]["state"]),
        (id, &json!("TASK_STATE_CANCELED"))
    );
    assert_eq!(canceled["artifacts"], asked["artifacts"]);
    assert_eq!(result(&server, "GetTask", json!({ "id": id })).await, canceled);
    let listed = result(&server, "ListTasks", json!({ "contextId": asked["contextId"] })).await;
    assert_eq!(listed["tasks"][0]["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(code(&server, "CancelTask", json!({ "id": id })).await, -32002);
    assert_eq!(code(&server, "SubscribeToTask", json!({ "id": id })).await, -32004);
    let mut answer = message("yes");
    answer["taskId"] = id.clone();
    assert_eq!(code(&server, "SendMessage", json!({ "message": answer })).await, -32004);
    // Of an answer and a cancel that come at once, one counts.
    for _ in 0..8 {
        let mut answer = message("yes");
        let id = ask().await["id"].clone();
        answer["taskId"] = id.clone();
        let (answered, canceled) = tokio::join!(
            call(&server, "SendMessage", json!({ "message": answer })),
            call(&server, "CancelTask", json!({ "id": id })),
        );
        let state =
            result(&server, "GetTask", json!({ "id": id })).await["status"]["state"].clone();
        let is_answered = answered.get("result").is_some();
        assert_eq!(state == "TASK_STATE_COMPLETED", is_answered, "{answered} {canceled}");
        assert_ne!(canceled.get("result").is_some(), is_answered, "{answered} {canceled}");
    }
    server.stop().await;
}

/// Has heard data from another agent.
struct Teller;

#[async_trait]
impl Agent for Teller {
    async fn run(&self, _: Turn, out: &mut Writer) -> Outcome {
        out.event("A2A_DATA", &json!({ "artifact": "a", "data": { "key": "value" } })).await?;
        let item =
            json!({ "url": "https://a.example/x.png", "mime_type": "image/png", "alt_text": "x" });
        out.event("MEDIA_CAROUSEL", &json!({ "items": [item] })).await?;
        Ok(out.delta("That is it.").await?)
    }
}

#[tokio::test]
async fn data_of_an_agent_behind_this_one_go_on_and_media_are_files() {
    let server = crate::common::serve_gateway(
        Gateway::new(crate::common::journal()).agent("teller", Teller),
    )
    .await;
    let sent = json!({ "message": message("Tell me") });
    let told =
        events(&stream(&server, "SendStreamingMessage", sent.clone()).await.text().await.unwrap());
    let streamed = &told[1]["artifactUpdate"]["artifact"]["parts"];
    assert_eq!(streamed[0]["data"], json!({ "key": "value" }));
    let task = result(&server, "SendMessage", sent).await["task"].clone();
    let parts = &task["artifacts"][0]["parts"];
    assert_eq!((text_of(parts).as_str(), &parts[1]), ("That is it.", &streamed[0]));
    let file =
        json!({ "url": "https://a.example/x.png", "mediaType": "image/png", "filename": "x" });
    assert_eq!((&told[2]["artifactUpdate"]["artifact"]["parts"][0], &parts[2]), (&file, &file));
    let older = result(&server, "tasks/get", json!({ "id": task["id"] })).await;
    let file = json!({ "uri": "https://a.example/x.png", "mimeType": "image/png", "name": "x" });
    assert_eq!(older["artifacts"][0]["parts"][2], json!({ "kind": "file", "file": file }));
    server.stop().await;
}

#[tokio::test]
async fn a_version_that_is_not_spoken_is_refused_by_name() {
    let server = start(Settings::default()).await;
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {} });
    for version in ["1.0", "0.3", "1.0.2", "", "0.3.0"] {
        let told: Value =
            post(&server, URL, &body, &[("a2a-version", version)]).await.json().await.unwrap();
        assert!(told.get("result").is_some(), "{version}: {told}");
    }
    for version in ["99.0", "0.2", "1.01", "one"] {
        let told: Value =
            post(&server, URL, &body, &[("A2A-Version", version)]).await.json().await.unwrap();
        assert_eq!(
            (&told["error"]["code"], &told["id"]),
            (&json!(-32009), &json!(1)),
            "{version}: {told}"
        );
    }
    for path in ["/v1/a2a/tasks?A2A-Version=99.0", "/v1/agents/demo/a2a/tasks?A2A-Version=99.0"] {
        let refused = server.get(path).await;
        assert_eq!(refused.status(), 400);
        let refused: Value = refused.json().await.unwrap();
        assert_eq!(refused["error"]["details"][0]["reason"], "VERSION_NOT_SUPPORTED", "{refused}");
    }
    // Members may have the names of the protocol's definition.
    let mut sent = message("/echo Hi");
    sent["message_id"] = sent["messageId"].take();
    sent.as_object_mut().unwrap().remove("messageId");
    sent["context_id"] = "snake".into();
    let task = result(&server, "SendMessage", json!({ "message": sent })).await["task"].clone();
    assert_eq!(task["contextId"], "snake");
    let listed = result(&server, "ListTasks", json!({ "context_id": "other" })).await;
    assert_eq!(listed["tasks"], json!([]));
    // The address is the same with a slash.
    let told: Value = post(&server, "/v1/a2a/", &body, &[]).await.json().await.unwrap();
    assert!(told.get("result").is_some(), "{told}");
    server.stop().await;
}

#[tokio::test]
async fn cards_are_cacheable_and_extended_ones_have_their_version() {
    let server = start(Settings::default()).await;
    let card = server.get("/.well-known/agent-card.json").await;
    let header = |name: &str| card.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("cache-control"), "public, max-age=60");
    let tag = header("etag");
    let url = format!("{}/.well-known/agent-card.json", server.url);
    for (known, status) in [(tag.as_str(), 304), (&format!("\"x\", W/{tag}"), 304), ("\"x\"", 200)]
    {
        let again = client().get(&url).header("if-none-match", known).send().await.unwrap();
        assert_eq!(again.status().as_u16(), status, "{known}");
        assert_eq!(again.headers()["etag"], tag.as_str());
    }
    let new = result(&server, "GetExtendedAgentCard", json!({})).await;
    let old = result(&server, "agent/getAuthenticatedExtendedCard", json!({})).await;
    assert_eq!((new.get("url"), old["preferredTransport"].as_str()), (None, Some("JSONRPC")));
    let rest: Value = server.get("/v1/a2a/extendedAgentCard").await.json().await.unwrap();
    assert_eq!(rest, new);
    server.stop().await;
}

#[tokio::test]
async fn a_subscriber_gets_the_text_so_far_then_updates() {
    let server = start(Settings::default()).await;
    let mut live =
        stream(&server, "SendStreamingMessage", json!({ "message": message("/hang") })).await;
    let first = String::from_utf8(live.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    let id = events(&first)[0]["task"]["id"].clone();
    let joined = stream(&server, "SubscribeToTask", json!({ "id": id })).await;
    let canceled = result(&server, "CancelTask", json!({ "id": id })).await;
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED");
    let told = events(&joined.text().await.unwrap());
    assert_eq!(told[0]["task"]["id"], id);
    assert_eq!(told.last().unwrap()["statusUpdate"]["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(code(&server, "CancelTask", json!({ "id": id })).await, -32002);
    assert_eq!(code(&server, "SubscribeToTask", json!({ "id": id })).await, -32004);
    assert_eq!(code(&server, "GetTask", json!({ "id": Uuid::now_v7().to_string() })).await, -32001);
    server.stop().await;
}

#[tokio::test]
async fn a_cut_is_read_on_after_any_event_byte_for_byte() {
    let server = start(Settings::default()).await;
    let whole = stream(&server, "SendStreamingMessage", json!({ "message": message("/tokens 6") }))
        .await
        .text()
        .await
        .unwrap();
    let id = events(&whole)[0]["task"]["id"].clone();
    let ids: Vec<&str> = whole.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    let body =
        json!({ "jsonrpc": "2.0", "id": 7, "method": "SubscribeToTask", "params": { "id": id } });
    for at in &ids[..ids.len() - 1] {
        let rest = post(&server, URL, &body, &[("last-event-id", at)]).await.text().await.unwrap();
        let (_, after) = whole.split_once(&format!("id: {at}\n")).unwrap();
        let (_, after) = after.split_once("\n\n").unwrap();
        assert_eq!(rest.strip_prefix(":\n"), Some(after), "after {at}");
    }
    server.stop().await;
}

#[tokio::test]
async fn http_and_json_say_the_same_without_envelopes() {
    let server = start(Settings::default()).await;
    let sent = json!({ "message": message("/echo Plain") });
    let told: Value = post(&server, "/v1/a2a/message:send", &sent, &[]).await.json().await.unwrap();
    let id = told["task"]["id"].as_str().unwrap().to_owned();
    assert_eq!(text_of(&told["task"]["artifacts"][0]["parts"]), "Plain");
    let streamed = post(&server, "/v1/a2a/message:stream", &sent, &[]).await.text().await.unwrap();
    assert!(streamed.contains(r#"data: {"task":{"#), "{streamed}");
    let kept: Value = server.get(&format!("/v1/a2a/tasks/{id}")).await.json().await.unwrap();
    assert_eq!(kept, told["task"]);
    let listed: Value = server.get("/v1/a2a/tasks?pageSize=5").await.json().await.unwrap();
    assert_eq!(listed["tasks"][0]["id"], id.as_str());
    let over = post(&server, &format!("/v1/a2a/tasks/{id}:cancel"), &json!({}), &[]).await;
    assert_eq!(over.status(), 409);
    let over: Value = over.json().await.unwrap();
    assert_eq!(over["error"]["details"][0]["reason"], "TASK_NOT_CANCELABLE");
    for method in [reqwest::Method::GET, reqwest::Method::POST] {
        let url = format!("{}/v1/a2a/tasks/{id}:subscribe", server.url);
        let refused = client().request(method, url).send().await.unwrap();
        assert_eq!(refused.status(), 400);
        let refused: Value = refused.json().await.unwrap();
        assert_eq!(refused["error"]["details"][0]["reason"], "UNSUPPORTED_OPERATION", "{refused}");
    }
    let unknown = server.get(&format!("/v1/a2a/tasks/{}", Uuid::now_v7())).await;
    assert_eq!(unknown.status(), 404);
    let unknown = unknown.json::<Value>().await.unwrap()["error"].clone();
    assert_eq!(unknown["details"][0]["reason"], "TASK_NOT_FOUND");
    assert!(
        unknown["message"].as_str().unwrap().starts_with("The task was not found"),
        "{unknown}"
    );
    server.stop().await;
}

/// Whoever subscribes while the task is cancelled sees its end, wherever between two looks the
/// cancel comes.
#[tokio::test]
async fn a_subscription_that_races_a_cancel_gets_the_end() {
    for looks in 1..=2 {
        let store = crate::common::odd_store::OddStore::new().shared();
        let server = crate::common::serve_gateway(
            Gateway::new(store.journal()).agent("demo", crate::common::demo()),
        )
        .await;
        let sent =
            json!({ "message": message("/hang"), "configuration": { "returnImmediately": true } });
        let id =
            result(&server, "SendMessage", sent).await["task"]["id"].as_str().unwrap().to_owned();
        let before = store.store.run(id.parse().unwrap()).await.unwrap().unwrap();
        result(&server, "CancelTask", json!({ "id": id })).await;
        store.old_looks.lock().unwrap().extend(std::iter::repeat_n(before, looks));
        let told = stream(&server, "SubscribeToTask", json!({ "id": id })).await.text().await;
        let told = events(&told.expect("a clean end"));
        let last = told.last().unwrap();
        let status =
            if looks == 1 { &last["task"]["status"] } else { &last["statusUpdate"]["status"] };
        assert_eq!(status["state"], "TASK_STATE_CANCELED", "{told:?}");
        server.stop().await;
    }
}

/// HTTP+JSON of 0.3 has a form of its own, whose clients read no member that they do not know.
#[tokio::test]
async fn http_and_json_of_the_older_version_have_their_own_words() {
    let server = start(Settings::default()).await;
    let said = json!({ "messageId": Uuid::now_v7().to_string(), "role": "ROLE_USER",
    "content": [{ "text": "/echo Old" }] });
    let sent = json!({ "message": said, "configuration": { "blocking": true } });
    let told: Value =
        post(&server, "/v1/a2a/v1/message:send", &sent, &[]).await.json().await.unwrap();
    let id = told["task"]["id"].as_str().unwrap().to_owned();
    let mut names: Vec<_> = told["task"].as_object().unwrap().keys().collect();
    names.sort();
    assert_eq!(told["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(names, ["artifacts", "contextId", "id", "status"]);
    assert_eq!(told["task"]["artifacts"][0]["parts"], json!([{ "text": "Old" }]));
    let streamed =
        post(&server, "/v1/a2a/v1/message:stream", &sent, &[]).await.text().await.unwrap();
    let last = streamed.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["statusUpdate"]["final"], true, "{streamed}");
    let kept: Value = server.get(&format!("/v1/a2a/v1/tasks/{id}")).await.json().await.unwrap();
    assert_eq!(kept, told["task"]);
    // A failure's words are the content of a message, its types one deeper than elsewhere.
    let fault = json!({ "messageId": "f", "role": "ROLE_USER",
    "content": [{ "text": "/fault content_refused" }] });
    let fault = json!({ "message": fault, "configuration": { "blocking": true } });
    let failed: Value = post(&server, "/v1/agents/demo/a2a/v1/message:send", &fault, &[])
        .await
        .json()
        .await
        .unwrap();
    let said = &failed["task"]["status"]["message"];
    assert_eq!(said["content"][1]["data"]["data"]["code"], "content_refused", "{failed}");
    // What is sent so is read so.
    let data = json!([{ "text": "/echo " }, { "data": { "data": { "a": 1 } } }]);
    let data = json!({ "messageId": "d", "role": "ROLE_USER", "content": data });
    let data = json!({ "message": data, "configuration": { "blocking": true } });
    let echoed: Value =
        post(&server, "/v1/a2a/v1/message:send", &data, &[]).await.json().await.unwrap();
    assert!(!echoed.to_string().contains(r#""data":{\"a"#), "{echoed}");
    let over = post(&server, &format!("/v1/a2a/v1/tasks/{id}:cancel"), &json!({}), &[]).await;
    assert_eq!(over.status(), 409);
    assert_eq!(over.json::<Value>().await.unwrap()["code"], -32002);
    let unread = post(&server, "/v1/a2a/v1/message:send", &json!({ "message": 7 }), &[]).await;
    assert_eq!(
        (unread.status().as_u16(), unread.json::<Value>().await.unwrap()["code"].clone()),
        (400, json!(-32602))
    );
    server.stop().await;
}

#[tokio::test]
async fn clients_with_a_key_learn_the_other_agents() {
    let tenants = vec![Tenant::new("acme", vec![KeyHash::of("key-a")])].into();
    let gateway = Gateway::new(crate::common::journal())
        .agent("demo", crate::common::demo())
        .agent("other", crate::common::demo());
    let server =
        crate::common::serve_gateway(gateway.settings(Settings { tenants, ..Settings::default() }))
            .await;
    let public: Value = server.get("/.well-known/agent-card.json").await.json().await.unwrap();
    assert_eq!(public["capabilities"]["extendedAgentCard"], true);
    assert!(!public.to_string().contains("other"), "{public}");
    for path in
        ["/v1/a2a/extendedAgentCard", "/v1/a2a/v1/card", "/v1/agents/demo/a2a/extendedAgentCard"]
    {
        assert_eq!(server.get(path).await.status(), 401, "{path}");
        let told = client()
            .get(format!("{}{path}", server.url))
            .bearer_auth("key-a")
            .send()
            .await
            .unwrap();
        let card: Value = told.json().await.unwrap();
        assert_eq!(card["skills"][1]["id"], "other", "{path}: {card}");
    }
    for method in ["GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard"] {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method });
        assert_eq!(post(&server, URL, &body, &[]).await.status(), 401);
        let told = post(&server, URL, &body, &[("authorization", "Bearer key-a")]).await;
        let told: Value = told.json().await.unwrap();
        assert_eq!(
            (&told["result"]["name"], &told["result"]["skills"][1]["id"]),
            (&json!("demo"), &json!("other"))
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn a_card_names_absolute_addresses_and_needs_no_key() {
    let tenants = vec![Tenant::new("acme", vec![KeyHash::of("key-a")])].into();
    let server = start(Settings { tenants, ..Settings::default() }).await;
    let card: Value = server.get("/.well-known/agent-card.json").await.json().await.unwrap();
    assert_eq!(card["url"], format!("{}/v1/a2a", server.url));
    assert_eq!(card["capabilities"]["streaming"], true);
    let of_agent: Value =
        server.get("/v1/agents/demo/a2a/.well-known/agent-card.json").await.json().await.unwrap();
    assert_eq!(
        of_agent["supportedInterfaces"][0]["url"],
        format!("{}/v1/agents/demo/a2a", server.url)
    );
    assert!(of_agent["securitySchemes"].is_object());
    // All else does need one.
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": { "id": "x" } });
    let refused = post(&server, URL, &body, &[]).await;
    assert_eq!(refused.status(), 401);
    let refused: Value = refused.json().await.unwrap();
    assert!(refused["error"]["message"].as_str().unwrap().ends_with('.'), "{refused}");
    server.stop().await;
    let settings =
        Settings { public_url: Some("https://agents.example/".into()), ..Settings::default() };
    let server = start(settings).await;
    let card: Value = server.get("/.well-known/agent-card.json").await.json().await.unwrap();
    assert_eq!(card["url"], "https://agents.example/v1/a2a");
    server.stop().await;
}

#[tokio::test]
async fn an_invalid_call_is_refused_in_json_rpc() {
    let server = start(Settings::default()).await;
    let raw = client()
        .post(format!("{}{URL}", server.url))
        .header("content-type", "application/json")
        .body("{");
    let unparsable: Value = raw.send().await.unwrap().json().await.unwrap();
    assert_eq!(unparsable["error"]["code"], -32700);
    for wrong in [
        json!([]),
        json!({ "jsonrpc": "1.0", "id": 1, "method": "ListTasks" }),
        json!({ "jsonrpc": "2.0", "id": 1 }),
        json!({ "jsonrpc": "2.0", "id": 1, "method": 5 }),
        json!({ "jsonrpc": "2.0", "id": { "no": "id" }, "method": "ListTasks" }),
    ] {
        let refused: Value = post(&server, URL, &wrong, &[]).await.json().await.unwrap();
        assert_eq!(refused["error"]["code"], -32600, "{wrong}");
        let id = if wrong["id"] == 1 { json!(1) } else { Value::Null };
        assert_eq!(refused["id"], id, "{wrong}");
    }
    assert_eq!(code(&server, "Dance", json!({})).await, -32601);
    assert_eq!(code(&server, "SendMessage", json!({})).await, -32602);
    assert_eq!(
        code(&server, "SendMessage", json!({ "message": { "messageId": "m", "parts": [] } })).await,
        -32602
    );
    assert_eq!(code(&server, "GetTask", json!({})).await, -32602);
    let diverges = json!({ "message": message("/diverge") });
    let told =
        events(&stream(&server, "SendStreamingMessage", diverges).await.text().await.unwrap());
    assert_eq!(told.last().unwrap()["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    // What was taken back is told anew in place of what there was.
    let again: Vec<usize> =
        (0..told.len()).filter(|at| told[*at]["artifactUpdate"]["append"] == false).collect();
    assert_eq!(again.len(), 2, "{told:?}");
    server.stop().await;
}

//! A2A's push notifications against a real server: who asked is told where its task stands, again
//! if it must be.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::common::{Server, client, demo};
use bytes::Bytes;
use capstan_agent::async_trait;
use capstan_gateway::{
    Gateway, KeyHash, Origin, Settings, Tenant, Timeouts, Webhook, WebhookSender,
};
use capstan_journal::Journal;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use uuid::Uuid;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Keeps what is posted, and answers as it is told.
#[derive(Clone)]
struct Receiver {
    posted: mpsc::UnboundedSender<Posted>,
    answer: Arc<AtomicU16>,
}

struct Posted {
    url: String,
    allow_private: bool,
    headers: HashMap<&'static str, String>,
    event: Value,
}

#[async_trait]
impl WebhookSender for Receiver {
    async fn post(
        &self,
        to: &Webhook,
        headers: &[(&'static str, String)],
        body: Bytes,
    ) -> Result<u16, String> {
        let event = serde_json::from_slice(&body).unwrap();
        let headers = headers.iter().cloned().collect();
        let _ = self.posted.send(Posted {
            url: to.url.clone(),
            allow_private: to.allow_private,
            headers,
            event,
        });
        Ok(self.answer.swap(204, Ordering::Relaxed))
    }
}

fn receiver(answer: u16) -> (Receiver, mpsc::UnboundedReceiver<Posted>) {
    let (posted, seen) = mpsc::unbounded_channel();
    (Receiver { posted, answer: Arc::new(AtomicU16::new(answer)) }, seen)
}

async fn serve(journal: Journal, receiver: Receiver, tenants: Vec<Tenant>) -> Server {
    let timeouts = Timeouts { drain: Duration::from_millis(100), ..Timeouts::default() };
    let settings = Settings { tenants: tenants.into(), timeouts, ..Settings::default() };
    crate::common::serve_gateway(
        Gateway::new(journal).agent("demo", demo()).webhooks(receiver).settings(settings),
    )
    .await
}

fn tenants() -> Vec<Tenant> {
    let webhook = Webhook::new("https://hooks.example/", SECRET);
    vec![
        Tenant { webhook, ..Tenant::new("acme", vec![KeyHash::of("sk")]) },
        Tenant::new("other", vec![KeyHash::of("sk-other")]),
    ]
}

async fn call(server: &Server, key: &str, method: &str, params: Value) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let request = client().post(format!("{}/v1/a2a", server.url)).bearer_auth(key).json(&body);
    request.send().await.unwrap().json().await.unwrap()
}

fn message(text: &str, configuration: Value) -> Value {
    let parts = json!([{ "text": text }]);
    json!({ "message": { "messageId": Uuid::now_v7().to_string(), "role": "ROLE_USER",
    "parts": parts }, "configuration": configuration })
}

fn old_message(text: &str, configuration: Value) -> Value {
    let parts = json!([{ "kind": "text", "text": text }]);
    json!({ "message": { "kind": "message", "messageId": Uuid::now_v7().to_string(),
    "role": "user", "parts": parts }, "configuration": configuration })
}

#[tokio::test]
async fn a_config_in_a_message_is_notified_of_every_end() {
    let (receiver, mut seen) = receiver(204);
    let server = serve(crate::common::journal(), receiver, tenants()).await;
    let push = json!({ "url": "https://mine.example/a2a", "token": "t-1",
    "authentication": { "scheme": "Bearer", "credentials": "c" } });
    for (command, state) in [
        ("/echo hi", "TASK_STATE_COMPLETED"),
        ("/fault content_refused", "TASK_STATE_FAILED"),
        ("/ask", "TASK_STATE_INPUT_REQUIRED"),
    ] {
        let sent = message(
            command,
            json!({ "returnImmediately": true, "taskPushNotificationConfig": push }),
        );
        let task =
            call(&server, "sk", "SendMessage", sent.clone()).await["result"]["task"]["id"].clone();
        // Sent again, it is one task and one delivery.
        call(&server, "sk", "SendMessage", sent).await;
        let told = seen.recv().await.unwrap();
        assert_eq!((told.url.as_str(), told.allow_private), ("https://mine.example/a2a", false));
        let update = &told.event["statusUpdate"];
        assert_eq!(
            (&update["taskId"], &update["status"]["state"]),
            (&task, &json!(state)),
            "{command}"
        );
        assert_eq!(
            (
                told.headers["x-a2a-notification-token"].as_str(),
                told.headers["authorization"].as_str()
            ),
            ("t-1", "Bearer c")
        );
        assert!(
            !told.headers.contains_key("webhook-signature"),
            "the tenant's secret is not the client's"
        );
    }
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn a_private_receiver_needs_the_operators_consent_for_its_own_origin() {
    let (receiver, mut seen) = receiver(204);
    // The consent to a webhook of the tenant's own is none to what its clients name.
    let mut webhook = Webhook::new("http://10.0.0.1/", SECRET).unwrap();
    webhook.allow_private = true;
    let push_origins = vec![Origin::parse("http://10.0.0.7:8080").unwrap()];
    let acme = Tenant {
        webhook: Some(webhook),
        push_origins,
        ..Tenant::new("acme", vec![KeyHash::of("sk")])
    };
    let server = serve(crate::common::journal(), receiver, vec![acme]).await;
    for (url, is_allowed) in [
        ("http://10.0.0.7:8080/a2a", true),
        ("http://10.0.0.7:8081/a2a", false),
        ("https://10.0.0.7:8080/a2a", false),
        ("http://10.0.0.1/", false),
        ("http://169.254.169.254/latest/meta-data", false),
    ] {
        let push = json!({ "taskPushNotificationConfig": { "url": url } });
        call(&server, "sk", "SendMessage", message("/echo hi", push)).await;
        let told = seen.recv().await.unwrap();
        assert_eq!((told.url.as_str(), told.allow_private), (url, is_allowed));
        assert!(!told.headers.contains_key("webhook-signature"));
    }
}

#[tokio::test]
async fn a_tenant_opens_and_stops_its_deliveries_in_the_console() {
    let (receiver, _seen) = receiver(204);
    let server = serve(crate::common::journal(), receiver, tenants()).await;
    let push = json!({ "url": "https://mine.example/" });
    // The task goes on, so its delivery waits for the end.
    let sent = json!({ "returnImmediately": true, "taskPushNotificationConfig": push });
    call(&server, "sk", "SendMessage", message("/tokens 1000 --delay 1s", sent)).await;
    let ask = async |method: &str, path: &str, key: &str| {
        let url = format!("{}/v1/console/runs{path}", server.url);
        client().request(method.parse().unwrap(), url).bearer_auth(key).send().await.unwrap()
    };
    let list: Value = ask("GET", "", "sk").await.json().await.unwrap();
    let rows = list["runs"].as_array().unwrap();
    let delivery = rows.iter().find(|row| row["tenant"] == "acme\u{b7}deliveries").unwrap();
    let id = delivery["stream_id"].as_str().unwrap();
    for part in ["", "/marks", "/frames", "/body"] {
        assert_eq!(ask("GET", &format!("/{id}{part}"), "sk").await.status(), 200, "{part}");
        assert_eq!(ask("GET", &format!("/{id}{part}"), "sk-other").await.status(), 404, "{part}");
    }
    assert_eq!(ask("POST", &format!("/{id}/stop"), "sk-other").await.status(), 404);
    let stopped: Value = ask("POST", &format!("/{id}/stop"), "sk").await.json().await.unwrap();
    assert_eq!(stopped["state"], "stopped");
    assert_eq!(ask("DELETE", &format!("/{id}"), "sk").await.status(), 204);
    assert_eq!(ask("GET", &format!("/{id}"), "sk").await.status(), 404);
    server.stop().await;
}

#[tokio::test]
async fn a_task_that_continues_is_notified_again() {
    let (receiver, mut seen) = receiver(204);
    let server = serve(crate::common::journal(), receiver, tenants()).await;
    let sent = old_message(
        "/ask Blue?",
        json!({ "pushNotificationConfig": { "id": "c", "url": "https://mine.example/" } }),
    );
    let task = call(&server, "sk", "message/send", sent).await["result"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let told = seen.recv().await.unwrap().event;
    assert_eq!(
        (&told["kind"], &told["status"]["state"]),
        (&json!("task"), &json!("input-required")),
        "the task, in 0.3"
    );
    let mut answer = old_message("yes", json!({}));
    answer["message"]["taskId"] = json!(task);
    call(&server, "sk", "message/send", answer).await;
    let told = seen.recv().await.unwrap().event;
    assert_eq!((&told["id"], &told["status"]["state"]), (&json!(task), &json!("completed")));
    // Both deliveries are of one config, and neither is a task.
    let listed =
        call(&server, "sk", "tasks/pushNotificationConfig/list", json!({ "id": task })).await;
    assert_eq!(listed["result"].as_array().unwrap().len(), 1, "{listed}");
    let tasks = call(&server, "sk", "ListTasks", json!({})).await;
    assert_eq!(tasks["result"]["tasks"].as_array().unwrap().len(), 1, "{tasks}");
}

#[tokio::test]
async fn configs_are_set_read_listed_and_deleted_in_both_versions_and_by_their_owner_alone() {
    let (receiver, mut seen) = receiver(204);
    let server = serve(crate::common::journal(), receiver, tenants()).await;
    let sent = message("/hang", json!({ "returnImmediately": true }));
    let task = call(&server, "sk", "SendMessage", sent).await["result"]["task"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let set = call(
        &server,
        "sk",
        "CreateTaskPushNotificationConfig",
        json!({ "taskId": task, "id": "new", "url": "https://a.example/" }),
    )
    .await;
    assert_eq!(set["result"], json!({ "taskId": task, "id": "new", "url": "https://a.example/" }));
    let old = json!({ "taskId": task, "pushNotificationConfig": { "id": "old",
    "url": "https://b.example/", "token": "t" } });
    let set = call(&server, "sk", "tasks/pushNotificationConfig/set", old.clone()).await;
    assert_eq!(set["result"], old);
    let got = call(
        &server,
        "sk",
        "tasks/pushNotificationConfig/get",
        json!({ "id": task, "pushNotificationConfigId": "old" }),
    )
    .await;
    assert_eq!(got["result"], old);
    let got = call(
        &server,
        "sk",
        "GetTaskPushNotificationConfig",
        json!({ "taskId": task, "id": "old" }),
    )
    .await;
    assert_eq!(got["result"]["url"], "https://b.example/");
    let base = format!("{}/v1/a2a/tasks/{task}/pushNotificationConfigs", server.url);
    let listed: Value =
        client().get(&base).bearer_auth("sk").send().await.unwrap().json().await.unwrap();
    let ids: Vec<&Value> =
        listed["configs"].as_array().unwrap().iter().map(|config| &config["id"]).collect();
    assert_eq!(ids, [&json!("old"), &json!("new")]);
    let foreign = call(
        &server,
        "sk-other",
        "GetTaskPushNotificationConfig",
        json!({ "taskId": task, "id": "old" }),
    )
    .await;
    assert_eq!(foreign["error"]["code"], -32001);
    let gone = client().delete(format!("{base}/new")).bearer_auth("sk").send().await.unwrap();
    assert_eq!(gone.status(), 200);
    let got = call(
        &server,
        "sk",
        "GetTaskPushNotificationConfig",
        json!({ "taskId": task, "id": "new" }),
    )
    .await;
    assert_eq!(got["error"]["code"], -32001);
    call(&server, "sk", "CancelTask", json!({ "id": task })).await;
    let told = seen.recv().await.unwrap();
    assert_eq!(
        (told.url.as_str(), &told.event["status"]["state"]),
        ("https://b.example/", &json!("canceled"))
    );
    assert!(seen.try_recv().is_err(), "who is deleted is told nothing");
}

#[tokio::test]
async fn invalid_push_configs_are_refused_and_their_number_is_bounded() {
    let (receiver, _seen) = receiver(204);
    let server = serve(crate::common::journal(), receiver, tenants()).await;
    let sent = message("/hang", json!({ "returnImmediately": true }));
    let task = call(&server, "sk", "SendMessage", sent).await["result"]["task"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let set = async |more: Value| {
        let mut params = json!({ "taskId": task });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call(&server, "sk", "CreateTaskPushNotificationConfig", params).await["error"]["code"]
            .clone()
    };
    for wrong in [
        json!({}),
        json!({ "url": "file:///etc/passwd" }),
        json!({ "url": "https://user:secret@a.example/" }),
        json!({ "url": "https://a.example/", "token": "a\nb" }),
        json!({ "url": format!("https://a.example/{}", "x".repeat(3000)) }),
    ] {
        assert_eq!(set(wrong.clone()).await, json!(-32602), "{wrong}");
    }
    for n in 0..8 {
        assert_eq!(
            set(json!({ "id": n.to_string(), "url": "https://a.example/" })).await,
            Value::Null,
            "{n}"
        );
    }
    assert_eq!(set(json!({ "id": "one more", "url": "https://a.example/" })).await, json!(-32602));
    assert_eq!(
        set(json!({ "id": "3", "url": "https://b.example/" })).await,
        Value::Null,
        "in place of what was there"
    );
}

#[tokio::test]
async fn a_delivery_outlives_a_restart_and_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let (first, _before) = receiver(204);
    let server = serve(crate::common::disk(folder.path()), first, tenants()).await;
    let sent = message(
        "/hang",
        json!({ "returnImmediately": true,
        "taskPushNotificationConfig": { "url": "https://mine.example/" } }),
    );
    let task = call(&server, "sk", "SendMessage", sent).await["result"]["task"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    server.stop().await;
    let (second, mut after) = receiver(500);
    let server = serve(crate::common::disk(folder.path()), second, tenants()).await;
    call(&server, "sk", "CancelTask", json!({ "id": task })).await;
    let (failed, told) = (after.recv().await.unwrap(), after.recv().await.unwrap());
    assert_eq!(told.event["statusUpdate"]["taskId"], json!(task));
    assert_eq!(
        (&failed.event, &failed.headers["webhook-id"]),
        (&told.event, &told.headers["webhook-id"])
    );
    server.stop().await;
}

#[tokio::test]
async fn without_tenants_push_goes_to_this_machine_only() {
    let (receiver, mut seen) = receiver(204);
    let server = serve(crate::common::journal(), receiver, Vec::new()).await;
    let card = async |server: &Server| {
        let card = client()
            .get(format!("{}/.well-known/agent-card.json", server.url))
            .send()
            .await
            .unwrap();
        card.json::<Value>().await.unwrap()["capabilities"]["pushNotifications"].clone()
    };
    assert_eq!(card(&server).await, json!(true));
    call(
        &server,
        "",
        "SendMessage",
        message(
            "/echo hi",
            json!({ "taskPushNotificationConfig": { "url": "http://localhost:9/" } }),
        ),
    )
    .await;
    let told = seen.recv().await.unwrap();
    assert!(told.allow_private && !told.headers.contains_key("webhook-signature"));
    let mute =
        crate::common::serve_gateway(Gateway::new(crate::common::journal()).agent("demo", demo()))
            .await;
    assert_eq!(card(&mute).await, json!(false));
    let task =
        call(&mute, "", "SendMessage", message("/echo hi",
        json!({}))).await["result"]["task"]["id"].clone();
    let refused = call(
        &mute,
        "",
        "CreateTaskPushNotificationConfig",
        json!({ "taskId": task, "url": "http://localhost:9/" }),
    )
    .await;
    assert_eq!(refused["error"]["code"], -32003);
}

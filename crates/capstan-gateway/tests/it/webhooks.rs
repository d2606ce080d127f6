//! Webhooks against a real server: told of every end, signed, tried again, and after a restart.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::common::{Server, client, demo};
use bytes::Bytes;
use capstan_agent::async_trait;
use capstan_gateway::{
    Gateway, KeyHash, Limits, Settings, Tenant, Timeouts, Webhook, WebhookSender,
};
use capstan_journal::{ArmedBy, Claim, Journal, Quota};
use capstan_protocol::Timestamp;
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
    headers: HashMap<&'static str, String>,
    event: Value,
    status: u16,
}

#[async_trait]
impl WebhookSender for Receiver {
    async fn post(
        &self,
        to: &Webhook,
        headers: &[(&'static str, String)],
        body: Bytes,
    ) -> Result<u16, String> {
        assert_eq!(to.url, "https://hooks.example/");
        // It answers once as it was told, then as it should.
        let status = self.answer.swap(204, Ordering::Relaxed);
        let event = serde_json::from_slice(&body).unwrap();
        let _ =
            self.posted.send(Posted { headers: headers.iter().cloned().collect(), event, status });
        Ok(status)
    }
}

fn receiver(answer: u16) -> (Receiver, mpsc::UnboundedReceiver<Posted>) {
    let (posted, seen) = mpsc::unbounded_channel();
    (Receiver { posted, answer: Arc::new(AtomicU16::new(answer)) }, seen)
}

async fn serve(journal: Journal, receiver: Receiver) -> Server {
    serve_within(journal, receiver, Limits::default()).await
}

async fn serve_within(journal: Journal, receiver: Receiver, limits: Limits) -> Server {
    let webhook = Webhook::new("https://hooks.example/", SECRET);
    let acme = Tenant { webhook, ..Tenant::new("acme", vec![KeyHash::of("sk")]) };
    let tenants = vec![acme, Tenant::new("quiet", vec![KeyHash::of("sk-quiet")])];
    // What hangs is not waited for.
    let timeouts = Timeouts { drain: Duration::from_millis(100), ..Timeouts::default() };
    let settings = Settings { tenants: tenants.into(), timeouts, limits, ..Settings::default() };
    crate::common::serve_gateway(
        Gateway::new(journal).agent("demo", demo()).webhooks(receiver).settings(settings),
    )
    .await
}

async fn ask(server: &Server, key: &str, body: &Value) -> Value {
    let request = client().post(format!("{}/v1/responses", server.url)).bearer_auth(key).json(body);
    request.send().await.unwrap().json().await.unwrap()
}

fn in_the_background(text: &str) -> Value {
    json!({ "model": "demo", "input": text, "background": true })
}

#[tokio::test]
async fn every_end_is_delivered_signed_with_ids_only() {
    let (receiver, mut seen) = receiver(204);
    let server = serve(crate::common::journal(), receiver).await;
    // Neither who waits, nor who has no webhook.
    ask(&server, "sk", &json!({ "model": "demo", "input": "/echo hi" })).await;
    ask(&server, "sk-quiet", &in_the_background("/echo hi")).await;
    for (command, kind) in [
        ("/echo hi", "response.completed"),
        ("/fault upstream_auth", "response.failed"),
        ("/hang", "response.cancelled"),
    ] {
        let response = ask(&server, "sk", &in_the_background(command)).await;
        let id = response["id"].as_str().unwrap();
        if command == "/hang" {
            let cancel =
                client().post(format!("{}/v1/responses/{id}/cancel", server.url)).bearer_auth("sk");
            cancel.send().await.unwrap();
        }
        let Posted { headers, event, .. } = seen.recv().await.unwrap();
        assert_eq!(
            (&event["type"], &event["data"]),
            (&json!(kind), &json!({ "id": id })),
            "{command}"
        );
        assert_eq!(
            (&event["object"], event["id"].as_str()),
            (&json!("event"), headers.get("webhook-id").map(String::as_str))
        );
        assert!(headers["webhook-signature"].starts_with("v1,"));
        assert!(headers["webhook-timestamp"].parse::<i64>().unwrap() > 1_700_000_000);
    }
    assert!(seen.try_recv().is_err());
    // Nor does a delivery stand among the tenant's runs.
    let list =
        client().get(format!("{}/v1/streams", server.url)).bearer_auth("sk").send().await.unwrap();
    let list: Value = list.json().await.unwrap();
    assert_eq!(list["streams"].as_array().unwrap().len(), 4, "{list}");
    // No request can ask who delivers.
    let refused = ask(&server, "sk", &json!({ "model": "capstan:webhook", "input": "x" })).await;
    assert_eq!(refused["error"]["code"], "model_not_found");
}

#[tokio::test]
async fn a_delivery_that_fails_is_tried_again_under_the_same_id() {
    let (receiver, mut seen) = receiver(500);
    let server = serve(crate::common::journal(), receiver).await;
    ask(&server, "sk", &in_the_background("/echo hi")).await;
    let (first, second) = (seen.recv().await.unwrap(), seen.recv().await.unwrap());
    assert_eq!((first.status, second.status), (500, 204));
    assert_eq!(
        (&first.headers["webhook-id"], &first.event),
        (&second.headers["webhook-id"], &second.event)
    );
    assert_eq!(server.waits(), [5.0]);
}

#[tokio::test]
async fn an_end_after_a_restart_is_delivered_then() {
    let folder = tempfile::tempdir().unwrap();
    let (first, mut before) = receiver(204);
    let server = serve(crate::common::disk(folder.path()), first).await;
    // The demo may be tried again, so its run goes on in the next life.
    let response = ask(&server, "sk", &in_the_background("/hang")).await;
    server.stop().await;
    assert!(before.try_recv().is_err());
    let (second, mut after) = receiver(204);
    let server = serve(crate::common::disk(folder.path()), second).await;
    let id = response["id"].as_str().unwrap();
    let cancel =
        client().post(format!("{}/v1/responses/{id}/cancel", server.url)).bearer_auth("sk");
    cancel.send().await.unwrap();
    let told = after.recv().await.unwrap();
    assert_eq!(
        (&told.event["type"], &told.event["data"]["id"]),
        (&json!("response.cancelled"), &response["id"])
    );
    server.stop().await;
}

/// What is still to be told takes no place of a run, and has a bound of its own.
#[tokio::test]
async fn deliveries_are_bounded_and_take_no_place_of_a_run() {
    let (receiver, mut seen) = receiver(204);
    let limits = Limits { runs_per_tenant: 3, deliveries_per_tenant: 2, ..Limits::default() };
    let server = serve_within(crate::common::journal(), receiver, limits).await;
    let mut begun = Vec::new();
    for _ in 0..3 {
        let response = ask(&server, "sk", &in_the_background("/hang")).await;
        assert_eq!(response["status"], "in_progress", "{response}");
        begun.push(response["id"].as_str().unwrap().to_owned());
    }
    let refused = ask(&server, "sk", &in_the_background("/hang")).await;
    assert_eq!(refused["error"]["code"], "session_limit_exceeded", "three run");
    for id in &begun {
        let cancel =
            client().post(format!("{}/v1/responses/{id}/cancel", server.url)).bearer_auth("sk");
        assert_eq!(cancel.send().await.unwrap().status(), 200);
    }
    // The third was one too many: it is counted, and its end not told.
    let told = [seen.recv().await.unwrap(), seen.recv().await.unwrap()];
    let told: Vec<_> = told.iter().map(|told| told.event["data"]["id"].as_str().unwrap()).collect();
    assert!(begun[..2].iter().all(|id| told.contains(&id.as_str())), "{told:?}");
    let metrics = server.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("capstan_undelivered_total 1\n"), "{metrics}");
    // There is room again.
    ask(&server, "sk", &in_the_background("/echo hi")).await;
    assert_eq!(seen.recv().await.unwrap().event["type"], "response.completed");
}

/// A crash may come after a response was claimed and before its delivery was.
#[tokio::test]
async fn an_unrecorded_delivery_is_made_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let journal = crate::common::disk(folder.path());
    let streams = [Uuid::now_v7(), Uuid::now_v7()];
    for (stream, is_background) in streams.into_iter().zip([true, false]) {
        let body = json!({ "model": "demo", "input": "/echo hi", "background": is_background });
        let claim = Claim::new("acme", stream.to_string(), stream, Timestamp::now());
        let (agent, face, session) = ("demo".into(), "openai-responses".into(), stream.to_string());
        let body = Bytes::from(body.to_string());
        let claim = Claim {
            agent,
            face,
            session,
            body,
            max_attempts: 3,
            armed_by: ArmedBy::Gateway,
            ..claim
        };
        journal.claim(claim, &Quota::UNLIMITED).await.unwrap();
    }
    drop(journal);
    let (receiver, mut seen) = receiver(204);
    let server = serve(crate::common::disk(folder.path()), receiver).await;
    let told = seen.recv().await.unwrap();
    let id = format!("resp_{}", streams[0].simple());
    assert_eq!(
        (&told.event["type"], &told.event["data"]["id"]),
        (&json!("response.completed"), &json!(id))
    );
    server.stop().await;
    assert!(seen.try_recv().is_err(), "the other was not in the background");
}

//! Looks at what was said, and whatever is done, are on the record.

use std::io;
use std::sync::{Arc, Mutex};

use capstan_gateway::KeyHash;
use serde_json::Value;
use uuid::Uuid;

use crate::common::{self, all, ask, ask_in, start, stream_of};
use crate::console::{ids, json, send, settings};

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
async fn reads_of_content_and_actions_are_in_the_audit() {
    let log = Log::default();
    let writer = log.clone();
    let lines =
        tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone());
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
    let session = Uuid::now_v7();
    all(server.post_with(&ask_in(session, "/tokens 1"), &[("authorization", auth)]).await).await;
    let path = format!("/v1/console/sessions/a/{session}");
    assert_eq!(send(&server, "DELETE", &path, Some("doer")).await.status(), 204);
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
        ("console did", "doer", "purge"),
    ];
    assert_eq!(told, expected, "{text}");
    assert!(audit.iter().all(|line| line["owner"] == "a"));
    let (of_session, of_run) = audit.split_last().unwrap();
    assert!(
        of_run
            .iter()
            .all(|line| line["stream"] == stream.as_str() && line.get("session").is_none())
    );
    assert_eq!(
        (&of_session["session"], of_session.get("stream")),
        (&session.to_string().into(), None)
    );
    // By which of its keys, as a tenant's lines tell it.
    for line in &audit {
        let key = KeyHash::of(line["operator"].as_str().unwrap()).to_hex();
        assert_eq!(line["key"], key[..8], "{line}");
    }
    let metrics = server.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("capstan_console_total{name=\"stop\"} 1"), "{metrics}");
}

//! Webhooks of gateways that share a journal: one of them delivers, and another one if that is gone.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::client::http;
use crate::postgres_server::Database;
use crate::process::Server;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// Of `sk`.
const KEY: &str = "sha256:32b56ed53348a8587f30c90e5c6406df95d3b8ab1130b1da62bcf492a8ed8a63";

/// Answers every POST with 204 and passes its body on.
async fn receive(listener: TcpListener, posted: mpsc::UnboundedSender<Value>) {
    while let Ok((mut connection, _)) = listener.accept().await {
        let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
        let body = loop {
            match connection.read(&mut buffer).await {
                Ok(0) | Err(_) => break None,
                Ok(count) => read.extend_from_slice(&buffer[..count]),
            }
            let text = String::from_utf8_lossy(&read);
            if let Some((_, body)) = text.split_once("\r\n\r\n")
                && let Ok(body) = serde_json::from_str(body)
            {
                break Some(body);
            }
        };
        let _ = connection.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
        if let Some(body) = body {
            let _ = posted.send(body);
        }
    }
}

async fn ask(server: &Server, input: &str) -> Value {
    let body = json!({ "input": input, "background": true });
    let request = http().post(format!("{}/v1/responses", server.url)).bearer_auth("sk").json(&body);
    request.send().await.unwrap().json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_gateway_delivers_a_webhook_and_another_one_if_that_is_killed() {
    let Some(database) = Database::create() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hook = format!("http://{}/", listener.local_addr().unwrap());
    let (posted, mut seen) = mpsc::unbounded_channel();
    tokio::spawn(receive(listener, posted));
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "{}\n[[tenants]]\nname = \"acme\"\nkeys = [\"{KEY}\"]\nwebhook = {{ url = \"{hook}\", secret_env = \"HOOK_SECRET\", allow_private = true }}\n",
        crate::CONFIG
    );
    std::fs::write(folder.path().join("capstan.toml"), config).unwrap();
    let start = || Server::start_as(folder.path(), &["--journal", &database.url], &[("HOOK_SECRET", SECRET)]);
    let (first, _second) = (start(), start());
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(ask(&first, &format!("/echo {n}")).await["id"].clone());
    }
    let mut told = Vec::new();
    for _ in 0..5 {
        let event = tokio::time::timeout(Duration::from_secs(30), seen.recv()).await.unwrap().unwrap();
        told.push(event["data"]["id"].clone());
    }
    told.sort_by_key(Value::to_string);
    ids.sort_by_key(Value::to_string);
    assert_eq!(told, ids, "each of them once");

    let response = ask(&first, "/tokens 200 --delay 10ms").await;
    first.signal("KILL");
    let event = tokio::time::timeout(Duration::from_secs(60), seen.recv()).await.unwrap().unwrap();
    assert_eq!((&event["type"], &event["data"]["id"]), (&json!("response.completed"), &response["id"]));
    assert!(seen.try_recv().is_err(), "nothing came twice");
}

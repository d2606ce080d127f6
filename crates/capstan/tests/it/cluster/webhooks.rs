//! Webhooks over PostgreSQL: each delivery arrives, whichever gateway dies.

use std::collections::HashSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::cluster::postgres_server::Database;
use crate::cluster::{CONFIG, Cluster};
use crate::serve::client::http;

const KEY: &str = "sk_hooked";
const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A received request.
struct Posted {
    head: String,
    body: String,
}

impl Posted {
    fn header(&self, name: &str) -> &str {
        let found = self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        });
        found.unwrap_or_else(|| panic!("no {name} in {}", self.head))
    }

    /// Checks the signature as the specification says, without our own code.
    fn verify(&self) {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &BASE64_STANDARD.decode(SECRET).unwrap());
        let signed = format!(
            "{}.{}.{}",
            self.header("webhook-id"),
            self.header("webhook-timestamp"),
            self.body
        );
        let signature = self.header("webhook-signature").strip_prefix("v1,").unwrap();
        let signature = BASE64_STANDARD.decode(signature).unwrap();
        hmac::verify(&secret, signed.as_bytes(), &signature).expect("it is signed");
    }
}

/// A receiver that takes everything.
async fn receiver() -> (String, mpsc::UnboundedReceiver<Posted>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hooks", listener.local_addr().unwrap());
    let (posted, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let posted = posted.clone();
            tokio::spawn(async move {
                let mut read = Vec::new();
                while !is_whole(&read) {
                    if socket.read_buf(&mut read).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let text = String::from_utf8(read).unwrap();
                let (head, body) = text.split_once("\r\n\r\n").unwrap();
                let _ = posted.send(Posted { head: head.to_owned(), body: body.to_owned() });
                let _ =
                    socket.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
            });
        }
    });
    (url, seen)
}

fn is_whole(read: &[u8]) -> bool {
    let text = String::from_utf8_lossy(read);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| {
        line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok()
    });
    body.len() >= length.unwrap_or(0)
}

async fn start(url: &str) -> (Cluster, Database) {
    let database = Database::create();
    let config = format!(
        "{CONFIG}[[tenants]]\nname = \"hooked\"\nkeys = [\"sha256:{}\"]\n\
         webhook = {{ url = \"{url}\", secret_env = \"HOOK\", allow_private = true }}\n",
        capstan_gateway::KeyHash::of(KEY).to_hex()
    );
    let mut cluster = Cluster::empty(database.url.clone(), &config);
    (0..3).for_each(|_| cluster.add_with(&[("HOOK", &format!("whsec_{SECRET}"))]));
    (cluster, database)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn a_webhook_is_delivered_by_the_living() {
    let (url, mut seen) = receiver().await;
    let (mut cluster, database) = start(&url).await;
    let body = json!({ "model": "demo", "input": "/tokens 100 --delay 5ms", "background": true });
    let request = http()
        .post(format!("{}/v1/responses", cluster.servers[0].url))
        .bearer_auth(KEY)
        .json(&body);
    let begun: Value = request.send().await.unwrap().json().await.unwrap();
    assert!(matches!(begun["status"].as_str(), Some("queued" | "in_progress")), "{begun}");
    cluster.servers.remove(0).kill();
    let told = seen.recv().await.unwrap();
    told.verify();
    let event: Value = serde_json::from_str(&told.body).unwrap();
    assert_eq!(
        (&event["type"], &event["data"]["id"]),
        (&json!("response.completed"), &begun["id"])
    );
    assert_eq!(event["id"], told.header("webhook-id"));
    let open = "select count(*) from capstan.runs where state < 3";
    while database.sql(open) != "0" {}
    // At least once: repeats have the same id.
    let mut ids = HashSet::from([told.header("webhook-id").to_owned()]);
    while let Ok(again) = seen.try_recv() {
        ids.insert(again.header("webhook-id").to_owned());
    }
    assert_eq!(ids.len(), 1);
    assert_eq!(
        database.sql("select count(*) from capstan.runs where state = 3"),
        "2",
        "a response, a delivery"
    );
}

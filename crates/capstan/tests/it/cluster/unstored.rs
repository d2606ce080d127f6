//! `no_store` tenants live in one gateway's memory; each face finds them at any gateway.

use std::collections::HashSet;

use reqwest::{Method, Response};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::cluster::postgres_server::Database;
use crate::cluster::{CONFIG, Cluster, assert_whole};
use crate::serve::client::{ask, http, packets, read_until, stream_of, tokens, whole_frames};

const KEY: &str = "sk_private";
/// A long lease: if a busy machine loses it, the tenant moves and its data is gone.
const KEPT: f64 = 600.0;
/// After which a gateway that is killed or frozen is missed.
const BRIEF: f64 = 4.0;

/// The hash of that key, and of another tenant's.
fn config(lease: f64) -> String {
    let hash = |key: &str| capstan_gateway::KeyHash::of(key).to_hex();
    let plain = CONFIG.replace("lease = 1", &format!("lease = {lease}"));
    format!(
        "{plain}[[tenants]]\nname = \"quiet\"\nno_store = true\nkeys = [\"sha256:{}\"]\n\
         [[tenants]]\nname = \"loud\"\nkeys = [\"sha256:{}\"]\n",
        hash(KEY),
        hash("sk_loud")
    )
}

fn start(lease: f64) -> (Cluster, Database) {
    let database = Database::create();
    (Cluster::over(database.url.clone(), &config(lease), None), database)
}

impl Cluster {
    async fn call(
        &self,
        server: usize,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Response {
        let url = format!("{}{path}", self.servers[server].url);
        let mut request = http().request(method, url).bearer_auth(KEY);
        if let Some(body) = body {
            request = request.json(body);
        }
        request.send().await.unwrap()
    }

    async fn tell(&self, server: usize, path: &str, body: &Value) -> Response {
        let response = self.call(server, Method::POST, path, Some(body)).await;
        if response.status() != 200 {
            panic!("{path}: {} {}", response.status(), response.text().await.unwrap());
        }
        response
    }

    async fn look(&self, server: usize, path: &str) -> Response {
        self.call(server, Method::GET, path, None).await
    }

    async fn ask_privately(&self, server: usize, request: &Value) -> Response {
        self.tell(server, "/v1/assist", request).await
    }
}

fn request(text: &str) -> Value {
    serde_json::to_value(ask(text)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn a_tenant_that_is_not_stored_is_served_by_every_gateway_and_nothing_of_it_is_written() {
    let (cluster, database) = start(KEPT);
    // At three gateways at once: one run, the same bytes.
    let asked = request("/tokens 40 --delay 2ms");
    let (a, b, c) = tokio::join!(
        cluster.ask_privately(0, &asked),
        cluster.ask_privately(1, &asked),
        cluster.ask_privately(2, &asked)
    );
    let streams: HashSet<_> = [&a, &b, &c].map(stream_of).into();
    assert_eq!(streams.len(), 1);
    let served: HashSet<_> = [&a, &b, &c].map(|one| one.headers()["x-served-by"].clone()).into();
    assert_eq!(served.len(), 1, "one of them answered for all");
    let bodies = [a.bytes().await.unwrap(), b.bytes().await.unwrap(), c.bytes().await.unwrap()];
    assert!(bodies[0] == bodies[1] && bodies[1] == bodies[2]);
    assert_whole(&packets(&bodies[0]), &tokens(40));
    // Watched, listed, stopped and erased at each of them.
    let first = streams.into_iter().next().unwrap();
    for server in 0..3 {
        let whole =
            cluster.look(server, &format!("/v1/streams/{first}")).await.bytes().await.unwrap();
        assert!(whole == bodies[0]);
        let mut watching =
            cluster.ask_privately((server + 1) % 3, &request("/tokens 100000 --delay 5ms")).await;
        let path = format!("/v1/streams/{}", stream_of(&watching));
        let mut seen = read_until(&mut watching, |seen| seen.contains(":10\n")).await;
        let stopped: Value =
            cluster.call(server, Method::DELETE, &path, None).await.json().await.unwrap();
        assert_eq!(stopped["reason"], "cancelled");
        seen.extend(read_until(&mut watching, |_| false).await);
        assert!(cluster.look((server + 2) % 3, &path).await.bytes().await.unwrap() == seen);
        let erased =
            cluster.call(server, Method::DELETE, &format!("{path}?purge=true"), None).await;
        assert!(erased.status().is_success(), "{}", erased.status());
        let list: Value = cluster.look((server + 1) % 3, "/v1/streams").await.json().await.unwrap();
        assert_eq!(list["streams"].as_array().unwrap().len(), 1, "at {server}");
    }
    // Forwarding changes neither refusals of this gateway nor those of the other one.
    let nobody = http().get(format!("{}/v1/streams", cluster.servers[1].url)).send().await.unwrap();
    assert_eq!(nobody.status(), 401);
    for server in 0..3 {
        let unknown = cluster.look(server, &format!("/v1/streams/{}", Uuid::now_v7())).await;
        assert_eq!(unknown.status(), 404);
        let problem: Value = unknown.json().await.unwrap();
        assert_eq!(problem["code"], "stream_not_found", "at {server}");
    }
    // The database holds only the host: no run, no packet, no content.
    for table in ["runs", "blocks", "sessions", "turns"] {
        assert_eq!(database.sql(&format!("select count(*) from capstan.{table}")), "0", "{table}");
    }
    let claims = database.sql("select key from capstan.claims");
    assert!(
        !claims.is_empty() && claims.lines().all(|key| key.starts_with("unstored:")),
        "{claims}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn each_face_finds_a_tenant_that_is_not_stored_from_the_wrong_gateway() {
    let (cluster, _database) = start(KEPT);
    // It lives at the first from now on.
    let home = cluster.ask_privately(0, &request("/echo home")).await;
    let home = home.headers()["x-served-by"].clone();
    let is_from_home = |response: &Response| assert_eq!(response.headers()["x-served-by"], home);
    for wrong in [1, 2] {
        // CAP, and its stream as Durable Streams has it.
        let response = cluster.ask_privately(wrong, &request("/echo Hello")).await;
        is_from_home(&response);
        let stream = stream_of(&response);
        assert!(response.text().await.unwrap().contains("Hello"));
        let durable = cluster.look(wrong, &format!("/v1/durable/{stream}?offset=-1")).await;
        assert_eq!(durable.headers()["stream-closed"], "true");
        assert!(durable.text().await.unwrap().contains("Hello"));
        // A ticket that one gateway has given opens the stream at another.
        let ticket =
            cluster.call(wrong, Method::POST, &format!("/v1/streams/{stream}/ticket"), None).await;
        let ticket: Value = ticket.json().await.unwrap();
        let opened = format!(
            "{}/v1/streams/{stream}?ticket={}",
            cluster.servers[wrong].url,
            ticket["ticket"].as_str().unwrap()
        );
        assert!(http().get(opened).send().await.unwrap().text().await.unwrap().contains("Hello"));
        // AG-UI: the same run again is the same run.
        let input = json!({ "threadId": Uuid::now_v7().to_string(),
        "runId": format!("run {wrong}"), "state": {},
            "messages": [{ "id": "u", "role": "user", "content": "/echo Hello" }], "tools": [],
            "context": [] });
        let first = cluster.tell(wrong, "/v1/ag-ui", &input).await;
        let again = cluster.tell(0, "/v1/ag-ui", &input).await;
        assert_eq!(stream_of(&first), stream_of(&again));
        let first = first.text().await.unwrap();
        assert!(
            first.contains("RUN_FINISHED") && again.text().await.unwrap().contains("RUN_FINISHED")
        );
        // OpenAI's chat completions and responses; a response is found by its id, and continued.
        let chat =
            json!({ "model": "demo", "messages": [{ "role": "user", "content": "/echo Hello" }] });
        let chat: Value =
            cluster.tell(wrong, "/v1/chat/completions", &chat).await.json().await.unwrap();
        assert_eq!(chat["choices"][0]["message"]["content"], "Hello");
        let body = json!({ "model": "demo", "input": "/echo Hello" });
        let made: Value = cluster.tell(0, "/v1/responses", &body).await.json().await.unwrap();
        let found: Value = cluster
            .look(wrong, &format!("/v1/responses/{}", made["id"].as_str().unwrap()))
            .await
            .json()
            .await
            .unwrap();
        assert_eq!((&found["id"], &found["status"]), (&made["id"], &json!("completed")));
        let next =
            json!({ "model": "demo", "input": "/echo again", "previous_response_id": made["id"] });
        let next: Value = cluster.tell(wrong, "/v1/responses", &next).await.json().await.unwrap();
        assert_eq!(next["previous_response_id"], made["id"], "{next}");
        // The AI SDK: a chat is found by its own id.
        let message = json!({ "id": "u", "role": "user", "parts": [{ "type": "text",
        "text": "/echo Hello" }] });
        let submit = json!({ "id": format!("chat-{wrong}"), "messages": [message],
        "trigger": "submit-message" });
        let told = cluster.tell(wrong, "/v1/ai-sdk/chat", &submit).await.text().await.unwrap();
        let back = cluster.look(3 - wrong, &format!("/v1/ai-sdk/chat/chat-{wrong}/stream")).await;
        assert!(told.contains("Hello") && back.text().await.unwrap() == told);
        // A2A: a task by its id, in both bindings.
        let message = json!({ "messageId": Uuid::now_v7().to_string(), "role": "ROLE_USER",
        "parts": [{ "text": "/echo Hello" }] });
        let send = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage",
        "params": { "message": message } });
        let sent: Value = cluster.tell(wrong, "/v1/a2a", &send).await.json().await.unwrap();
        let task = sent["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}"));
        let get =
            json!({ "jsonrpc": "2.0", "id": 2, "method": "GetTask", "params": { "id": task } });
        let got: Value = cluster.tell(3 - wrong, "/v1/a2a", &get).await.json().await.unwrap();
        assert_eq!(got["result"]["id"], task, "{got}");
        let got: Value =
            cluster.look(wrong, &format!("/v1/a2a/tasks/{task}")).await.json().await.unwrap();
        assert_eq!(got["id"], task);
    }
    let metrics = cluster.servers[1].get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("capstan_cluster_passed_on_total{outcome=\"passed\"}"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn unstored_runs_of_a_dead_gateway_are_lost_and_never_run_twice() {
    let (mut cluster, _database) = start(BRIEF);
    let asked = request("/tokens 100000 --delay 5ms");
    let mut response = cluster.ask_privately(0, &asked).await;
    let stream = stream_of(&response);
    let mut watching = cluster.look(1, &format!("/v1/streams/{stream}")).await;
    let seen = read_until(&mut watching, |seen| seen.contains(":10\n")).await;
    let own = read_until(&mut response, |seen| seen.contains(":10\n")).await;
    assert!(own.starts_with(whole_frames(&seen)) || seen.starts_with(whole_frames(&own)));
    cluster.servers.remove(0).kill();
    // Viewers through another gateway are cut, like those of the dead one.
    drop(read_until(&mut watching, |_| false).await);
    // While its lease may last, requests get a typed refusal. Then the tenant moves, and its data
    // is gone.
    let mut refused = 0;
    let lost = loop {
        let answer = cluster.look(1, &format!("/v1/streams/{stream}")).await;
        match answer.status().as_u16() {
            503 => {
                assert_eq!(answer.headers()["retry-after"], "1");
                assert_eq!(answer.json::<Value>().await.unwrap()["code"], "service_unavailable");
                refused += 1;
            }
            _ => break answer,
        }
    };
    assert!(refused > 0);
    assert_eq!(lost.status(), 410);
    assert_eq!(lost.json::<Value>().await.unwrap()["code"], "stream_expired");
    for server in 0..2 {
        let again = cluster.call(server, Method::POST, "/v1/assist", Some(&asked)).await;
        assert_eq!(
            again.json::<Value>().await.unwrap()["code"],
            "stream_expired",
            "it is not run again"
        );
    }
    // New ones begin elsewhere.
    let next = cluster.ask_privately(1, &request("/tokens 5")).await.bytes().await.unwrap();
    assert_whole(&packets(&next), &tokens(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn unsigned_marks_are_ignored_and_frozen_hosts_not_awaited() {
    let (cluster, _database) = start(BRIEF);
    let whole = cluster.ask_privately(0, &request("/echo Hello")).await;
    let (stream, _) = (stream_of(&whole), whole.bytes().await.unwrap());
    let forged = http()
        .get(format!("{}/v1/streams/{stream}", cluster.servers[1].url))
        .bearer_auth(KEY)
        .header("capstan-passed-on", "1700000000.00ff")
        .send()
        .await
        .unwrap();
    assert!(forged.text().await.unwrap().contains("Hello"), "it is passed on as any other");
    let mut hanging = cluster.ask_privately(1, &request("/hang")).await;
    cluster.servers[0].signal("STOP");
    // No connection breaks, and no byte arrives: only the lease shows it.
    let waiting =
        cluster.call(2, Method::POST, "/v1/assist", Some(&request("/echo anything"))).await;
    assert_eq!(waiting.status(), 503);
    drop(read_until(&mut hanging, |_| false).await);
    cluster.servers[0].signal("CONT");
}

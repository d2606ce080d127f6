//! Every gateway knows whether a run has readers: some runs end with their last reader, and a retry
//! may take a run without readers.

use std::collections::HashSet;

use reqwest::Response;
use serde_json::{Value, json};

use crate::cluster::postgres_server::Database;
use crate::cluster::{CONFIG, Cluster};
use crate::serve::client::{http, read_until, stream_of};

/// Gateways that stop an unread chat soon.
fn hasty() -> String {
    CONFIG.replace("[timeouts]\n", "[timeouts]\nunread_chat = 0.3\n")
}

impl Cluster {
    /// A chat without a key; `tries` is the SDK's count of earlier tries.
    async fn chat(&self, server: usize, text: &str, tries: u32) -> Response {
        let body = json!({ "model": "demo", "stream": true, "messages": [{ "role": "user",
        "content": text }] });
        let request = http().post(format!("{}/v1/chat/completions", self.servers[server].url));
        let response =
            request.header("x-stainless-retry-count", tries).json(&body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        response
    }

    /// A message of a client that names its session.
    async fn message(&self, server: usize, text: &str) -> Response {
        let body = json!({ "model": "demo", "max_tokens": 100, "stream": true,
        "messages": [{ "role": "user", "content": text }] });
        let request = http().post(format!("{}/v1/messages", self.servers[server].url));
        let request = request.header("x-claude-code-session-id", "s1").json(&body);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        response
    }

    async fn state(&self, server: usize, stream: &str) -> Value {
        let list: Value = self.servers[server].get("/v1/streams").await.json().await.unwrap();
        let found =
            list["streams"].as_array().unwrap().iter().find(|run| run["stream_id"] == stream);
        found.unwrap_or_else(|| panic!("{stream} is in {list}"))["state"].clone()
    }
}

/// Waits until the database knows this number of runs with readers.
async fn until_read(database: &Database, count: usize) {
    let read = "select count(distinct stream) from capstan.readers where left_at is null";
    while database.sql(read) != count.to_string() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn a_chat_is_stopped_when_its_last_reader_at_any_gateway_has_left() {
    let database = Database::create();
    let cluster = Cluster::over(database.url.clone(), &hasty(), None);
    let started = cluster.chat(0, "/hang", 0).await;
    let stream = stream_of(&started);
    let watching = cluster.watch(1, &stream).await;
    let own = "select count(*) from capstan.readers where left_at is null";
    while database.sql(own) != "2" {}
    drop(started);
    // Of two runs without readers, the one that was left later stops first.
    let other = cluster.chat(0, "/hang", 0).await;
    let other_stream = stream_of(&other);
    drop(other);
    while cluster.state(2, &other_stream).await != "closed" {}
    assert_eq!(cluster.state(2, &stream).await, "running", "somebody reads it elsewhere");
    drop(watching);
    while cluster.state(2, &stream).await != "closed" {}
    let told = cluster.replay(2, &stream).await;
    assert!(String::from_utf8_lossy(&told).contains("cancelled"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn a_repeat_at_any_gateway_gets_the_unread_run() {
    let database = Database::create();
    let cluster = Cluster::over(database.url.clone(), CONFIG, None);
    let first = cluster.chat(0, "/hang", 0).await;
    until_read(&database, 1).await;
    let second = cluster.chat(1, "/hang", 1).await;
    assert_ne!(stream_of(&first), stream_of(&second), "the first is read elsewhere");
    until_read(&database, 2).await;
    let left: HashSet<_> = [&first, &second].map(stream_of).into();
    drop((first, second));
    until_read(&database, 0).await;
    // Three at once: two runs are free, the third repeats none of them.
    let (a, b, c) = tokio::join!(
        cluster.chat(0, "/hang", 1),
        cluster.chat(1, "/hang", 1),
        cluster.chat(2, "/hang", 1)
    );
    let taken: HashSet<_> = [&a, &b, &c].map(stream_of).into();
    assert_eq!(taken.len(), 3, "each has a run for itself");
    assert_eq!(cluster.servers[2].streams().await.len(), taken.union(&left).count());
    assert_eq!(taken.intersection(&left).count(), 2, "what was free is not paid for again");
}

/// Another gateway knows from the run's record which answers were sent, and when.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn an_answer_that_another_gateway_has_sent_is_sent_again_only_soon_after() {
    let database = Database::create();
    let cluster = Cluster::over(database.url.clone(), CONFIG, None);
    let ask = async |server: usize, text: &str| cluster.message(server, text).await;
    let read = ask(0, "/echo hi").await;
    let read_stream = stream_of(&read);
    read.bytes().await.unwrap();
    let mut cut = ask(0, "/tokens 20 --delay 5ms").await;
    let cut_stream = stream_of(&cut);
    cut.chunk().await.unwrap();
    drop(cut);
    let sent = format!("select 1 from capstan.runs where stream = '{read_stream}' and sent_at > 0");
    while database.sql(&sent) != "1" {}
    while cluster.state(1, &cut_stream).await != "closed" {}
    let again = ask(1, "/echo hi").await;
    assert_eq!(stream_of(&again), read_stream, "it may have been lost on its way");
    again.bytes().await.unwrap();
    // As if that had been more than a minute ago.
    while database.sql("select count(*) from capstan.readers where left_at is null") != "0" {}
    let earlier = "update capstan.runs set sent_at = sent_at - 61000000 returning 1";
    database.sql(earlier);
    assert_ne!(stream_of(&ask(2, "/echo hi").await), read_stream, "its client has it");
    let lost = ask(2, "/tokens 20 --delay 5ms").await;
    assert_eq!(stream_of(&lost), cut_stream, "it was never sent to its end");
}

/// Rows of a dead gateway about its readers no longer count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: leases and waits in real time; needs PostgreSQL"]
async fn soak_a_chat_whose_readers_died_with_their_gateway_is_stopped_by_another() {
    let database = Database::create();
    let mut cluster = Cluster::over(database.url.clone(), &hasty(), None);
    // Read at a gateway that does not work on it.
    let started = cluster.chat(0, "/hang", 0).await;
    let stream = stream_of(&started);
    let watching = cluster.watch(1, &stream).await;
    while database.sql("select count(*) from capstan.readers where left_at is null") != "2" {}
    drop(started);
    cluster.servers.remove(1).kill();
    drop(watching);
    while cluster.state(0, &stream).await != "closed" {}
    // Read and owned by the gateway that dies, so the next owner stops it.
    let mut started = cluster.chat(0, "/hang", 0).await;
    let stream = stream_of(&started);
    drop(read_until(&mut started, |seen| !seen.is_empty()).await);
    cluster.servers.remove(0).kill();
    while cluster.state(0, &stream).await != "closed" {}
}

//! A stop reaches the end of the chain: two gateways over real sockets, the near one's agent being
//! the far one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use capstan_agent::{Agent, CancelReason, Outcome, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, Settings, Timeouts, serve};
use capstan_journal::{Journal, TailLimits};
use capstan_protocol::ServiceRequest;
use capstan_stores::{Durability, open};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// A limit for what must happen; nothing waits for it otherwise.
const LONG: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(200);

/// The far agent: hangs until it is released, and reports when it began and how it ended.
struct Hanging {
    began: mpsc::UnboundedSender<Uuid>,
    ended: mpsc::UnboundedSender<Option<CancelReason>>,
    release: Arc<Notify>,
}

#[async_trait]
impl Agent for Hanging {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let (cancel, ended) = (turn.cancel.clone(), self.ended.clone());
        turn.cancel.outlive(async move {
            let _ = ended.send(cancel.cancelled().await);
        });
        self.began.send(turn.run).unwrap();
        self.release.notified().await;
        Ok(out.delta("done").await?)
    }
}

/// The far gateway, and what its agent reports.
struct Far {
    url: String,
    began: mpsc::UnboundedReceiver<Uuid>,
    ended: mpsc::UnboundedReceiver<Option<CancelReason>>,
    release: Arc<Notify>,
}

impl Far {
    async fn start() -> Self {
        let ((began, has_begun), (ended, has_ended)) =
            (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let release = Arc::new(Notify::new());
        let url = gateway(Hanging { began, ended, release: Arc::clone(&release) }).await;
        Self { url, began: has_begun, ended: has_ended, release }
    }

    async fn began(&mut self) -> Uuid {
        tokio::time::timeout(LONG, self.began.recv()).await.expect("the far run begins").unwrap()
    }

    /// Its one run was stopped, and its journal says so.
    async fn is_stopped(&mut self) {
        let ended = tokio::time::timeout(LONG, self.ended.recv()).await.expect("the far run ends");
        assert_eq!(ended, Some(Some(CancelReason::Stopped)));
        let list: Value = client()
            .get(format!("{}/v1/streams", self.url))
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        assert_eq!(list["streams"].as_array().unwrap().len(), 1, "{list}");
        assert_eq!(list["streams"][0]["reason"], "cancelled", "{list}");
        assert!(self.began.try_recv().is_err(), "it was started once");
    }

    fn cap(&self, more: Value) -> Box<dyn Agent> {
        self.kind("cap", &self.url, more)
    }

    fn kind(&self, kind: &str, url: &str, more: Value) -> Box<dyn Agent> {
        let mut value = keys(more);
        value.insert("url".into(), url.into());
        agent(kind, Value::Object(value))
    }
}

/// The near gateway, which can be drained.
struct Near {
    url: String,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Near {
    async fn start(agent: Box<dyn Agent>, timeouts: Timeouts) -> Self {
        Self::on("memory:", agent, timeouts).await
    }

    async fn on(journal: &str, agent: Box<dyn Agent>, timeouts: Timeouts) -> Self {
        let journal =
            Journal::new(open(journal, Durability::default()).unwrap(), TailLimits::default());
        let gateway = Gateway::new(journal)
            .agent("a", agent)
            .settings(Settings { timeouts, ..Settings::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            serve(gateway, vec![listener], async { drop(stopped.await) }).await.unwrap();
        });
        Self { url, stop: Some(stop), task }
    }

    async fn post(&self, request: &ServiceRequest) -> (String, reqwest::Response) {
        let response = post(&self.url, request, "text/event-stream").await;
        (response.headers()["x-stream-id"].to_str().unwrap().to_owned(), response)
    }

    async fn stop_run(&self, stream: &str) -> Value {
        let url = format!("{}/v1/streams/{stream}", self.url);
        client().delete(url).send().await.unwrap().json().await.unwrap()
    }

    async fn drain(mut self) {
        drop(self.stop.take());
        tokio::time::timeout(LONG, self.task).await.expect("it drains").unwrap();
    }
}

fn at_once() -> Timeouts {
    Timeouts { drain: Duration::ZERO, ..Timeouts::default() }
}

fn disk(folder: &Path) -> String {
    format!("disk:{}", folder.display())
}

#[tokio::test]
async fn a_stop_ends_the_far_run_of_a_cap_agent() {
    let mut far = Far::start().await;
    let near = Near::start(far.cap(json!({})), Timeouts::default()).await;
    let (stream, _response) = near.post(&question("x")).await;
    far.began().await;
    assert_eq!(near.stop_run(&stream).await["reason"], "cancelled");
    far.is_stopped().await;
}

#[tokio::test]
async fn a_stop_ends_the_far_run_of_an_ag_ui_agent_that_names_its_stream() {
    let mut far = Far::start().await;
    let url = format!("{}/v1/ag-ui", far.url);
    let near = Near::start(far.kind("ag-ui", &url, json!({})), Timeouts::default()).await;
    let (stream, _response) = near.post(&question("x")).await;
    far.began().await;
    near.stop_run(&stream).await;
    far.is_stopped().await;
}

#[tokio::test]
async fn a_stop_cancels_the_task_of_an_a2a_agent() {
    for binding in ["jsonrpc", "http+json"] {
        let mut far = Far::start().await;
        let url = format!("{}/v1/a2a", far.url);
        let more = json!({ "protocol": "1.0", "binding": binding });
        let near = Near::start(far.kind("a2a", &url, more), Timeouts::default()).await;
        let (stream, _response) = near.post(&question("x")).await;
        far.began().await;
        near.stop_run(&stream).await;
        far.is_stopped().await;
    }
}

#[tokio::test]
async fn a_time_out_ends_the_far_run() {
    let mut far = Far::start().await;
    let timeouts = Timeouts { run: SOON, ..Timeouts::default() };
    let near = Near::start(far.cap(json!({ "attempts": 3 })), timeouts).await;
    let told = ask(&near.url, "x").await;
    assert_eq!(told.errors[0].code, "timeout");
    far.began().await;
    far.is_stopped().await;
}

#[tokio::test]
async fn the_last_attempt_ends_the_far_run_and_the_one_before_it_does_not() {
    let mut far = Far::start().await;
    let agent = far.cap(json!({ "attempts": 2, "timeouts": { "first_token": 0.2 } }));
    let near = Near::start(agent, Timeouts::default()).await;
    let told = ask(&near.url, "x").await;
    let codes: Vec<_> =
        told.errors.iter().map(|error| (error.code.as_str(), error.severity.to_string())).collect();
    assert_eq!(
        codes,
        [("upstream_timeout", "WARNING".into()), ("upstream_timeout", "FATAL".into())]
    );
    far.began().await;
    far.is_stopped().await;
}

#[tokio::test]
async fn a_complete_run_ends_nothing() {
    let mut far = Far::start().await;
    let near = Near::start(far.cap(json!({})), at_once()).await;
    let (_, response) = near.post(&question("x")).await;
    far.began().await;
    far.release.notify_one();
    assert_eq!(read(&response.bytes().await.unwrap()).text, "done");
    near.drain().await;
    assert_eq!(far.ended.recv().await, Some(None), "it came to its own end");
}

#[tokio::test]
async fn a_drain_leaves_the_far_run_and_the_next_attempt_attaches_to_it() {
    let (folder, request) = (tempfile::tempdir().unwrap(), question("x"));
    let mut far = Far::start().await;
    let agent = || far.cap(json!({ "attempts": 2 }));
    let near = Near::on(&disk(folder.path()), agent(), at_once()).await;
    let (_, response) = near.post(&request).await;
    let next = agent();
    far.began().await;
    near.drain().await;
    assert_eq!(read(&response.bytes().await.unwrap()).errors[0].code, "run_interrupted");
    assert!(far.ended.try_recv().is_err(), "the far run goes on");

    let near = Near::on(&disk(folder.path()), next, at_once()).await;
    let (_, response) = near.post(&request).await;
    far.release.notify_one();
    assert_eq!(read(&response.bytes().await.unwrap()).text, "done");
    assert!(far.began.try_recv().is_err(), "it was started once");
}

/// A near run that waits while its far run goes on: its server was drained, and there is another
/// life of it.
async fn waiting(far: &mut Far, folder: &Path, timeouts: Timeouts) -> (Near, String) {
    let near = Near::on(&disk(folder), far.cap(json!({ "attempts": 2 })), at_once()).await;
    let (stream, _response) = near.post(&question("x")).await;
    far.began().await;
    near.drain().await;
    assert!(far.ended.try_recv().is_err(), "the far run goes on");
    (Near::on(&disk(folder), far.cap(json!({ "attempts": 2 })), timeouts).await, stream)
}

#[tokio::test]
async fn stopping_a_run_that_waits_ends_its_far_run() {
    let (folder, mut far) = (tempfile::tempdir().unwrap(), Far::start().await);
    let (near, stream) = waiting(&mut far, folder.path(), Timeouts::default()).await;
    assert_eq!(near.stop_run(&stream).await["reason"], "cancelled");
    far.is_stopped().await;
}

#[tokio::test]
async fn a_run_that_waits_for_too_long_takes_its_far_run_along() {
    let (folder, mut far) = (tempfile::tempdir().unwrap(), Far::start().await);
    let timeouts = Timeouts { waiting: SOON, ..at_once() };
    let (_near, _) = waiting(&mut far, folder.path(), timeouts).await;
    far.is_stopped().await;
}

#[tokio::test]
async fn a_drain_waits_for_remote_runs_that_it_ends() {
    let mut far = Far::start().await;
    // One attempt: at the drain limit the run fails for good.
    let near = Near::start(far.cap(json!({})), at_once()).await;
    let (_, response) = near.post(&question("x")).await;
    far.began().await;
    near.drain().await;
    assert_eq!(read(&response.bytes().await.unwrap()).errors[0].code, "run_interrupted");
    assert_eq!(far.ended.try_recv(), Ok(Some(CancelReason::Stopped)), "before the server was gone");
}

#[tokio::test]
async fn a_stop_before_the_far_answer_ends_the_far_run() {
    for kind in ["cap", "ag-ui"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let near = Near::start(agent(kind, json!({ "url": url })), Timeouts::default()).await;
        let (stream, _response) = near.post(&question("x")).await;
        let (mut call, _) = listener.accept().await.unwrap();
        assert!(request(&mut call).await.unwrap().0.starts_with("post"), "{kind}");
        near.stop_run(&stream).await;
        // The near run is over; only now the far one is named.
        let id = Uuid::now_v7();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-stream-id: {id}\r\n\r\n"
        );
        call.write_all(head.as_bytes()).await.unwrap();
        let next = tokio::time::timeout(LONG, async {
            let (mut call, _) = listener.accept().await.unwrap();
            request(&mut call).await.unwrap().0
        });
        let head = next.await.expect("the far run is ended");
        assert!(head.starts_with(&format!("delete /v1/streams/{id} ")), "{kind}: {head}");
    }
}

#[tokio::test]
async fn a_drain_ends_a_process_that_does_not_listen() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    // The whole group ignores the polite signal.
    let script =
        "trap '' TERM; echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; while :; do sleep 1; done";
    let agent = agent("command", json!({ "command": ["sh", "-c", script, pid] }));
    let near = Near::start(agent, at_once()).await;
    let (_, _response) = near.post(&question("x")).await;
    let pid = loop {
        if let Ok(pid) = std::fs::read_to_string(&pid) {
            break pid.trim().to_owned();
        }
        tokio::task::yield_now().await;
    };
    near.drain().await;
    assert!(!Path::new("/proc").join(&pid).exists(), "process {pid} outlives its server");
}

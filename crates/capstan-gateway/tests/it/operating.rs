//! What an operator learns of failures: which agent, how often, and that no run is left without
//! somebody at work on it.

use std::io;
use std::sync::{Arc, Mutex};

use crate::common::{Server, all, ask, client, errors, journal, serve_gateway};
use capstan_agent::{About, Agent, Outcome, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, Settings};
use capstan_journal::{Claim, Quota};
use capstan_protocol::fault::{Cause, Upstream};
use capstan_protocol::{Exposure, Fault, FaultKind, Timestamp};
use serde_json::Value;
use uuid::Uuid;

/// Lines of JSON, for as long as the guard lives and on this thread alone.
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

impl Log {
    fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt().json().flatten_event(true).with_span_list(false);
        let guard =
            tracing::subscriber::set_default(lines.with_writer(move || writer.clone()).finish());
        (log, guard)
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    fn lines(&self, message: &str) -> Vec<Value> {
        let text = self.text();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["message"] == message).collect()
    }
}

async fn metrics(server: &Server) -> String {
    server.get("/metrics").await.text().await.unwrap()
}

async fn post_to(server: &Server, agent: &str, text: &str) -> reqwest::Response {
    client()
        .post(format!("{}/v1/agents/{agent}/assist", server.url))
        .json(&ask(text))
        .send()
        .await
        .unwrap()
}

/// An agent whose upstream says no, and says a lot.
struct Refused;

#[async_trait]
impl Agent for Refused {
    async fn run(&self, _: Turn, _: &mut Writer) -> Outcome {
        let chain = vec!["outer words".into(), "inner words".into()];
        let upstream = Upstream {
            host: Some("api.example:444".into()),
            status: Some(401),
            request_id: Some("req-7".into()),
            stderr: Some("last words".into()),
        };
        let fault = Fault::new(FaultKind::UpstreamAuth);
        Err(fault
            .with_cause(Cause { error_type: "Inside".into(), chain })
            .with_upstream(upstream)
            .into())
    }
}

#[tokio::test]
async fn the_log_has_the_cause_of_a_failed_attempt_and_callers_have_not() {
    for exposure in [Exposure::Production, Exposure::Debug] {
        let (log, _guard) = Log::start();
        let settings = Settings { exposure, ..Settings::default() };
        let server =
            serve_gateway(Gateway::new(journal()).agent("gpt", Refused).settings(settings)).await;
        let response = post_to(&server, "gpt", "Hi").await.text().await.unwrap();
        let told = server.get("/v1/streams").await.text().await.unwrap();
        server.stop().await;
        let failed = log.lines("attempt failed");
        let line = failed.first().unwrap_or_else(|| panic!("{}", log.text()));
        assert_eq!(
            (&line["level"], &line["agent"], &line["host"]),
            (&"WARN".into(), &"gpt".into(), &"api.example:444".into())
        );
        assert_eq!((&line["status"], &line["upstream_request_id"]), (&401.into(), &"req-7".into()));
        assert_eq!(line["stderr"], "last words");
        let cause = line["cause"].as_str().unwrap();
        assert!(cause.ends_with("outer words: inner words"), "{cause}");
        assert_eq!(cause.starts_with("Inside"), exposure == Exposure::Debug, "{cause}");
        for word in ["api.example", "req-7", "last words"] {
            assert!(!response.contains(word) && !told.contains(word), "{word} in {response}{told}");
        }
    }
}

/// An agent whose protocol has no word for a tool.
struct LeavesOut;

#[async_trait]
impl Agent for LeavesOut {
    async fn run(&self, _: Turn, out: &mut Writer) -> Outcome {
        let names = serde_json::json!(["tools[3] (web_search)"]);
        out.warning(&Fault::new(FaultKind::NotTranslated).with_detail("left_out", names)).await?;
        Ok(out.delta("Hello.").await?)
    }
}

#[tokio::test]
async fn a_tool_that_is_left_out_is_in_the_log() {
    let (log, _guard) = Log::start();
    let server = serve_gateway(Gateway::new(journal()).agent("a", LeavesOut)).await;
    all(post_to(&server, "a", "Hi").await).await;
    let lines = log.lines("the agent's protocol has no word for these: left out");
    let [line] = &lines[..] else { panic!("{}", log.text()) };
    assert_eq!(
        (&line["level"], &line["left_out"]),
        (&"WARN".into(), &r#"["tools[3] (web_search)"]"#.into())
    );
    assert!(line["stream"].is_string(), "{line}");
}

#[tokio::test]
async fn metrics_name_the_agent_of_a_run_and_of_a_fault() {
    let gateway =
        Gateway::new(journal()).agent("demo", crate::common::demo()).agent("gpt", Refused);
    let server = serve_gateway(gateway).await;
    all(post_to(&server, "demo", "/tokens 1").await).await;
    all(post_to(&server, "gpt", "Hi").await).await;
    assert_eq!(post_to(&server, "nobody", "Hi").await.status(), 404);
    let metrics = metrics(&server).await;
    for line in [
        "capstan_runs_total{outcome=\"completed\",agent=\"demo\"} 1\n",
        "capstan_runs_total{outcome=\"error\",agent=\"gpt\"} 1\n",
        "capstan_faults_total{code=\"upstream_auth\",agent=\"gpt\"} 1\n",
        "capstan_faults_total{code=\"agent_not_found\",agent=\"\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    server.stop().await;
}

/// A run as a process leaves it that was killed at work.
fn left_open(agent: &str, max_attempts: u32) -> Claim {
    let key = Uuid::now_v7().to_string();
    let body = serde_json::to_vec(&ask("/hang")).unwrap().into();
    let claim = Claim::new("local", key, Uuid::now_v7(), Timestamp::now());
    Claim { agent: agent.into(), face: "cap".into(), max_attempts, body, ..claim }
}

#[tokio::test]
async fn recovered_runs_are_logged_and_counted() {
    let (log, _guard) = Log::start();
    let journal = journal();
    for (agent, attempts) in [("demo", 3), ("demo", 1), ("long gone", 1)] {
        journal.claim(left_open(agent, attempts), &Quota::UNLIMITED).await.unwrap();
    }
    let server = serve_gateway(Gateway::new(journal).agent("demo", crate::common::demo())).await;
    let metrics = metrics(&server).await;
    for line in [
        "capstan_faults_total{code=\"run_interrupted\",agent=\"demo\"} 2\n",
        "capstan_faults_total{code=\"run_interrupted\",agent=\"other\"} 1\n",
        "capstan_runs_total{outcome=\"error\",agent=\"demo\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    server.stop().await;
    assert_eq!(log.lines("attempt failed").len(), 3, "{}", log.text());
    let summary = log.lines("recovered the runs that the previous process left open");
    assert_eq!(
        (&summary[0]["interrupted"], &summary[0]["lost"]),
        (&3.into(), &0.into()),
        "{summary:?}"
    );
}

/// The line comes with the count: one function does both.
#[tokio::test]
async fn a_run_that_a_drain_interrupted_is_a_failed_attempt_of_its_agent() {
    let (log, _guard) = Log::start();
    let mut settings = Settings::default();
    settings.timeouts.drain = std::time::Duration::ZERO;
    let server = crate::common::start(settings).await;
    let response = server.post(&ask("/hang")).await;
    server.stop().await;
    assert_eq!(errors(&all(response).await).pop().unwrap().code, "run_interrupted");
    let failed = log.lines("attempt failed");
    let told: Vec<_> = failed.iter().map(|line| (&line["agent"], &line["code"])).collect();
    assert_eq!(told, [(&"demo".into(), &"run_interrupted".into())], "{}", log.text());
}

#[tokio::test]
async fn recovery_without_open_runs_logs_nothing() {
    let (log, _guard) = Log::start();
    let server = crate::common::start(Settings::default()).await;
    assert_eq!(metrics(&server).await.matches("capstan_faults_total{").count(), 0);
    server.stop().await;
    assert!(!log.text().contains("recovered"), "{}", log.text());
}

/// An agent that breaks the relay itself, before the first attempt.
struct Broken;

#[async_trait]
impl Agent for Broken {
    async fn run(&self, _: Turn, _: &mut Writer) -> Outcome {
        Ok(())
    }

    fn about(&self) -> About {
        panic!("about")
    }
}

#[tokio::test]
async fn a_run_whose_relay_panicked_ends_and_is_logged() {
    let (log, _guard) = Log::start();
    let server = serve_gateway(Gateway::new(journal()).agent("a", Broken)).await;
    let packets = all(post_to(&server, "a", "Hi").await).await;
    assert_eq!(errors(&packets).pop().unwrap().code, "agent_execution_error");
    assert_eq!(crate::common::close_reason(&packets).as_deref(), Some("error"));
    let metrics = metrics(&server).await;
    assert!(metrics.contains("capstan_active_runs 0\n"), "{metrics}");
    server.stop().await;
    assert_eq!(log.lines("the relay panicked; its run is ended").len(), 1, "{}", log.text());
}

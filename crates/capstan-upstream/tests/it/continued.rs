//! After a cut the record of a run says how each attempt continued the answer.

use capstan_agent::Clock;
use capstan_fake_provider::{Answer, FakeProvider, Script};
use serde_json::{Value, json};

use crate::common::*;
use crate::routes;

/// What the console reports of the attempts of a gateway's only run.
pub(crate) async fn attempts(gateway: &str) -> Vec<Value> {
    let get = async |path: &str| -> Value {
        let url = format!("{gateway}/v1/console/runs{path}");
        client().get(url).send().await.unwrap().json().await.unwrap()
    };
    let runs = get("").await["runs"].take();
    assert_eq!(runs.as_array().unwrap().len(), 1, "{runs}");
    let details = get(&format!("/{}", runs[0]["stream_id"].as_str().unwrap())).await;
    details["attempts"].as_array().unwrap().clone()
}

/// How each attempt of the gateway's only run continued the answer.
pub(crate) async fn ways(gateway: &str) -> Vec<Value> {
    attempts(gateway).await.iter().map(|attempt| attempt["continued_by"].clone()).collect()
}

async fn broken(rule: &str) -> FakeProvider {
    let script = Script::default().fault(rule.parse().unwrap());
    FakeProvider::start("127.0.0.1:0", script).await.unwrap()
}

/// A gateway whose provider breaks off after 40 words, and answers the next call like this.
async fn cut_then(second: Vec<Do>) -> String {
    let cut = [vec![stream_head()], tokens(1, 40)].concat();
    let provider = Provider::start(move |nth| [&cut, &second][nth.min(1)].clone()).await;
    let config = json!({ "url": format!("{}/v1", provider.url), "model": "m" });
    provider.gateway("openai", config).await
}

#[tokio::test]
async fn a_model_that_goes_on_behind_its_own_words_continues_by_prefill() {
    let provider = broken("truncated@1").await;
    let claude = json!({ "url": provider.url(), "model": "claude-sonnet-4-5" });
    let agents = [("route", "route", json!({ "use": ["a"] })), ("a", "anthropic", claude)];
    let gateway = routes::gateway(&Clock::by_hand(), &agents).await;
    assert_eq!(ask(&gateway, "Hi").await.text, Answer::default().text);
    assert_eq!(ways(&gateway).await, [Value::Null, json!("prefill")]);
    assert_eq!(attempts(&gateway).await[1]["swallowed_bytes"], 0, "the model repeated nothing");
}

#[tokio::test]
async fn an_equal_second_answer_continues_by_comparison() {
    let gateway = cut_then(answer()).await;
    assert_eq!(ask(&gateway, "Hi").await.text, words(60));
    assert_eq!(ways(&gateway).await, [Value::Null, json!("comparison")]);
    assert_eq!(attempts(&gateway).await[1]["swallowed_bytes"], words(40).len());
}

#[tokio::test]
async fn a_different_second_answer_continues_by_a_reset() {
    let different = [vec![stream_head()], tokens(1, 20), vec![token("else")], finish("stop")];
    let gateway = cut_then(different.concat()).await;
    assert_eq!(ask(&gateway, "Hi").await.text, words(20) + "else");
    assert_eq!(ways(&gateway).await, [Value::Null, json!("reset")]);
}

#[tokio::test]
async fn an_attempt_after_nothing_was_sent_continues_nothing() {
    let provider =
        Provider::start(|nth| if nth < 2 { status(500, &[], "") } else { answer() }).await;
    let config = json!({ "url": format!("{}/v1", provider.url), "model": "m" });
    let gateway = provider.gateway("openai", config).await;
    assert_eq!(ask(&gateway, "Hi").await.text, words(60));
    assert_eq!(ways(&gateway).await, [Value::Null, Value::Null]);
}

#[tokio::test]
async fn a_stored_answer_that_its_provider_sends_on_is_resumed_upstream() {
    let provider = broken("close-mid-stream:mid-text@1").await;
    let url = format!("{}/v1", provider.url());
    let config = json!({ "url": url, "model": "m", "api": "responses" });
    let gateway = gateway_by(
        Clock::by_hand(),
        agent_by(Clock::by_hand(), "openai", config),
        capstan_protocol::Exposure::Production,
    )
    .await;
    assert_eq!(ask(&gateway, "Hi").await.text, Answer::default().text);
    assert_eq!(ways(&gateway).await, [json!("upstream_resume")]);
}

//! Provider faults: the caller gets the whole answer or the right typed error, and the provider is
//! not hammered.

use std::time::Duration;

use crate::common::*;
use capstan_agent::Timer;
use capstan_protocol::{ErrorSeverity, Exposure};
use capstan_upstream::CallTimeouts;
use serde_json::{Value, json};

/// The least wait before any second call.
const LEAST_WAIT: Duration = Duration::from_millis(250);

fn config(provider: &Provider) -> Value {
    json!({ "url": format!("{}/v1", provider.url), "model": "m" })
}

/// No time-out strikes unless the provider says so.
async fn told_by(provider: &Provider) -> RunSeen {
    ask(&provider.gateway("openai", config(provider)).await, "Hi").await
}

/// As many waits as there were further calls, and none of them short.
fn assert_waits(provider: &Provider) {
    let waits = provider.clock.asked(Timer::Again);
    assert_eq!(waits.len(), provider.calls() - 1);
    assert!(waits.iter().all(|wait| *wait >= LEAST_WAIT), "{waits:?}");
}

/// The whole answer came, after so many calls, none of them right after another.
async fn heals(calls: usize, provider: &Provider) -> RunSeen {
    let told = told_by(provider).await;
    assert_eq!(told.text, words(60), "{:?}", told.errors);
    let close = told.close.clone().unwrap();
    assert_eq!(close["reason"], "completed");
    assert_eq!(close["usage"]["output_tokens"], 60);
    assert_eq!(close["model"], "m-1");
    assert_eq!(provider.calls(), calls);
    assert_waits(provider);
    told
}

/// The run failed with a code, after so many calls.
async fn fails(code: &str, calls: usize, provider: &Provider) -> RunSeen {
    let told = told_by(provider).await;
    let last = told.errors.last().unwrap();
    assert_eq!((last.code.as_str(), last.severity), (code, ErrorSeverity::Fatal));
    assert_eq!(told.close.as_ref().unwrap()["reason"], "error");
    assert_eq!(provider.calls(), calls);
    assert_waits(provider);
    told
}

/// The first call does this, every other one answers.
async fn once(first: Vec<Do>) -> Provider {
    Provider::start(move |nth| if nth == 0 { first.clone() } else { answer() }).await
}

async fn always(acts: Vec<Do>) -> Provider {
    Provider::start(move |_| acts.clone()).await
}

const RATE_LIMIT: &str =
    r#"{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}"#;

#[tokio::test]
async fn a_429_with_a_short_retry_after_is_waited_out() {
    let provider = once(status(429, &[("retry-after", "1")], RATE_LIMIT)).await;
    let told = heals(2, &provider).await;
    assert_eq!(provider.clock.asked(Timer::Again), [Duration::from_secs(1)]);
    assert!(told.errors.is_empty(), "it was healed within the attempt");
    assert_eq!(told.close.unwrap()["attempts"], 1);
}

#[tokio::test]
async fn a_429_with_retry_after_ms_is_waited_out_to_the_millisecond() {
    let provider =
        once(status(429, &[("retry-after-ms", "700"), ("retry-after", "60")], RATE_LIMIT)).await;
    heals(2, &provider).await;
    assert_eq!(provider.clock.asked(Timer::Again), [Duration::from_millis(700)]);
}

#[tokio::test]
async fn a_429_without_retry_after_is_tried_again_with_backoff() {
    heals(2, &once(status(429, &[], RATE_LIMIT)).await).await;
}

#[tokio::test]
async fn a_429_with_a_long_retry_after_leaves_the_run_waiting() {
    let provider = always(status(429, &[("retry-after", "30")], RATE_LIMIT)).await;
    let told = told_by(&provider).await;
    let error = told.errors.last().unwrap();
    assert_eq!((error.code.as_str(), error.severity), ("upstream_error", ErrorSeverity::Transient));
    assert_eq!(error.details.as_ref().unwrap()["retry_after"], 30);
    assert_eq!((provider.calls(), told.close), (1, None));
}

#[tokio::test]
async fn a_500_once_is_healed() {
    heals(2, &once(status(500, &[], "oops")).await).await;
}

#[tokio::test]
async fn a_503_for_good_fails_after_four_calls() {
    let provider = always(status(503, &[], "down")).await;
    let told = fails("upstream_error", 4, &provider).await;
    assert_eq!(told.errors.last().unwrap().details.as_ref().unwrap()["upstream_status"], 503);
    assert_eq!(told.errors.len(), 3, "two attempts were warnings: {:?}", told.errors);
}

#[tokio::test]
async fn a_reset_before_the_headers_is_healed() {
    heals(2, &once(vec![Do::Reset]).await).await;
}

#[tokio::test]
async fn no_answer_at_all_is_a_timeout_after_two_calls() {
    let provider = always(vec![Do::Strike(Timer::FirstToken), Do::Hang]).await;
    let told = fails("upstream_timeout", 2, &provider).await;
    assert_eq!(told.errors.last().unwrap().details.as_ref().unwrap()["timeout"], "first_token");
    assert_eq!(provider.clock.asked(Timer::FirstToken), [CallTimeouts::PROVIDER.first_token; 2]);
}

/// OpenAI sends nothing while a model thinks. A second call would be paid for, too.
#[tokio::test]
async fn a_model_that_may_think_has_longer_until_its_first_token() {
    let CallTimeouts { first_token, thinking, .. } = CallTimeouts::PROVIDER;
    assert!(first_token < thinking);
    for (more, limit) in [
        (json!({}), first_token),
        (json!({ "parameters": { "reasoning_effort": "high" } }), thinking),
        (json!({ "model": "gpt-5" }), thinking),
        (json!({ "model": "gpt-5", "timeouts": { "thinking": 7 } }), first_token),
    ] {
        let provider = always(vec![Do::Strike(Timer::FirstToken), Do::Hang]).await;
        let mut config = config(&provider);
        config.as_object_mut().unwrap().extend(keys(more));
        ask(&provider.gateway("openai", config).await, "Hi").await;
        assert_eq!(provider.clock.asked(Timer::FirstToken), [limit; 2]);
    }
}

#[tokio::test]
async fn a_late_first_token_causes_another_call() {
    let late = vec![stream_head(), Do::Strike(Timer::FirstToken), Do::Hang];
    heals(2, &once(late).await).await;
}

#[tokio::test]
async fn a_cut_after_40_of_60_tokens_is_continued_without_a_repeat() {
    let cut = [vec![stream_head()], tokens(1, 40)].concat();
    let told = heals(2, &once(cut).await).await;
    assert_eq!(told.errors[0].code, "upstream_truncated");
    assert_eq!(told.errors[0].severity, ErrorSeverity::Warning);
    assert_eq!(told.close.unwrap()["attempts"], 2);
    assert_eq!(told.raw.matches("tok17 ").count(), 1, "the equal part is swallowed");
}

#[tokio::test]
async fn a_reset_in_mid_stream_is_continued() {
    let cut = [vec![stream_head()], tokens(1, 40), vec![Do::Reset]];
    heals(2, &once(cut.concat()).await).await;
}

#[tokio::test]
async fn a_cut_each_time_fails_after_three_calls() {
    let provider = always([vec![stream_head()], tokens(1, 40)].concat()).await;
    let told = fails("upstream_truncated", 3, &provider).await;
    assert_eq!(told.text, words(40));
}

#[tokio::test]
async fn a_stall_is_continued() {
    let stall =
        [vec![stream_head()], tokens(1, 40), vec![Do::Strike(Timer::Idle), Do::Hang]].concat();
    let provider = once(stall).await;
    let told = heals(2, &provider).await;
    assert_eq!(told.errors[0].code, "upstream_timeout");
    assert_eq!(told.errors[0].details.as_ref().unwrap()["timeout"], "idle");
    assert!(provider.clock.asked(Timer::Idle)[0] <= CallTimeouts::PROVIDER.idle);
}

#[tokio::test]
async fn a_malformed_chunk_is_continued() {
    let broken =
        [vec![stream_head()], tokens(1, 40), vec![Do::Write("data: {\"choices\": [\n\n".into())]];
    let told = heals(2, &once(broken.concat()).await).await;
    assert_eq!(told.errors[0].code, "upstream_malformed");
}

#[tokio::test]
async fn a_missing_sentinel_is_no_fault() {
    let mut bare = answer();
    bare.pop();
    heals(1, &always(bare).await).await;
}

#[tokio::test]
async fn a_complete_answer_is_closed_at_once_even_if_its_connection_stays_open() {
    let mut bare = answer();
    bare.pop();
    bare.push(Do::Hang);
    let provider = always(bare).await;
    let told = told_by(&provider).await;
    assert_eq!((told.text, provider.calls()), (words(60), 1));
}

#[tokio::test]
async fn a_complete_answer_without_usage_is_closed_soon() {
    let end = vec![finish("stop").remove(0), Do::Strike(Timer::Grace), Do::Hang];
    let provider = always([vec![stream_head()], tokens(1, 60), end].concat()).await;
    let told = told_by(&provider).await;
    assert_eq!((told.text, provider.calls()), (words(60), 1));
    let graces = provider.clock.asked(Timer::Grace);
    // Some servers send the usage a second after the finish.
    let usual = Duration::from_secs(1)..=Duration::from_secs(2);
    assert!(graces.iter().all(|grace| usual.contains(grace)), "{graces:?}");
}

#[tokio::test]
async fn a_context_that_is_too_long_fails_at_once() {
    let body = r#"{"error":{"message":"This model's maximum context length is 128000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#;
    fails("context_length_exceeded", 1, &always(status(400, &[], body)).await).await;
}

#[tokio::test]
async fn a_content_filter_fails_at_once_and_keeps_the_text() {
    let filtered = [vec![stream_head()], tokens(1, 3), finish("content_filter")].concat();
    let told = fails("content_refused", 1, &always(filtered).await).await;
    assert_eq!(told.text, words(3));
}

#[tokio::test]
async fn an_error_in_the_stream_before_the_first_token_is_healed() {
    let error =
        json!({ "error": { "message": "The server had an error", "type": "server_error" } });
    heals(2, &once(vec![stream_head(), chunk(&error)]).await).await;
}

#[tokio::test]
async fn any_mixture_of_faults_takes_at_most_four_calls() {
    let provider = Provider::start(|nth| match nth % 3 {
        0 => status(500, &[], ""),
        1 => [vec![stream_head()], tokens(1, 5)].concat(),
        _ => vec![Do::Reset],
    })
    .await;
    let told = told_by(&provider).await;
    assert_eq!(told.errors.last().unwrap().severity, ErrorSeverity::Fatal);
    assert_eq!(provider.calls(), 4);
}

#[tokio::test]
async fn a_cut_fails_the_run_if_the_configuration_says_so() {
    let provider = once([vec![stream_head()], tokens(1, 40)].concat()).await;
    let mut config = config(&provider);
    config["on_cut"] = json!("fail");
    let told = ask(&provider.gateway("openai", config).await, "Hi").await;
    assert_eq!(told.errors.last().unwrap().code, "upstream_truncated");
    assert_eq!((told.text, provider.calls()), (words(40), 1));
}

#[tokio::test]
async fn a_redirect_to_another_server_is_not_followed() {
    let elsewhere = always(answer()).await;
    let target = format!("{}/v1/chat/completions", elsewhere.url);
    let provider = always(status(307, &[("location", &target)], "")).await;
    let told = fails("upstream_error", 1, &provider).await;
    assert_eq!(told.errors[0].details.as_ref().unwrap()["upstream_status"], 307);
    assert_eq!(elsewhere.calls(), 0, "the key stays here");
}

#[tokio::test]
async fn a_redirect_within_the_server_is_followed() {
    let provider = once(status(307, &[("location", "/v2/chat/completions")], "")).await;
    let told = told_by(&provider).await;
    assert_eq!(told.text, words(60));
    assert!(provider.seen()[1].head.starts_with("post /v2/chat/completions"));
}

#[tokio::test]
async fn a_key_is_sent_and_never_shown() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "sk-very-secret\n").unwrap();
    let body = r#"{"error":{"message":"Incorrect API key provided: sk-very-secret","code":"invalid_api_key"}}"#;
    for kind in ["openai", "anthropic"] {
        let provider = always(status(401, &[], body)).await;
        let mut config = config(&provider);
        config["key_file"] = json!(file.path());
        let gateway =
            gateway_by(provider.clock.clone(), provider.agent(kind, config), Exposure::Debug).await;
        let told = ask(&gateway, "Hi").await;
        assert_eq!(told.errors.last().unwrap().code, "upstream_auth");
        assert!(told.raw.contains("[key]") && !told.raw.contains("very-secret"), "{}", told.raw);
        assert!(provider.seen()[0].head.contains("sk-very-secret"), "{kind}: it was sent");
    }
}

#[tokio::test]
async fn the_total_time_of_a_call_is_limited() {
    let slow =
        [vec![stream_head()], tokens(1, 20), vec![Do::Strike(Timer::Total), Do::Hang]].concat();
    let provider = always(slow).await;
    let mut config = config(&provider);
    // Below the other limits, so that it is the one to strike.
    config["timeouts"] = json!({ "total": 9 });
    let told = ask(&provider.gateway("openai", config).await, "Hi").await;
    let error = told.errors.last().unwrap();
    assert_eq!((error.code.as_str(), error.severity), ("upstream_timeout", ErrorSeverity::Fatal));
    assert_eq!(error.details.as_ref().unwrap()["timeout"], "total");
    assert!(provider.clock.asked(Timer::Total)[0] <= Duration::from_secs(9));
    assert_eq!(provider.calls(), 1, "another attempt would take as long");
}

#[tokio::test]
async fn json_mode_answers_with_the_whole_run_or_its_problem() {
    let provider = once(status(500, &[], "")).await;
    let (status_code, answer) =
        ask_json(&provider.gateway("openai", config(&provider)).await, "Hi").await;
    assert_eq!((status_code, &answer["output"]["text"]), (200, &json!(words(60))));
    assert_eq!(answer["metrics"]["usage"]["output_tokens"], 60);
    let down = always(status(401, &[], "{}")).await;
    let (status_code, problem) = ask_json(&down.gateway("openai", config(&down)).await, "Hi").await;
    assert_eq!((status_code, &problem["code"]), (502, &json!("upstream_auth")));
}

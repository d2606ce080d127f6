//! Providers as they really behave: each of these was a lost, doubled or truncated answer once.

use std::time::Duration;

use crate::common::*;
use capstan_agent::{Clock, Output, Timer, Turn, channel};
use capstan_fake_provider::{Answer, FakeProvider, Script, ToolCall};
use capstan_protocol::{ErrorSeverity, Exposure};
use capstan_upstream::CallTimeouts;
use serde_json::{Value, json};

fn config(provider: &Provider) -> Value {
    json!({ "url": format!("{}/v1", provider.url), "model": "m" })
}

async fn told_by(provider: &Provider) -> RunSeen {
    ask(&provider.gateway("openai", config(provider)).await, "Hi").await
}

async fn always(acts: Vec<Do>) -> Provider {
    Provider::start(move |_| acts.clone()).await
}

/// The first call does one thing, every other one another.
async fn then(first: Vec<Do>, next: Vec<Do>) -> Provider {
    Provider::start(move |nth| if nth == 0 { first.clone() } else { next.clone() }).await
}

fn done() -> Do {
    Do::Write("data: [DONE]\n\n".into())
}

fn delta(delta: Value) -> Do {
    chunk(&json!({ "model": "m-1", "choices": [{ "index": 0, "delta": delta,
        "finish_reason": null }] }))
}

fn call(id: &str, arguments: &str) -> Do {
    let function = json!({ "name": "pay", "arguments": arguments });
    delta(json!({ "tool_calls": [{ "index": 0, "id": id, "type": "function",
        "function": function }] }))
}

/// An answer of Messages: text, a call of `pay`, and text after it; cut off there, or whole.
fn paying(id: &str, amount: u32, after: &str, is_whole: bool) -> Vec<Do> {
    let event = |value: Value| {
        Do::Write(format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap()))
    };
    let mut acts = vec![
        stream_head(),
        event(json!({ "type": "message_start", "message": { "model": "m-1",
            "usage": { "input_tokens": 10, "output_tokens": 1 } } })),
        event(
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text",
            "text": "" } }),
        ),
        event(json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta",
            "text": "One moment. " } })),
        event(json!({ "type": "content_block_stop", "index": 0 })),
        event(json!({ "type": "content_block_start", "index": 1,
            "content_block": { "type": "tool_use", "id": id, "name": "pay", "input": {} } })),
        event(json!({ "type": "content_block_delta", "index": 1,
            "delta": { "type": "input_json_delta",
            "partial_json": format!("{{\"amount\":{amount}") } })),
        event(json!({ "type": "content_block_delta", "index": 1,
            "delta": { "type": "input_json_delta", "partial_json": "}" } })),
        event(json!({ "type": "content_block_stop", "index": 1 })),
    ];
    if !after.is_empty() {
        acts.push(event(json!({ "type": "content_block_start", "index": 2,
        "content_block": { "type": "text", "text": after } })));
    }
    if is_whole {
        acts.push(event(json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" },
        "usage": { "output_tokens": 15 } })));
        acts.push(event(json!({ "type": "message_stop" })));
    }
    acts
}

async fn messages(provider: &Provider) -> String {
    let config = json!({ "url": provider.url, "model": "m" });
    provider.gateway("anthropic", config).await
}

/// Arguments as their pieces make them, call by call.
fn joined<'a>(pieces: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let mut calls: Vec<(&Value, String)> = Vec::new();
    for piece in pieces {
        let (id, delta) = (&piece["toolCallId"], piece["delta"].as_str().unwrap());
        match calls.iter_mut().find(|(known, _)| *known == id) {
            Some((_, arguments)) => arguments.push_str(delta),
            None => calls.push((id, delta.to_owned())),
        }
    }
    calls.into_iter().map(|(_, arguments)| arguments).collect()
}

fn arguments(told: &RunSeen) -> Vec<String> {
    joined(of_type(told, "TOOL_CALL_ARGS"))
}

fn of_type<'a>(told: &'a RunSeen, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    told.events.iter().filter(move |(known, _)| known == kind).map(|(_, data)| data)
}

/// Types of events; pieces of arguments in a row count as one.
fn types_of_calls(told: &RunSeen) -> Vec<&str> {
    let mut types = types(told);
    types.dedup();
    types
}

/// How often something stands in a stream.
fn count(told: &RunSeen, what: &str) -> usize {
    told.raw.matches(what).count()
}

#[tokio::test]
async fn usage_is_counted_wherever_a_server_puts_it() {
    let usage = json!({ "prompt_tokens": 7.0, "completion_tokens": 60.0 });
    let timings = json!({ "cache_n": 3, "prompt_n": 4, "predicted_n": 60, "predicted_ms": 5.5 });
    let finish = json!({ "index": 0, "delta": {}, "finish_reason": "stop" });
    let mut with_usage = finish.clone();
    with_usage["usage"] = usage.clone();
    let named = json!({ "input_tokens": 7, "output_tokens": 60 });
    for end in [
        vec![json!({ "choices": [with_usage] })],
        vec![json!({ "choices": [finish], "x_groq": { "id": "r", "usage": usage } })],
        vec![json!({ "choices": [finish], "timings": timings })],
        vec![json!({ "choices": [finish] }), json!({ "choices": [], "usage": usage })],
        vec![json!({ "choices": [finish] }), json!({ "choices": [], "usage": named })],
    ] {
        let name = format!("{end:?}");
        let end: Vec<Do> = end.iter().map(chunk).chain([done()]).collect();
        let provider = always([vec![stream_head()], tokens(1, 2), end].concat()).await;
        let told = told_by(&provider).await;
        let counted = told.close.unwrap()["usage"].clone();
        let counts = (&counted["input_tokens"], &counted["output_tokens"]);
        assert_eq!(counts, (&json!(7), &json!(60)), "{name}: {counted}");
    }
}

/// The same question in AG-UI: its events.
async fn in_agui(gateway: &str) -> Vec<Value> {
    let input = json!({ "threadId": "t", "runId": uuid::Uuid::now_v7(), "state": {}, "tools": [],
    "context": [],
        "messages": [{ "id": "1", "role": "user", "content": "Hi" }], "forwardedProps": {} });
    let events = client()
        .post(format!("{gateway}/v1/ag-ui"))
        .header("accept", "text/event-stream")
        .json(&input);
    let events = events.send().await.unwrap().text().await.unwrap();
    events
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
        .collect()
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

#[tokio::test]
async fn a_call_of_a_dead_attempt_is_not_made_again_under_another_id() {
    let provider = then(paying("toolu_1", 5, "", false), paying("toolu_2", 5, "Paid.", true)).await;
    let gateway = messages(&provider).await;
    let told = ask(&gateway, "Hi").await;
    assert_eq!(
        (provider.calls(), told.text.as_str()),
        (2, "One moment. Paid."),
        "{:?}",
        told.errors
    );
    assert_eq!(types_of_calls(&told), ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]);
    assert_eq!(
        (told.events[0].1["toolCallId"].as_str(), arguments(&told)),
        (Some("toolu_1"), vec![r#"{"amount":5}"#.into()])
    );
    assert_eq!((count(&told, "stream_reset"), count(&told, "toolu_2")), (0, 0));
    let provider = then(paying("toolu_1", 5, "", false), paying("toolu_2", 5, "Paid.", true)).await;
    let events = in_agui(&messages(&provider).await).await;
    assert_eq!(
        (of_kind(&events, "TOOL_CALL_START").len(), of_kind(&events, "TOOL_CALL_END").len()),
        (1, 1)
    );
    assert_eq!(joined(of_kind(&events, "TOOL_CALL_ARGS").into_iter()), [r#"{"amount":5}"#]);
    assert_eq!(of_kind(&events, "RUN_FINISHED").len(), 1);
}

#[tokio::test]
async fn after_a_call_that_may_have_been_acted_upon_another_one_is_a_divergence() {
    let provider = then(paying("toolu_1", 5, "", false), paying("toolu_2", 6, "", true)).await;
    let told = ask(&messages(&provider).await, "Hi").await;
    let last = told.errors.last().unwrap();
    assert_eq!((last.code.as_str(), last.severity), ("attempt_diverged", ErrorSeverity::Fatal));
    assert_eq!(
        (count(&told, "TOOL_CALL_END"), count(&told, "toolu_2")),
        (1, 0),
        "nobody pays twice"
    );
}

#[tokio::test]
async fn after_a_call_that_may_have_been_acted_upon_none_at_all_is_a_divergence() {
    let plain = [vec![stream_head()], vec![token("One moment. ")], finish("stop")].concat();
    let first =
        [vec![stream_head(), token("One moment. "), call("c1", "{}"), token("So ")]].concat();
    let provider = then(first, plain).await;
    let told = told_by(&provider).await;
    assert_eq!(told.errors.last().unwrap().code, "attempt_diverged");
}

#[tokio::test]
async fn text_after_a_call_can_still_be_taken_back() {
    let provider = then(paying("a", 5, "Paid, I thi", false), paying("b", 5, "Done.", true)).await;
    let told = ask(&messages(&provider).await, "Hi").await;
    assert_eq!(told.text, "One moment. Done.", "{:?}", told.errors);
    assert_eq!((count(&told, "TOOL_CALL_END"), count(&told, "\"b\"")), (1, 0));
    assert_eq!(count(&told, "\"type\":\"stream_reset\""), 1);
}

#[tokio::test]
async fn a_call_cut_in_the_middle_is_sent_once_and_whole() {
    let first = vec![stream_head(), token("Wait. "), call("call-one", r#"{"amount""#)];
    let rest = delta(json!({ "tool_calls": [{ "index": 0, "function": { "arguments": ":5}" } }] }));
    let second = [
        vec![stream_head(), token("Wait. "), call("c2", r#"{"amount""#), rest],
        finish("tool_calls"),
    ];
    let (provider, again) =
        (then(first.clone(), second.concat()).await, then(first, second.concat()).await);
    let told = told_by(&provider).await;
    assert_eq!(types_of_calls(&told), ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]);
    assert_eq!((arguments(&told), count(&told, "\"c2\"")), (vec![r#"{"amount":5}"#.to_owned()], 0));
    let events = in_agui(&again.gateway("openai", config(&again)).await).await;
    assert_eq!(
        (of_kind(&events, "TOOL_CALL_START").len(), of_kind(&events, "TOOL_CALL_END").len()),
        (1, 1)
    );
    assert_eq!(joined(of_kind(&events, "TOOL_CALL_ARGS").into_iter()), [r#"{"amount":5}"#]);
}

#[tokio::test]
async fn a_call_that_a_limit_cut_short_is_none() {
    let acts = [vec![stream_head(), token("Wait. "), call("c1", r#"{"amount""#)], finish("length")]
        .concat();
    let told = told_by(&always(acts).await).await;
    assert_eq!(types(&told), ["TOOL_CALL_START", "TOOL_CALL_ARGS"]);
    assert_eq!(told.close.unwrap()["reason"], "length");
}

#[tokio::test]
async fn in_json_mode_nothing_was_shown_so_nothing_diverges() {
    for (first, second) in [("Paid, I thi", 5), ("", 6)] {
        let provider = then(paying("a", 5, first, false), paying("b", second, "Done.", true)).await;
        let gateway = messages(&provider).await;
        let post = client().post(format!("{gateway}/v1/assist")).json(&question("Hi"));
        let answer = post.header("accept", "application/json").send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["output"]["text"], "One moment. Done.");
        let events = answer["output"]["events"].as_array().unwrap();
        let pieces = events.iter().map(|event| &event["data"]).filter(|d| d["delta"].is_string());
        assert_eq!(joined(pieces), [format!("{{\"amount\":{second}}}")]);
    }
}

#[tokio::test]
async fn done_without_a_finish_is_a_cut() {
    let cut = [vec![stream_head()], tokens(1, 40), vec![done()]].concat();
    let provider = then(cut.clone(), answer()).await;
    let told = told_by(&provider).await;
    assert_eq!((told.text, provider.calls()), (words(60), 2));
    let told = told_by(&always(cut).await).await;
    assert_eq!(told.errors.last().unwrap().code, "upstream_truncated");
    let told = told_by(&always(vec![stream_head(), done()]).await).await;
    assert_eq!(told.errors.last().unwrap().code, "upstream_truncated", "an empty answer is none");
}

#[tokio::test]
async fn a_server_without_finish_reasons_can_be_accepted() {
    let bare = [vec![stream_head()], tokens(1, 40), vec![done()]].concat();
    for (acts, text, error) in [
        (bare, words(40), None),
        (vec![stream_head(), done()], String::new(), Some("upstream_truncated")),
    ] {
        let provider = always(acts).await;
        let mut config = config(&provider);
        config["finish"] = json!("optional");
        let told = ask(&provider.gateway("openai", config).await, "Hi").await;
        assert_eq!((told.text, told.errors.last().map(|error| error.code.as_str())), (text, error));
    }
}

#[tokio::test]
async fn an_error_in_a_stream_is_one_whatever_its_shape() {
    for (error, code, calls) in [
        (
            json!({ "object": "error", "message": "boom", "type": "BadRequestError", "code": 400 }),
            "upstream_error",
            1,
        ),
        (json!({ "detail": "boom" }), "upstream_error", 3),
        (json!({ "detail": [{ "msg": "boom", "loc": [] }] }), "upstream_error", 3),
        (json!({ "error_code": 336003, "error_msg": "boom" }), "upstream_error", 3),
        (
            json!({ "code": "context_length_exceeded", "message": "too long" }),
            "context_length_exceeded",
            1,
        ),
        (json!([{ "error": { "code": 403, "status": "PERMISSION_DENIED" } }]), "upstream_auth", 1),
        (json!({ "error": "boom" }), "upstream_error", 3),
    ] {
        let acts = [vec![stream_head()], tokens(1, 5), vec![chunk(&error), done()]].concat();
        let provider = always(acts).await;
        let told = told_by(&provider).await;
        let last = told.errors.last().unwrap();
        assert_eq!(
            (last.code.as_str(), provider.calls(), told.text),
            (code, calls, words(5)),
            "{error}"
        );
    }
}

#[tokio::test]
async fn arguments_and_thoughts_count_as_activity_before_they_are_sent() {
    let function = json!({ "name": "pay", "arguments": "{" });
    for piece in [
        json!({ "tool_calls": [{ "index": 0, "id": "c", "function": function }] }),
        json!({ "reasoning": "Hm" }),
    ] {
        let piece = chunk(&json!({ "choices": [{ "index": 0, "delta": piece }] }));
        let provider = always(vec![stream_head(), piece, Do::Hang]).await;
        let agent = provider.agent("openai", config(&provider));
        let (mut writer, mut inbox) = channel(16);
        let running = tokio::spawn(async move {
            agent.run(Turn::new("Hi"), &mut writer).await.map_err(|f| f.into_fault())
        });
        let mut taken = Vec::new();
        assert!(inbox.take(&mut taken).await, "the reader wakes up");
        // That it is called is no part of the answer.
        taken.retain(|output| !matches!(output, Output::CallBegan(_)));
        assert_eq!(taken, [], "there is nothing to tell yet");
        running.abort();
    }
}

#[tokio::test]
async fn pings_and_empty_pieces_are_silence() {
    let quiet = || [Do::Write(": ping\n\n".into()), delta(json!({ "content": "" }))];
    let silence: Vec<Do> = (0..20).flat_map(|_| quiet()).collect();
    let stall =
        [vec![stream_head(), token("tok1 ")], silence, vec![Do::Strike(Timer::Idle), Do::Hang]]
            .concat();
    let provider = then(stall, answer()).await;
    let told = told_by(&provider).await;
    assert_eq!((told.text, told.errors[0].code.as_str()), (words(60), "upstream_timeout"));
    let waits = provider.clock.asked(Timer::Idle);
    let first = waits.iter().position(|wait| *wait > CallTimeouts::PROVIDER.idle);
    assert_eq!(first, None);
    let stalled: Vec<Duration> = waits.into_iter().take(2).collect();
    assert!(
        stalled.windows(2).all(|pair| pair[1] < pair[0]),
        "nothing prolongs the wait: {stalled:?}"
    );
}

fn two_calls() -> Answer {
    let call = |name: &str, amount: u32| ToolCall {
        name: name.into(),
        arguments: json!({ "amount": amount }).as_object().unwrap().clone(),
        input: None,
    };
    Answer { tool_calls: vec![call("pay", 5), call("tell", 6)], ..Answer::default() }
}

/// A gateway in front of a provider with a fault, which its model is called by.
async fn faulty(
    kind: &str,
    fault: &str,
    script: Script,
    more: Value,
) -> (FakeProvider, Clock, String) {
    let provider = FakeProvider::start("127.0.0.1:0", script).await.unwrap();
    let url = if kind == "openai" { format!("{}/v1", provider.url()) } else { provider.url() };
    let mut config = json!({ "url": url, "model": fault });
    config.as_object_mut().unwrap().extend(keys(more));
    let clock = Clock::by_hand();
    let gateway =
        gateway_by(clock.clone(), agent_by(clock.clone(), kind, config), Exposure::Production)
            .await;
    (provider, clock, gateway)
}

#[tokio::test]
async fn answers_that_are_written_otherwise_are_read_at_the_first_call() {
    for kind in ["openai", "anthropic"] {
        for fault in [
            "finish-null",
            "content-parts",
            "message-for-delta",
            "json-instead-of-stream",
            "gzip",
            "zstd",
            "no-done",
            "no-usage",
        ] {
            let (provider, clock, gateway) =
                faulty(kind, fault, Script::default(), json!({})).await;
            clock.strike(Timer::Grace);
            let told = ask(&gateway, "Hi").await;
            assert_eq!(told.text, Answer::default().text, "{kind} {fault}: {:?}", told.errors);
            assert_eq!((told.errors.len(), provider.calls().len()), (0, 1), "{kind} {fault}");
        }
    }
}

#[tokio::test]
async fn a_body_in_brotli_is_unpacked() {
    use tokio::io::AsyncReadExt as _;
    let mut body = String::new();
    for act in [tokens(1, 60), finish("stop")].concat() {
        if let Do::Write(text) = act {
            body.push_str(&text);
        }
    }
    let mut packed = Vec::new();
    let mut encoder = async_compression::tokio::bufread::BrotliEncoder::new(body.as_bytes());
    encoder.read_to_end(&mut packed).await.unwrap();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: \
     br\r\nconnection: close\r\n\r\n";
    let provider = always(vec![Do::Write(head.into()), Do::Bytes(packed)]).await;
    assert_eq!(told_by(&provider).await.text, words(60));
    let odd = head.replace(": br", ": lzw");
    let provider = always(vec![Do::Write(odd), Do::Write("x".into())]).await;
    let told = told_by(&provider).await;
    assert_eq!(
        (told.errors.last().unwrap().code.as_str(), provider.calls()),
        ("upstream_malformed", 1)
    );
}

#[tokio::test]
async fn parallel_calls_are_distinguished() {
    for fault in ["same-index-tool-calls", "no-index-tool-calls", "healthy"] {
        let (provider, _, gateway) =
            faulty("openai", fault, Script::default().answer(two_calls()), json!({})).await;
        let told = ask(&gateway, "Hi").await;
        assert_eq!(arguments(&told), [r#"{"amount":5}"#, r#"{"amount":6}"#], "{fault}");
        let names: Vec<&Value> = told
            .events
            .iter()
            .map(|(_, data)| &data["toolCallName"])
            .filter(|n| n.is_string())
            .collect();
        assert_eq!(
            (names, provider.calls().len()),
            (vec![&json!("pay"), &json!("tell")], 1),
            "{fault}"
        );
        assert_eq!(told.close.unwrap()["reason"], "tool_calls");
    }
}

#[tokio::test]
async fn a_call_in_the_older_form_is_a_call() {
    let mut answer = two_calls();
    answer.tool_calls.pop();
    let (_provider, _, gateway) =
        faulty("openai", "legacy-function-call", Script::default().answer(answer), json!({})).await;
    assert_eq!(arguments(&ask(&gateway, "Hi").await), [r#"{"amount":5}"#]);
}

#[tokio::test]
async fn half_a_character_is_no_reason_to_call_again() {
    let (provider, _, gateway) =
        faulty("openai", "broken-surrogate", Script::default(), json!({})).await;
    let told = ask(&gateway, "Hi").await;
    assert_eq!((told.errors.len(), provider.calls().len()), (0, 1));
    assert_eq!(told.text.replace('\u{fffd}', ""), Answer::default().text);
    let half = |text: &str| {
        Do::Write(format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"))
    };
    let split = [vec![stream_head(), half("\\ud83d"), half("\\ude00!")], finish("stop")].concat();
    assert_eq!(told_by(&always(split).await).await.text, "😀!", "what was split is joined");
}

#[tokio::test]
async fn a_servers_retry_advice_is_kept() {
    let (provider, _, gateway) =
        faulty("openai", "should-not-retry", Script::default(), json!({})).await;
    let told = ask(&gateway, "Hi").await;
    assert_eq!(
        (told.errors.last().unwrap().code.as_str(), provider.calls().len()),
        ("upstream_error", 1)
    );
    let (provider, clock, gateway) =
        faulty("openai", "retry-delay@1", Script::default(), json!({})).await;
    let told = ask(&gateway, "Hi").await;
    assert_eq!((told.errors.len(), provider.calls().len()), (0, 2));
    assert_eq!(clock.asked(Timer::Again), [Duration::from_secs(2)]);
    let (provider, _, gateway) = faulty("openai", "moderation", Script::default(), json!({})).await;
    let told = ask(&gateway, "Hi").await;
    assert_eq!(
        (told.errors.last().unwrap().code.as_str(), provider.calls().len()),
        ("content_refused", 1)
    );
}

#[tokio::test]
async fn a_rate_limit_in_mid_stream_is_waited_out() {
    for kind in ["openai", "anthropic"] {
        let (provider, clock, gateway) =
            faulty(kind, "rate-limit-in-stream@1", Script::default(), json!({})).await;
        let told = ask(&gateway, "Hi").await;
        assert_eq!((told.text, provider.calls().len()), (Answer::default().text, 2), "{kind}");
        let waits = clock.asked(Timer::Again);
        assert!(waits[0] > Duration::from_secs(4), "{kind}: {waits:?}");
    }
}

#[tokio::test]
async fn faults_in_mid_stream_are_healed_by_one_more_call() {
    for fault in [
        "done-without-finish@1",
        "empty@1",
        "truncated@1",
        "close-mid-stream@1",
        "reset-mid-stream@1",
        "error-in-stream@1",
        "error-object-in-stream@1",
        "detail-in-stream@1",
        "error-code-in-stream@1",
        "malformed-chunk@1",
    ] {
        let (provider, _, gateway) = faulty("openai", fault, Script::default(), json!({})).await;
        let told = ask(&gateway, "Hi").await;
        assert_eq!(told.text, Answer::default().text, "{fault}: {:?}", told.errors);
        assert_eq!(
            (provider.calls().len(), &told.close.unwrap()["reason"]),
            (2, &json!("completed")),
            "{fault}"
        );
    }
}

#[tokio::test]
async fn usage_adds_up_over_attempts_with_the_last_count_of_each() {
    let provider = then(paying("a", 5, "", false), paying("b", 5, "Paid.", true)).await;
    let told = ask(&messages(&provider).await, "Hi").await;
    let close = told.close.unwrap();
    assert_eq!(
        (&close["usage"]["input_tokens"], &close["usage"]["output_tokens"]),
        (&json!(20), &json!(16))
    );
    let used = |n: u64| {
        chunk(&json!({ "choices": [{ "index": 0, "delta": { "content": "a" } }],
            "usage": { "prompt_tokens": 7, "completion_tokens": n } }))
    };
    let acts = [vec![stream_head(), used(1), used(2)], finish("stop")].concat();
    let told = told_by(&always(acts).await).await;
    assert_eq!(told.close.unwrap()["usage"]["output_tokens"], 60, "the last chunk's");
}

#[tokio::test]
async fn a_call_that_stalls_twice_fails() {
    let provider = always(vec![Do::Strike(Timer::FirstToken), Do::Hang]).await;
    let told = told_by(&provider).await;
    assert_eq!(
        (told.errors.last().unwrap().code.as_str(), provider.calls()),
        ("upstream_timeout", 2)
    );
    let stall =
        [vec![stream_head()], tokens(1, 5), vec![Do::Strike(Timer::Idle), Do::Hang]].concat();
    let provider = always(stall).await;
    let told = told_by(&provider).await;
    assert_eq!(
        (told.errors.last().unwrap().code.as_str(), provider.calls()),
        ("upstream_timeout", 2)
    );
    let CallTimeouts { first_token, idle, .. } = CallTimeouts::PROVIDER;
    assert!(
        first_token <= Duration::from_secs(30) && idle <= Duration::from_secs(30),
        "what a person would wait for"
    );
}

#[tokio::test]
async fn one_read_of_the_network_wakes_its_reader_once() {
    let text: String = tokens(1, 200)
        .into_iter()
        .map(|act| if let Do::Write(text) = act { text } else { String::new() })
        .collect();
    let provider = always([vec![stream_head(), Do::Write(text)], finish("stop")].concat()).await;
    let agent = provider.agent("openai", config(&provider));
    let (mut writer, mut inbox) = channel(100_000);
    let running = tokio::spawn(async move {
        agent.run(Turn::new("Hi"), &mut writer).await.map_err(|f| f.into_fault())
    });
    let (mut batches, mut outputs) = (0, Vec::new());
    while inbox.take(&mut outputs).await {
        batches += 1;
    }
    running.await.unwrap().unwrap();
    let deltas = outputs.iter().filter(|output| matches!(output, Output::Delta(_))).count();
    assert_eq!(deltas, 200);
    assert!(batches < 40, "{batches} wake-ups for {deltas} tokens");
}

#[tokio::test]
async fn an_answer_of_responses_is_read_on_where_it_broke_off() {
    for fault in ["close-mid-stream@1", "truncated@1"] {
        let script = Script::default().answer(two_calls());
        let (provider, _, gateway) =
            faulty("openai", fault, script, json!({ "api": "responses" })).await;
        let told = ask(&gateway, "Hi").await;
        assert_eq!(
            (told.text.as_str(), told.errors.len()),
            (Answer::default().text.as_str(), 0),
            "{fault}: {:?}",
            told.errors
        );
        assert_eq!(arguments(&told), [r#"{"amount":5}"#, r#"{"amount":6}"#]);
        let apis: Vec<&str> = provider.calls().iter().map(|call| call.api).collect();
        assert_eq!(apis, ["responses", "responses-resumed"], "{fault}");
        let close = told.close.unwrap();
        assert_eq!((&close["attempts"], &close["reason"]), (&json!(1), &json!("tool_calls")));
        assert_eq!(close["usage"]["output_tokens"], two_calls().text.split(' ').count() + 8);
    }
}

#[tokio::test]
async fn an_unstored_answer_of_responses_is_requested_again() {
    let more = json!({ "api": "responses", "parameters": { "store": false } });
    let (provider, _, gateway) =
        faulty("openai", "close-mid-stream@1", Script::default(), more).await;
    let told = ask(&gateway, "Hi").await;
    assert_eq!(told.text, Answer::default().text);
    let calls = provider.calls();
    assert_eq!(calls.iter().map(|call| call.api).collect::<Vec<_>>(), ["responses", "responses"]);
    assert_eq!((&calls[0].body["store"], &calls[0].body["stream"]), (&json!(false), &json!(true)));
    assert_eq!(
        calls[0].body["input"][0]["content"][0],
        json!({ "type": "input_text", "text": "Hi" })
    );
}

/// What was called may be under way already, and a second answer might call something else.
#[tokio::test]
async fn an_answer_cut_after_whole_calls_is_not_requested_again() {
    let more = || json!({ "api": "responses", "parameters": { "store": false } });
    for (fault, made) in
        [("close-mid-stream:before-end@1", 1), ("close-mid-stream:mid-arguments@1", 2)]
    {
        let script = Script::default().answer(two_calls());
        let (provider, _, gateway) = faulty("openai", fault, script, more()).await;
        let told = ask(&gateway, "Hi").await;
        assert_eq!(arguments(&told), [r#"{"amount":5}"#, r#"{"amount":6}"#], "{fault}");
        assert_eq!((provider.calls().len(), told.errors.len()), (made, made - 1), "{fault}");
        assert_eq!(told.close.unwrap()["reason"], "tool_calls");
    }
    // A text without its end is no answer.
    let (provider, _, gateway) =
        faulty("openai", "close-mid-stream:before-end@1", Script::default(), more()).await;
    assert_eq!(ask(&gateway, "Hi").await.text, Answer::default().text);
    assert_eq!(provider.calls().len(), 2);
}

#[tokio::test]
async fn faults_of_responses_are_typed() {
    for (fault, code, calls) in [
        ("json-instead-of-stream", None, 1),
        ("gzip", None, 1),
        ("context-length", Some("context_length_exceeded"), 1),
        ("wrong-key", Some("upstream_auth"), 1),
        ("error-in-stream", Some("upstream_error"), 3),
        ("status-503", Some("upstream_error"), 4),
    ] {
        let (provider, _, gateway) =
            faulty("openai", fault, Script::default(), json!({ "api": "responses" })).await;
        let told = ask(&gateway, "Hi").await;
        let last = told.errors.last().map(|error| error.code.as_str());
        assert_eq!((last, provider.calls().len()), (code, calls), "{fault}: {:?}", told.errors);
        if code.is_none() {
            assert_eq!(told.text, Answer::default().text, "{fault}");
        }
    }
}

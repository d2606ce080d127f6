//! What a client on a real socket sees of each fault.

use std::time::Duration;

use capstan_fake_provider::{Answer, Ending, FAULTS, Fault, Rule, Script, ToolCall};
use serde_json::{Value, json};

use crate::common::{PATHS, client, question, read, send, start, text};

#[tokio::test]
async fn a_healthy_answer_is_whole_in_every_shape_streamed_or_not() {
    let provider = start(Script::default()).await;
    let answer = Answer::default().text;
    for path in PATHS {
        let (body, is_whole) = read(send(&provider, path, &question("m")).await.unwrap()).await;
        assert!(is_whole && text(&body) == answer, "{path}: {body}");
        let plain = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
        let document: Value = send(&provider, path, &plain).await.unwrap().json().await.unwrap();
        assert!(document.to_string().contains(&answer), "{path}: {document}");
    }
    let calls = provider.until(|calls| calls.iter().all(|call| call.ending.is_some())).await;
    assert!(calls.iter().all(|call| call.ending == Some(Ending::Complete) && call.fault.is_none()));
    assert_eq!(calls.iter().map(|call| call.tokens).collect::<Vec<_>>(), [60, 0, 60, 0, 60, 0]);
    assert_eq!(calls[0].body["messages"][0]["content"], "What is a capstan?");
    let shown = format!("{calls:?}");
    assert!(shown.contains("[key]") && !shown.contains("sk-secret"), "a key is not kept");
}

#[tokio::test]
async fn a_fault_strikes_by_the_number_of_the_call_and_by_the_name_of_the_model() {
    let provider = start(Script::default().fault("status-503@2".parse().unwrap())).await;
    let mut statuses = Vec::new();
    for model in ["a", "a", "b", "a", "some/status-418@1", "some/status-418@1"] {
        statuses.push(send(&provider, PATHS[0], &question(model)).await.unwrap().status().as_u16());
    }
    assert_eq!(
        statuses,
        [200, 503, 200, 200, 418, 503],
        "the script's rule comes before the model's name"
    );
}

#[tokio::test]
async fn faults_can_be_changed_at_run_time() {
    let provider = start(Script::default()).await;
    let put = |rules: &'static str| {
        client().put(format!("{}/fake/faults", provider.url())).body(rules).send()
    };
    assert_eq!(put("status-429@1, wrong-key").await.unwrap().status(), 200);
    for expected in [429, 401, 401] {
        assert_eq!(send(&provider, PATHS[0], &question("m")).await.unwrap().status(), expected);
    }
    let refused = put("silence").await.unwrap();
    assert_eq!(refused.status(), 400);
    assert!(refused.text().await.unwrap().contains("no fault is called \\\"silence\\\""));
    put("none").await.unwrap();
    assert_eq!(send(&provider, PATHS[0], &question("m")).await.unwrap().status(), 200);
    let told: Value = client()
        .get(format!("{}/fake/calls", provider.url()))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let faults: Vec<&Value> =
        told["calls"].as_array().unwrap().iter().map(|call| &call["fault"]).collect();
    assert_eq!(json!(faults), json!(["status-429", "wrong-key", "wrong-key", null]));
}

#[tokio::test]
async fn a_stream_breaks_after_the_configured_tokens() {
    let said: String = Answer::default().text.split_inclusive(' ').take(3).collect();
    for (fault, ends_well) in [
        (Fault::ResetMidStream, false),
        (Fault::CloseMidStream, false),
        (Fault::Truncated, true),
        (Fault::DoneWithoutFinish, true),
        (Fault::ErrorInStream, true),
        (Fault::RateLimitInStream, true),
    ] {
        let provider = start(Script::default().fault(Rule::new(fault).after(3))).await;
        for path in PATHS {
            let (body, is_whole) = read(send(&provider, path, &question("m")).await.unwrap()).await;
            assert_eq!(
                (text(&body), is_whole),
                (said.clone(), ends_well),
                "{fault} {path}: {body}"
            );
            let is_finished =
                ["\"stop\"", "end_turn", "response.completed"].iter().any(|end| body.contains(end));
            assert!(!is_finished, "{fault} {path}: {body}");
        }
        assert!(provider.calls().iter().all(|call| call.tokens == 3), "{fault}");
    }
}

#[tokio::test]
async fn before_the_headers_a_connection_is_refused_reset_or_closed() {
    for fault in [Fault::RefuseConnection, Fault::ResetBeforeHeaders, Fault::CloseBeforeHeaders] {
        let provider = start(Script::default().fault(Rule::new(fault))).await;
        let error = loop {
            // The port of the first may be open for a moment.
            match send(&provider, PATHS[0], &question("m")).await {
                Err(error) if fault != Fault::RefuseConnection || error.is_connect() => {
                    break error;
                }
                _ => {}
            }
        };
        assert_eq!(error.is_connect(), fault == Fault::RefuseConnection, "{fault}: {error:?}");
        provider.set_faults(Vec::new());
        while send(&provider, PATHS[0], &question("m")).await.is_err() {}
    }
}

#[tokio::test]
async fn a_client_that_closes_is_recorded() {
    for fault in
        [Fault::Silent, Fault::StallMidStream, Fault::SlowFirstToken, Fault::PingsMidStream]
    {
        let pace = Duration::from_millis(5);
        let rule =
            Rule { seconds: (fault == Fault::PingsMidStream).then_some(pace), ..Rule::new(fault) };
        let provider = start(Script::default().fault(rule)).await;
        let calling = tokio::spawn(send_owned(provider.url()));
        provider.until(|calls| calls.len() == 1).await;
        calling.abort();
        let calls = provider.until(|calls| calls[0].ending.is_some()).await;
        assert_eq!(calls[0].ending, Some(Ending::HungUp), "{fault}");
    }
}

async fn send_owned(url: String) {
    let call = client().post(format!("{url}/{}", PATHS[0])).json(&question("m")).send();
    read(call.await.unwrap()).await;
}

#[tokio::test]
async fn an_assistant_message_at_the_end_is_gone_on_from_or_refused() {
    let provider =
        start(Script::default().fault(Rule::new(Fault::RefusesPrefill).model("strict"))).await;
    let words: Vec<String> =
        Answer::default().text.split_inclusive(' ').map(str::to_owned).collect();
    let said = words[..10].concat();
    let ask = |model: &str, said: &str| {
        let mut body = question(model);
        body["messages"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "role": "assistant", "content": said }));
        body
    };
    let (body, _) = read(send(&provider, PATHS[0], &ask("m", &said)).await.unwrap()).await;
    assert_eq!(text(&body), words[10..].concat());
    let trailing = send(&provider, PATHS[2], &ask("m", &said)).await.unwrap();
    assert_eq!(trailing.status(), 400, "{}", trailing.text().await.unwrap());
    let (body, _) =
        read(send(&provider, PATHS[2], &ask("m", said.trim_end())).await.unwrap()).await;
    assert_eq!(text(&body), format!(" {}", words[10..].concat()));
    assert_eq!(send(&provider, PATHS[0], &ask("strict", &said)).await.unwrap().status(), 400);
    assert_eq!(send(&provider, PATHS[0], &question("strict")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn tool_calls_come_as_each_shape_and_each_odd_server_writes_them() {
    let pay = |amount: u32| ToolCall {
        name: "pay".into(),
        arguments: json!({ "amount": amount }).as_object().unwrap().clone(),
        input: None,
    };
    let answer =
        Answer { text: String::new(), tool_calls: vec![pay(5), pay(7)], ..Answer::default() };
    let provider = start(Script::default().answer(answer)).await;
    for (path, model, words) in [
        (PATHS[0], "m", ["\"index\":1", "\"finish_reason\":\"tool_calls\""]),
        (PATHS[1], "m", ["\"call_id\":\"call_2\"", "{\\\"amount\\\":7}"]),
        (PATHS[2], "m", ["\"id\":\"call_2\"", "\"stop_reason\":\"tool_use\""]),
        (PATHS[0], "same-index-tool-calls", ["\"index\":0,\"id\":\"call_2\"", "tool_calls"]),
        (PATHS[0], "no-index-tool-calls", ["[{\"id\":\"call_2\"", "{\\\"amount\\\":7}"]),
        (PATHS[0], "legacy-function-call", ["\"function_call\":{\"name\":\"pay\"", "tool_calls"]),
    ] {
        let (body, _) = read(send(&provider, path, &question(model)).await.unwrap()).await;
        assert!(words.iter().all(|word| body.contains(word)), "{path} {model}: {body}");
    }
}

/// No fault may be a name alone: each does something that a healthy provider does not.
#[tokio::test]
async fn every_fault_makes_a_difference() {
    let call = ToolCall { name: "pay".into(), ..ToolCall::default() };
    let script = Script::default()
        .answer(Answer { tool_calls: vec![call.clone(), call], ..Answer::default() });
    let provider = start(script).await;
    let healthy = seen(provider.url(), "m").await;
    // These two are tested above: one closes the port, the other needs a prefill.
    let is_tried = |fault| !matches!(fault, Fault::RefuseConnection | Fault::RefusesPrefill);
    let rows = FAULTS.iter().filter(|row| is_tried(row.fault));
    let tried: Vec<_> =
        rows.map(|row| (row.name, tokio::spawn(seen(provider.url(), row.name)))).collect();
    for (name, seen) in tried {
        assert_ne!(seen.await.unwrap(), healthy, "{name}");
    }
}

/// All that a client can see of a call, or that it takes long.
async fn seen(url: String, model: &'static str) -> String {
    let call = async {
        let sent = client().post(format!("{url}/{}", PATHS[0])).json(&question(model)).send().await;
        let Ok(response) = sent else { return "no response".to_owned() };
        let head =
            format!("{} {:?}", response.status(), response.headers().get("content-encoding"));
        let (body, is_whole) = read(response).await;
        format!("{head} {is_whole} {}", body.replace(model, "m"))
    };
    tokio::time::timeout(Duration::from_millis(500), call)
        .await
        .unwrap_or_else(|_| "too long".to_owned())
}

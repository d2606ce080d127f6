//! Responses over HTTP, against a real server: events and objects, reading on from every number,
//! trees, stops, erasing.

use crate::common::{Server, client, demo, stream_of};
use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, Settings};
use capstan_protocol::{Fault, FaultKind};
use serde_json::{Value, json};

/// Says what it was told; with a tool of the caller's it thinks, cites and calls.
struct Teller;

#[async_trait]
impl Agent for Teller {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let is_called = turn.messages.len() > 1;
        let Some(tool) = turn.tools.first().filter(|_| !is_called) else {
            let told: Vec<_> = turn
                .history
                .iter()
                .map(|m| (**m).clone())
                .chain(turn.messages.iter().cloned())
                .collect();
            out.delta(serde_json::to_string(&told).unwrap()).await?;
            return Ok(());
        };
        out.thought("Weather, then.").await?;
        out.delta("I look. ").await?;
        let source = json!({ "citations": [{ "source_id": "s", "uri": "https://a.example/",
        "title": "A", "confidence": 1.0 }] });
        out.event("CITATION_BLOCK", &source).await?;
        out.thought("Bern.").await?;
        out.event("TOOL_CALL_START", &json!({ "toolCallId": "c1", "toolCallName": tool.name }))
            .await?;
        out.event("TOOL_CALL_ARGS", &json!({ "toolCallId": "c1", "delta": "{}" })).await?;
        out.event("TOOL_CALL_END", &json!({ "toolCallId": "c1" })).await?;
        Ok(())
    }
}

async fn serve() -> Server {
    let gateway =
        Gateway::new(crate::common::journal()).agent("demo", demo()).agent("teller", Teller);
    crate::common::serve_gateway(gateway).await
}

fn ask(text: &str) -> Value {
    json!({ "model": "demo", "input": text })
}

fn with(mut body: Value, name: &str, value: Value) -> Value {
    body[name] = value;
    body
}

fn header<'a>(response: &'a reqwest::Response, name: &str) -> &'a str {
    response.headers()[name].to_str().unwrap()
}

async fn post(server: &Server, body: &Value, headers: &[(&str, &str)]) -> reqwest::Response {
    let mut request = client().post(format!("{}/v1/responses", server.url)).json(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap()
}

async fn ok(server: &Server, body: &Value) -> Value {
    let response = post(server, body, &[]).await;
    let status = response.status();
    let told: Value = response.json().await.unwrap();
    assert_eq!(status, 200, "{told}");
    told
}

/// The events of a body that has nothing but events, each named as its type.
fn events(body: &str) -> Vec<Value> {
    let frames = body.split("\n\n").filter(|frame| !frame.is_empty());
    let event = |frame: &str| {
        let (name, data) = frame.split_once('\n').unwrap();
        let event: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name, format!("event: {}", event["type"].as_str().unwrap()));
        event
    };
    frames.map(event).collect()
}

async fn streamed(server: &Server, body: &Value) -> Vec<Value> {
    let response = post(server, &with(body.clone(), "stream", true.into()), &[]).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    events(&response.text().await.unwrap())
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().unwrap().trim_start_matches("response."))
        .collect()
}

fn text_of(response: &Value) -> &str {
    let items = response["output"].as_array().unwrap();
    let message = items.iter().find(|item| item["type"] == "message").unwrap();
    message["content"][0]["text"].as_str().unwrap()
}

fn last(events: &[Value]) -> &Value {
    &events.last().unwrap()["response"]
}

#[tokio::test]
async fn events_come_in_the_documented_order_and_say_what_the_object_says() {
    let server = serve().await;
    let said = streamed(&server, &ask("/echo one two")).await;
    let deltas = said.iter().filter(|event| event["type"] == "response.output_text.delta").count();
    let mut expected = vec!["created", "in_progress", "output_item.added", "content_part.added"];
    expected.extend(std::iter::repeat_n("output_text.delta", deltas));
    expected.extend(["output_text.done", "content_part.done", "output_item.done", "completed"]);
    assert_eq!(kinds(&said), expected);
    let numbers: Vec<u64> =
        said.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    let id = last(&said)["id"].as_str().unwrap();
    let looked: Value = server.get(&format!("/v1/responses/{id}")).await.json().await.unwrap();
    assert_eq!(&looked, last(&said));
    assert_eq!((text_of(&looked), &looked["status"]), ("one two", &json!("completed")));
    let count = |name: &str| looked["usage"][name].as_u64().unwrap();
    assert!(count("output_tokens") > 0);
    assert_eq!(count("total_tokens"), count("input_tokens") + count("output_tokens"));

    let whole = ok(&server, &with(ask("/echo one two"), "metadata", json!({ "a": "b" }))).await;
    assert_eq!((text_of(&whole), &whole["metadata"]), ("one two", &json!({ "a": "b" })));
}

#[tokio::test]
async fn thoughts_sources_and_calls_are_items_and_a_result_goes_back_by_id() {
    let server = serve().await;
    let tools =
        json!([{ "type": "function", "name": "weather", "parameters": { "type": "object" } }]);
    let body =
        json!({ "model": "teller", "input": "Bern?", "tools": tools, "instructions": "Be brief." });
    let said = streamed(&server, &body).await;
    let kinds = kinds(&said);
    assert!(
        kinds.contains(&"output_text.annotation.added")
            && kinds.contains(&"reasoning_summary_text.delta")
    );
    let done = last(&said);
    let types: Vec<_> = done["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["type"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["reasoning", "message", "reasoning", "function_call"]);
    // What was added and what was done stand in the same places, under the same ids.
    for kind in ["response.output_item.added", "response.output_item.done"] {
        let mut ids: Vec<_> = said
            .iter()
            .filter(|event| event["type"] == kind)
            .map(|event| (event["output_index"].as_u64().unwrap(), &event["item"]["id"]))
            .collect();
        ids.sort_by_key(|(index, _)| *index);
        let expected: Vec<_> =
            (0..).zip(done["output"].as_array().unwrap().iter().map(|item| &item["id"])).collect();
        assert_eq!(ids, expected, "{kind}");
    }
    let sources = &done["output"][1]["content"][0]["annotations"];
    assert_eq!(
        sources,
        &json!([{ "type": "url_citation", "url": "https://a.example/", "title": "A",
        "start_index": 8, "end_index": 8 }])
    );

    let result = json!([{ "type": "function_call_output", "call_id": "c1", "output": "sunny" }]);
    let next = json!({ "model": "teller", "input": result, "previous_response_id": done["id"] });
    let answer = ok(&server, &next).await;
    let told: Vec<Value> = serde_json::from_str(text_of(&answer)).unwrap();
    let roles: Vec<_> = told.iter().map(|message| message["role"].as_str().unwrap()).collect();
    // What the first was instructed is not carried over.
    assert_eq!(roles, ["user", "assistant", "tool"]);
    let wrong = with(
        next,
        "input",
        json!([{ "type": "function_call_output", "call_id": "c9", "output": "x" }]),
    );
    assert_eq!(post(&server, &wrong, &[]).await.status(), 400);
}

#[tokio::test]
async fn a_resumed_response_has_the_missing_bytes_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server =
        crate::common::start_on(crate::common::disk(folder.path()), Settings::default()).await;
    for command in ["/tokens 12", "/events", "/fault upstream_error", "/flaky 1"] {
        let response = post(&server, &with(ask(command), "stream", true.into()), &[]).await;
        let id = format!("resp_{}", stream_of(&response).replace('-', ""));
        let all = response.text().await.unwrap();
        let said = events(&all);
        let frames: Vec<&str> = all.split_inclusive("\n\n").collect();
        for (n, event) in said.iter().enumerate() {
            let path = format!(
                "/v1/responses/{id}?stream=true&starting_after={}",
                event["sequence_number"]
            );
            assert_eq!(
                server.get(&path).await.text().await.unwrap(),
                frames[n + 1..].concat(),
                "{command} {n}"
            );
        }
        assert_eq!(
            server.get(&format!("/v1/responses/{id}?stream=true")).await.text().await.unwrap(),
            all
        );
    }
    let whole = ok(&server, &ask("/echo kept")).await;
    server.stop().await;
    let server =
        crate::common::start_on(crate::common::disk(folder.path()), Settings::default()).await;
    let id = whole["id"].as_str().unwrap();
    let looked: Value = server.get(&format!("/v1/responses/{id}")).await.json().await.unwrap();
    assert_eq!(looked, whole);
    let said =
        events(&server.get(&format!("/v1/responses/{id}?stream=true")).await.text().await.unwrap());
    assert_eq!(last(&said), &whole);
    server.stop().await;
}

#[tokio::test]
async fn a_failure_is_an_error_event_before_the_last_one_or_a_status() {
    let server = serve().await;
    let said = streamed(&server, &ask("/fault context_length_exceeded")).await;
    let [.., error, failed] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!((&error["type"], &failed["type"]), (&json!("error"), &json!("response.failed")));
    assert_eq!(
        (&error["code"], &error["error"]["code"]),
        (&json!("context_length_exceeded"), &json!("context_length_exceeded"))
    );
    assert_eq!(
        (&error["error"]["severity"], &failed["response"]["error"]["code"]),
        (&json!("FATAL"), &error["code"])
    );
    assert_eq!(failed["response"]["status"], "failed");
    let refused = post(&server, &ask("/fault context_length_exceeded"), &[]).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "x-should-retry")), (400, "false"));
    // By id it is a response that failed.
    let looked: Value = server
        .get(&format!("/v1/responses/{}", failed["response"]["id"].as_str().unwrap()))
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(looked, failed["response"]);
    let said = streamed(&server, &ask("/diverge")).await;
    assert_eq!(last(&said)["error"]["code"], "attempt_diverged");
}

#[tokio::test]
async fn in_the_background_it_is_polled_and_cancelled() {
    let server = serve().await;
    let begun = ok(&server, &with(ask("/hang"), "background", true.into())).await;
    assert_eq!((&begun["status"], &begun["background"]), (&json!("in_progress"), &json!(true)));
    let path = format!("/v1/responses/{}", begun["id"].as_str().unwrap());
    let reading = client().get(format!("{}{path}?stream=true", server.url)).send().await.unwrap();
    let cancel = || client().post(format!("{}{path}/cancel", server.url)).send();
    let cancelled: Value = cancel().await.unwrap().json().await.unwrap();
    assert_eq!(cancelled["status"], "cancelled");
    let said = events(&reading.text().await.unwrap());
    assert_eq!((kinds(&said).last(), last(&said)), (Some(&"incomplete"), &cancelled));
    // A second time changes nothing.
    assert_eq!(cancel().await.unwrap().json::<Value>().await.unwrap(), cancelled);
    let failed = ok(&server, &with(ask("/fault upstream_auth"), "background", true.into())).await;
    let path = format!("/v1/responses/{}", failed["id"].as_str().unwrap());
    let said = events(&server.get(&format!("{path}?stream=true")).await.text().await.unwrap());
    assert_eq!(kinds(&said).last(), Some(&"failed"));
    let looked = server.get(&path).await;
    assert_eq!(looked.status(), 200);
    assert_eq!(looked.json::<Value>().await.unwrap()["error"]["kind"], "upstream_auth");
}

#[tokio::test]
async fn answers_form_a_tree_and_a_conversation_a_line() {
    let server = serve().await;
    let tell = |body: Value| {
        let server = &server;
        async move {
            let answer = ok(server, &with(body, "model", "teller".into())).await;
            let told: Vec<Value> = serde_json::from_str(text_of(&answer)).unwrap();
            let texts: Vec<String> = told
                .iter()
                .filter(|m| m["role"] == "user")
                .map(|m| m["parts"][0]["content"].as_str().unwrap().to_owned())
                .collect();
            (answer["id"].clone(), texts, answer["previous_response_id"].clone())
        }
    };
    let messages = json!([{ "role": "user", "content": "a" }, { "role": "assistant",
    "content": "A" }, { "role": "user", "content": "b" }]);
    let (root, said, _) = tell(json!({ "input": messages })).await;
    assert_eq!(said, ["a", "b"]);
    let (left, said, previous) = tell(json!({ "input": "c", "previous_response_id": root })).await;
    assert_eq!((said, &previous), (vec!["a".to_owned(), "b".into(), "c".into()], &root));
    let (_, said, _) = tell(json!({ "input": "d", "previous_response_id": root })).await;
    assert_eq!(said, ["a", "b", "d"]);
    let (_, said, _) = tell(json!({ "input": "e", "previous_response_id": left })).await;
    assert_eq!(said, ["a", "b", "c", "e"]);
    tell(json!({ "input": "x", "conversation": "talk" })).await;
    let (_, said, _) = tell(json!({ "input": "y", "conversation": { "id": "talk" } })).await;
    assert_eq!(said, ["x", "y"]);
    for unknown in [json!("resp_0193a8f2c4d57b6e9a1b2c3d4e5f6a7b"), json!("msg_1")] {
        let refused = post(&server, &with(ask("hi"), "previous_response_id", unknown), &[]).await;
        assert_eq!(refused.status(), 400);
        let error = refused.json::<Value>().await.unwrap()["error"].clone();
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!("previous_response_not_found"), &json!("previous_response_id"))
        );
    }
}

#[tokio::test]
async fn an_answer_is_erased_and_its_input_listed() {
    let server = serve().await;
    let input = json!([{ "role": "user", "content": "a" }, { "type": "message", "id": "m2",
    "role": "user", "content": "/echo b" }]);
    let answer = ok(&server, &json!({ "model": "demo", "input": input })).await;
    let path = format!("/v1/responses/{}", answer["id"].as_str().unwrap());
    let page: Value =
        server.get(&format!("{path}/input_items?limit=1")).await.json().await.unwrap();
    assert_eq!(
        (&page["has_more"], &page["data"][0]["id"], &page["last_id"]),
        (&json!(true), &json!("m2"), &json!("m2"))
    );
    let page: Value =
        server.get(&format!("{path}/input_items?after=m2")).await.json().await.unwrap();
    assert_eq!(
        (&page["has_more"], &page["data"][0]["type"], &page["data"][0]["content"]),
        (&json!(false), &json!("message"), &json!([{ "type": "input_text", "text": "a" }]))
    );
    let gone: Value = server.delete(&path).await.json().await.unwrap();
    assert_eq!(gone, json!({ "id": answer["id"], "object": "response", "deleted": true }));
    for path in [path.as_str(), "/v1/responses/resp_x", "/v1/conversations/c", "/v1/batches"] {
        let refused = server.get(path).await;
        assert_eq!(
            (refused.status().as_u16(), header(&refused, "x-should-retry")),
            (404, "false"),
            "{path}"
        );
        assert_eq!(
            refused.json::<Value>().await.unwrap()["error"]["type"],
            "invalid_request_error"
        );
    }
}

#[tokio::test]
async fn wrong_input_is_named_and_other_faces_runs_are_no_responses() {
    let server = serve().await;
    for (body, status, param) in [
        (json!({}), 400, "input"),
        (with(ask("hi"), "model", "gpt-9".into()), 404, "model"),
        (
            with(ask("hi"), "text", json!({ "format": { "type": "json_object" } })),
            400,
            "text.format",
        ),
        (with(ask("hi"), "background", "yes".into()), 400, "background"),
        (with(ask("hi"), "stream", "yes".into()), 400, "stream"),
        (with(ask("hi"), "metadata", json!({ "k": true })), 400, "metadata.k"),
        (with(ask("hi"), "metadata", json!(["k"])), 400, "metadata"),
        (
            with(ask("hi"), "metadata", (0..17).map(|n| (n.to_string(), json!("v"))).collect()),
            400,
            "metadata",
        ),
        (with(ask("hi"), "max_output_tokens", json!(-5)), 400, "max_output_tokens"),
        (with(ask("hi"), "truncation", "half".into()), 400, "truncation"),
        (with(ask("hi"), "include", "song".into()), 400, "include"),
        (with(ask("hi"), "text", json!({ "verbosity": "shy" })), 400, "text.verbosity"),
        (with(ask("hi"), "reasoning", json!({ "effort": "some" })), 400, "reasoning.effort"),
        (with(ask("hi"), "reasoning", json!({ "summary": "long" })), 400, "reasoning.summary"),
        (
            with(
                ask("hi"),
                "tools",
                json!([{ "type": "function", "name": "f", "parameters": "x" }]),
            ),
            400,
            "tools[0].parameters",
        ),
        (
            with(ask("hi"), "tools", json!([{ "type": "function", "name": "" }])),
            400,
            "tools[0].name",
        ),
        (
            json!({ "input": [{ "role": "user", "content": [{ "type": "song" }] }] }),
            400,
            "input[0].content[0].type",
        ),
    ] {
        let refused = post(&server, &body, &[]).await;
        assert_eq!(refused.status().as_u16(), status, "{body}");
        assert_eq!(refused.json::<Value>().await.unwrap()["error"]["param"], param);
    }
    let other = server.post(&crate::common::ask("/echo hi")).await;
    let id = stream_of(&other).replace('-', "");
    assert_eq!(server.get(&format!("/v1/responses/resp_{id}")).await.status(), 404);
    let begun = ok(&server, &with(ask("/hang"), "background", true.into())).await;
    let path = format!("/v1/responses/{}", begun["id"].as_str().unwrap());
    assert_eq!(server.get(&format!("{path}?stream=true&starting_after=99999")).await.status(), 400);
    let early = with(ask("hi"), "previous_response_id", begun["id"].clone());
    assert_eq!(post(&server, &early, &[]).await.status(), 400);
    server.delete(&path).await;
}

/// Says a little of everything that OpenAI has no word for.
struct Showman;

#[async_trait]
impl Agent for Showman {
    async fn run(&self, _: Turn, out: &mut Writer) -> Outcome {
        out.delta("a").await?;
        out.event("PROGRESS_INDICATOR", &json!({ "label": "Looking", "status": "running" }))
            .await?;
        out.warning(&Fault::new(FaultKind::UpstreamError)).await?;
        out.delta("b").await?;
        Ok(())
    }
}

#[tokio::test]
async fn events_beyond_openais_are_sent_on_request() {
    let server =
        crate::common::serve_gateway(Gateway::new(crate::common::journal()).agent("demo", Showman))
            .await;
    let response = post(&server, &with(ask("hi"), "stream", true.into()), &[]).await;
    let id = format!("resp_{}", stream_of(&response).replace('-', ""));
    let plain = events(&response.text().await.unwrap());
    assert!(plain.iter().all(|event| !event["type"].as_str().unwrap().starts_with("capstan.")));
    let url = format!("{}/v1/responses/{id}?stream=true", server.url);
    let asked = client().get(url).header("x-capstan-events", "all").send().await.unwrap();
    let all = events(&asked.text().await.unwrap());
    let (ours, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|event| event["type"].as_str().unwrap().starts_with("capstan."));
    assert_eq!(kinds(&ours), ["capstan.event", "capstan.warning"]);
    assert_eq!(
        (&ours[0]["event"]["data"]["label"], &ours[1]["error"]["code"]),
        (&json!("Looking"), &json!("upstream_error"))
    );
    // Everything else is as it was, numbers included.
    assert_eq!(others, plain);
}

#[tokio::test]
async fn a_question_is_a_call_and_its_output_the_answer() {
    let server = serve().await;
    for names_conversation in [true, false] {
        let mut body = ask("/ask Which colour?");
        if names_conversation {
            body = with(body, "conversation", "talk".into());
        }
        let asked = ok(&server, &body).await;
        let call =
            asked["output"].as_array().unwrap().iter().find(|item| item["type"] == "function_call");
        let call = call.unwrap();
        assert_eq!(call["name"], "interrupt");
        let question: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        assert!(question["message"].as_str().unwrap().contains("Which colour?"), "{question}");
        let output = json!({ "type": "function_call_output", "call_id": call["call_id"],
        "output": "{\"answer\":\"blue\"}" });
        let mut answer = json!({ "model": "demo", "input": [output] });
        if names_conversation {
            answer = with(answer, "conversation", "talk".into());
        }
        let told = ok(&server, &answer).await;
        assert!(text_of(&told).contains("blue"), "{told}");
        // It is answered by now.
        let refused = post(&server, &with(answer, "metadata", json!({ "n": "2" })), &[]).await;
        assert_eq!(refused.json::<Value>().await.unwrap()["error"]["kind"], "interrupt_not_open");
    }
}

#[tokio::test]
async fn a_reference_stands_for_the_item_that_it_names() {
    let server = serve().await;
    let tools =
        json!([{ "type": "function", "name": "weather", "parameters": { "type": "object" } }]);
    let first = ok(&server, &json!({ "model": "teller", "input": "Bern?", "tools": tools })).await;
    let references: Vec<Value> = first["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| json!({ "type": "item_reference", "id": item["id"] }))
        .collect();
    let mut input = vec![json!({ "role": "user", "content": "Bern?" })];
    input.extend(references);
    input.push(json!({ "type": "function_call_output", "call_id": "c1", "output": "sunny" }));
    let answer = ok(&server, &json!({ "model": "teller", "input": input })).await;
    let told: Vec<Value> = serde_json::from_str(text_of(&answer)).unwrap();
    let roles: Vec<_> = told.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool"]);
    assert_eq!(told[1]["parts"].as_array().unwrap().len(), 2, "the text and the call: {told:?}");
    // What was asked has a name, too.
    let path = format!("/v1/responses/{}/input_items", first["id"].as_str().unwrap());
    let page: Value = server.get(&path).await.json().await.unwrap();
    let input = json!([{ "type": "item_reference", "id": page["data"][0]["id"] }]);
    let answer = ok(&server, &json!({ "model": "teller", "input": input })).await;
    assert!(text_of(&answer).contains("Bern?"));
    for unknown in ["msg_1", "msg_0193a8f2c4d57b6e9a1b2c3d4e5f6a7b_3"] {
        let body =
            json!({ "model": "teller", "input": [{ "type": "item_reference", "id": unknown }] });
        let refused = post(&server, &body, &[]).await;
        assert_eq!(refused.status(), 400);
        assert_eq!(refused.json::<Value>().await.unwrap()["error"]["param"], "input[0].id");
    }
}

#[tokio::test]
async fn a_repeat_attaches_after_the_answer_that_it_names_has_expired() {
    let server = serve().await;
    let first = ok(&server, &json!({ "model": "teller", "input": "Bern?" })).await;
    let named = json!({ "type": "item_reference", "id": first["output"][0]["id"] });
    let question = json!({ "role": "user", "content": "And now?" });
    let body = json!({ "model": "teller", "input": [named, question] });
    let key = [("idempotency-key", "again")];
    let answer: Value = post(&server, &body, &key).await.json().await.unwrap();
    let erased = server.delete(&format!("/v1/responses/{}", first["id"].as_str().unwrap())).await;
    assert!(erased.status().is_success());
    let repeat = post(&server, &body, &key).await;
    assert_eq!(repeat.status(), 200);
    assert_eq!(repeat.json::<Value>().await.unwrap()["id"], answer["id"]);
    // Another question under the same key is refused, and a new one cannot be asked any more.
    let other = with(body.clone(), "temperature", json!(1));
    assert!(post(&server, &other, &key).await.status().is_client_error());
    assert_eq!(post(&server, &body, &[("idempotency-key", "new")]).await.status(), 400);
}

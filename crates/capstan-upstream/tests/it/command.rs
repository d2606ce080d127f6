//! Processes: real children, their output, and their end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::*;
use capstan_agent::{Clock, Output, Timer, Turn};
use capstan_protocol::ErrorSeverity;
use serde_json::{Value, json};

fn transcripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/claude/transcripts")
}

/// A process that says what a transcript holds, and exits as the CLI does.
fn replay(name: &str) -> Value {
    let file = transcripts().join(format!("{name}.jsonl"));
    json!({ "command": ["sh", "-c", "cat \"$0\"; exit 1", file] })
}

fn expected() -> Value {
    serde_json::from_str(&std::fs::read_to_string(transcripts().join("expected.json")).unwrap())
        .unwrap()
}

/// What a reader is told of each transcript beyond the reference's own words: the text that is an
/// answer, and the fault that the run ends with, and its word.
const ENDS: &[(&str, &str, &str, &str)] = &[
    ("happy_partial", "I will list the files.\n\nTwo files: a.rs and b.rs.", "", ""),
    ("midstream_recovered", "Hello there, whole.", "", ""),
    ("stream_error_event", "Hello.", "", ""),
    (
        "tool_failure",
        "Running the tests.\n\nA test fails; trying another command.\n\nI could not edit the file.",
        "",
        "",
    ),
    ("overloaded_subagent", "The helper failed; answering directly.", "", ""),
    ("rate_limited", "", "upstream_error", "rate_limit"),
    ("auth_failure", "", "upstream_auth", "authentication_failed"),
    ("billing_error", "First answer.", "upstream_quota", "billing_error"),
    ("server_error_midstream", "The answer begins with", "upstream_error", "server_error"),
    ("message_stop_error", "Partial", "upstream_error", "brand_new_code"),
    ("max_turns_and_limits", "step one\n\nstep two, long", "upstream_error", "max_output_tokens"),
    ("future_proof", "still here\n\nbye", "upstream_error", "code_from_the_future"),
];

#[tokio::test]
async fn transcripts_through_a_process_end_in_the_expected_messages_errors_and_faults() {
    let expected = expected();
    assert_eq!(expected.as_object().unwrap().len(), ENDS.len(), "every transcript is here");
    for (name, text, code, word) in ENDS {
        let told = ask(&gateway(agent("command", replay(name))).await, "Hi").await;
        let expected = &expected[name];
        assert_eq!(told.text, *text, "{name}");
        let fatal = told.errors.iter().find(|error| error.severity == ErrorSeverity::Fatal);
        assert_eq!(
            fatal.is_some(),
            expected["final"]["is_error"] == true,
            "{name}: {:?}",
            told.errors
        );
        let details = fatal.and_then(|error| error.details.clone()).unwrap_or_default();
        let found = fatal.map_or("", |error| error.code.as_str());
        assert_eq!(found, *code, "{name}");
        assert_eq!(
            details.get("assistant_error").and_then(Value::as_str).unwrap_or_default(),
            *word,
            "{name}"
        );
        let seen = |word: &Value| {
            let has = |e: &capstan_protocol::StreamError| {
                e.details.as_ref().is_some_and(|d| d.get("assistant_error") == Some(word))
            };
            told.errors.iter().any(has)
        };
        for error in expected["assistant_errors"].as_array().unwrap() {
            assert!(seen(&error["error"]), "{name}: {error} is seen downstream: {:?}", told.errors);
        }
        if let (Some(fatal), Some(words)) = (fatal, expected["error_result_text"].as_str()) {
            assert_ne!(fatal.message, words, "{name}: what the CLI says is not for callers");
        }
        assert_eq!(told.close.unwrap()["model"], "claude-made-up-1", "{name}");
    }
}

#[tokio::test]
async fn a_transcripts_error_is_in_json_mode_as_well() {
    let gateway = gateway(agent("command", replay("auth_failure"))).await;
    let (status, problem) = ask_json(&gateway, "Hi").await;
    assert_eq!((status, &problem["code"]), (502, &json!("upstream_auth")));
    assert_eq!(problem["details"]["assistant_error"], "authentication_failed");
    let gateway = crate::common::gateway(agent("command", replay("happy_partial"))).await;
    let (status, answer) = ask_json(&gateway, "Hi").await;
    assert_eq!(
        (status, &answer["output"]["text"]),
        (200, &json!("I will list the files.\n\nTwo files: a.rs and b.rs."))
    );
    assert_eq!(answer["metrics"]["usage"]["output_tokens"], 5);
}

#[tokio::test]
async fn tool_calls_and_their_results_become_events() {
    let told = ask(&gateway(agent("command", replay("happy_partial"))).await, "Hi").await;
    assert_eq!(
        types(&told),
        ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"]
    );
    assert_eq!(told.events[0].1, json!({ "toolCallId": "toolu_a", "toolCallName": "Bash" }));
    assert_eq!(told.events[1].1["delta"], r#"{"command":"ls"}"#);
    assert_eq!(told.events[3].1["content"], "a.rs\nb.rs");
}

#[tokio::test]
async fn a_subagents_error_is_a_warning_and_the_run_continues() {
    let told = ask(&gateway(agent("command", replay("overloaded_subagent"))).await, "Hi").await;
    let warning = &told.errors[0];
    assert_eq!(warning.severity, ErrorSeverity::Warning);
    assert_eq!(warning.details.as_ref().unwrap()["assistant_error"], "overloaded");
    assert_eq!(told.close.unwrap()["reason"], "completed");
}

/// A process that says these lines.
fn says(lines: &[Value]) -> Value {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    json!({ "command": ["printf", "%s", text] })
}

fn message(id: &str, said: &str) -> Value {
    json!({ "type": "assistant", "message": { "id": id, "model": "m-1",
    "content": [{ "type": "text", "text": said }] } })
}

fn result(more: Value) -> Value {
    let mut result = json!({ "type": "result", "subtype": "success", "duration_ms": 1,
    "duration_api_ms": 1,
        "is_error": false, "num_turns": 1, "session_id": "s" });
    result.as_object_mut().unwrap().extend(keys(more));
    result
}

#[tokio::test]
async fn the_reasons_of_an_end_are_typed() {
    for (more, code) in [
        (
            json!({ "is_error": true, "terminal_reason": "prompt_too_long" }),
            "context_length_exceeded",
        ),
        (json!({ "is_error": true, "result": "Prompt is too long" }), "context_length_exceeded"),
        (
            json!({ "is_error": true, "stop_reason": "model_context_window_exceeded" }),
            "context_length_exceeded",
        ),
        (json!({ "is_error": true, "stop_reason": "refusal" }), "content_refused"),
        (json!({ "stop_reason": "refusal", "result": "I cannot." }), "content_refused"),
    ] {
        let told = ask(&gateway(agent("command", says(&[result(more.clone())]))).await, "Hi").await;
        assert_eq!(told.errors.last().unwrap().code, code, "{more}");
    }
    let lines = [message("a", "Half of"), result(json!({ "stop_reason": "max_tokens" }))];
    let told = ask(&gateway(agent("command", says(&lines))).await, "Hi").await;
    assert_eq!(told.close.unwrap()["reason"], "length");
}

#[tokio::test]
async fn a_call_that_the_process_makes_again_is_progress_with_status_and_wait() {
    let retry = json!({ "type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 10,
    "retry_delay_ms": 1500,
        "error_status": 529, "error": "overloaded", "session_id": "s", "uuid": "u" });
    let lines = [retry, message("a", "Here."), result(json!({}))];
    let told = ask(&gateway(agent("command", says(&lines))).await, "Hi").await;
    let warning = &told.errors[0];
    assert_eq!((warning.severity, told.text.as_str()), (ErrorSeverity::Warning, "Here."));
    let details = warning.details.as_ref().unwrap();
    assert_eq!((&details["upstream_status"], &details["retry_after"]), (&json!(529), &json!(2)));
}

fn stream(event: Value) -> Value {
    json!({ "type": "stream_event", "uuid": "e", "session_id": "s", "event": event })
}

/// A message that is streamed and not stated: its beginning, its text, its end.
fn streamed(id: &str, text: &str) -> Vec<Value> {
    vec![
        stream(json!({ "type": "message_start", "message": { "id": id } })),
        stream(json!({ "type": "content_block_delta", "index": 0, "delta": {
            "type": "text_delta", "text": text } })),
        stream(json!({ "type": "message_stop" })),
    ]
}

fn framed(uuid: &str, model: &str, said: &str, more: Value) -> Value {
    let mut frame = json!({ "type": "assistant", "uuid": uuid, "message": { "id": uuid,
    "model": model, "content": [{ "type": "text", "text": said }] } });
    frame.as_object_mut().unwrap().extend(keys(more));
    frame
}

fn news(subtype: &str, more: Value) -> Value {
    let mut frame = json!({ "type": "system", "subtype": subtype, "uuid": "n", "session_id": "s" });
    frame.as_object_mut().unwrap().extend(keys(more));
    frame
}

async fn told_of(lines: &[Value]) -> RunSeen {
    ask(&gateway(agent("command", says(lines))).await, "Hi").await
}

#[tokio::test]
async fn a_refused_models_text_is_taken_back_and_close_names_the_one_that_answered() {
    let fallback = |more: Value| {
        let mut all = json!({ "trigger": "refusal", "direction": "retry", "original_model": "m-1",
        "fallback_model": "m-2", "api_refusal_category": "cyber", "content": "…" });
        all.as_object_mut().unwrap().extend(keys(more));
        news("model_refusal_fallback", all)
    };
    let refused = framed("u1", "m-1", "First I", json!({}));
    let answer = |more: Value| framed("u2", "m-2", "Here it is.", more);
    let retracted = || fallback(json!({ "retracted_message_uuids": ["u1"] }));
    let cases = [
        vec![refused.clone(), retracted(), answer(json!({}))],
        vec![refused.clone(), answer(json!({ "supersedes": ["u1"] })), retracted()],
        [streamed("u1", "First I"), vec![retracted(), answer(json!({}))]].concat(),
        [
            vec![refused.clone()],
            streamed("u2", "Here it is."),
            vec![answer(json!({ "supersedes": ["u1"] })), retracted()],
        ]
        .concat(),
    ];
    for mut lines in cases {
        lines.push(result(json!({})));
        let told = told_of(&lines).await;
        assert_eq!(told.text, "Here it is.", "{lines:?}");
        assert_eq!(told.close.unwrap()["model"], "m-2", "{lines:?}");
        assert!(told.errors.is_empty(), "{:?}", told.errors);
    }
    let local = fallback(json!({ "scope": "local", "retracted_message_uuids": ["u1"] }));
    let told = told_of(&[refused, local, result(json!({}))]).await;
    assert_eq!((told.text.as_str(), &told.close.unwrap()["model"]), ("First I", &json!("m-1")));
}

#[tokio::test]
async fn a_refusal_without_a_fallback_has_its_category() {
    let refused = news(
        "model_refusal_no_fallback",
        json!({ "original_model": "m-1",
    "api_refusal_category": "cyber", "content": "http://10.1.2.3 said no" }),
    );
    let own = json!({ "type": "assistant", "error": "invalid_request", "message": { "id": "x",
    "model": "<synthetic>", "content": [{ "type": "text", "text": "I cannot." }] } });
    for ended in [
        vec![result(json!({ "stop_reason": "refusal" }))],
        vec![own, result(json!({ "is_error": true, "result": "API Error: refused" }))],
    ] {
        let lines = [vec![refused.clone()], ended].concat();
        let told = told_of(&lines).await;
        let fault = told.errors.last().unwrap();
        assert_eq!(fault.code, "content_refused", "{lines:?}");
        assert_eq!(fault.details.as_ref().unwrap()["refusal_category"], "cyber");
        assert!(!told.raw.contains("10.1.2.3"), "{}", told.raw);
    }
    let later = [refused, message("a", "After all."), result(json!({}))];
    let told = told_of(&[&streamed("a", "Af")[..], &later[..]].concat()).await;
    assert_eq!(told.errors.last().map(|error| error.code.as_str()), Some("content_refused"));
    let again = [&later[..1], &streamed("a", "After all.")[..], &later[1..]].concat();
    let told = told_of(&again).await;
    assert!(told.errors.is_empty() && told.text == "After all.", "{:?}", told.errors);
}

#[tokio::test]
async fn lost_writes_are_a_warning_after_the_result() {
    let lost = news(
        "session_writes_lost",
        json!({ "error_code": "ENOSPC",
    "lost": ["transcript"], "transcript_session_ids": ["8d236771"] }),
    );
    let told = told_of(&[message("a", "Done."), result(json!({})), lost]).await;
    let warning = &told.errors[0];
    assert_eq!((told.errors.len(), warning.severity), (1, ErrorSeverity::Warning));
    let details = warning.details.as_ref().unwrap();
    assert_eq!(
        (&details["error_code"], &details["lost"]),
        (&json!("ENOSPC"), &json!(["transcript"]))
    );
    assert!(!told.raw.contains("8d236771"), "the agent's own sessions are its business");
    assert_eq!(told.close.unwrap()["reason"], "completed");
}

/// As a CLI writes it whose stream was cut: the block is closed, then it says that it tries again.
#[tokio::test]
async fn text_of_an_abandoned_call_is_continued_or_reset() {
    let retry = news(
        "api_retry",
        json!({ "attempt": 1, "max_retries": 2, "retry_delay_ms": 5,
    "error_status": null, "error": "unknown" }),
    );
    let call = json!({ "type": "assistant", "uuid": "u2", "message": { "id": "b", "model": "m-1",
    "content": [{ "type": "tool_use", "id": "call_1", "name": "Write", "input": {} }] } });
    let cut = [streamed("a", "One two "), vec![retry]].concat();
    for (rest, text) in [
        (
            [streamed("b", "One two three."), vec![message("b", "One two three.")]].concat(),
            "One two three.",
        ),
        ([streamed("b", "Another."), vec![message("b", "Another.")]].concat(), "Another."),
        // Without a stream.
        (vec![message("b", "One two three.")], "One two three."),
        (vec![call.clone(), message("c", "Written.")], "Written."),
        (vec![], ""),
    ] {
        let told = told_of(&[cut.clone(), rest.clone(), vec![result(json!({}))]].concat()).await;
        assert_eq!(told.text, text, "{rest:?} {}", told.raw);
        assert_eq!(told.errors.len(), 1, "the retry is a WARNING: {:?}", told.errors);
    }
}

/// Asks for a tool, and says what it is told.
const ASKS: &str = r#"read prompt; printf '{"type":"control_request","request_id":"r-1","request":{"subtype":"can_use_tool","tool_name":"Write","input":{"path":"a.txt"},"tool_use_id":"call_1"}}\n'; read reply; case "$reply" in *'"behavior":"allow"'*) said=allowed;; *'"behavior":"deny"'*) said=denied;; *) said=unclear;; esac; printf '{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"%s"}]}}\n' "$said"; printf '{"type":"result","subtype":"success","duration_ms":1,"duration_api_ms":1,"is_error":false,"num_turns":1,"session_id":"s"}\n'; cat"#;

fn interrupts(outputs: &[Output]) -> Vec<capstan_agent::Interrupt> {
    let asked = |output: &Output| {
        if let Output::Interrupt(asked) = output { Some((**asked).clone()) } else { None }
    };
    outputs.iter().filter_map(asked).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_is_an_interrupt_and_its_answer_reaches_the_next_process() {
    let config = json!({ "command": ["sh", "-c", ASKS], "prompt": "stream-json" });
    let (outputs, outcome) = run(agent("command", config.clone()), Turn::new("Write it")).await;
    outcome.unwrap();
    let asked = interrupts(&outputs);
    assert_eq!((asked.len(), asked[0].reason.as_str()), (1, "approval"));
    assert_eq!(asked[0].tool_call_id.as_deref(), Some("call_1"));
    assert_eq!(asked[0].metadata.as_ref().unwrap()["input"], json!({ "path": "a.txt" }));
    assert_eq!(text(&outputs), "", "it was ended while it waited");
    for (payload, said) in [(json!({ "approved": true }), "allowed"), (json!(false), "denied")] {
        let mut turn = Turn::new("Write it");
        turn.answers = vec![capstan_agent::ResumeEntry {
            interrupt_id: asked[0].id.clone(),
            status: capstan_agent::ResumeStatus::Resolved,
            payload: Some(serde_json::from_value(payload).unwrap()),
            metadata: None,
        }]
        .into();
        let (outputs, outcome) = run(agent("command", config.clone()), turn).await;
        outcome.unwrap();
        assert_eq!(text(&outputs), said);
        assert!(interrupts(&outputs).is_empty());
    }
}

/// Whatever way the prompt came: nobody waits for a process that waits for an answer.
#[tokio::test]
async fn a_process_never_hangs_on_its_own_request() {
    let asks = |request: Value| {
        json!({ "type": "control_request", "request_id": "r",
    "request": request })
    };
    let permission = asks(json!({ "subtype": "can_use_tool", "tool_name": "Bash",
    "input": { "command": "ls" } }));
    let script = |line: &Value| {
        json!({ "command": ["sh", "-c", "printf '%s\\n' \"$0\"; exec sleep 3600",
        line.to_string()] })
    };
    let (outputs, outcome) = run(agent("command", script(&permission)), Turn::new("Hi")).await;
    outcome.unwrap();
    assert_eq!(interrupts(&outputs)[0].message.as_deref(), Some("May the agent use Bash?"));
    let other = asks(json!({ "subtype": "hook_callback" }));
    let (_, outcome) = run(agent("command", script(&other)), Turn::new("Hi")).await;
    assert_eq!(outcome.unwrap_err().code(), "upstream_error");
    let deferred = result(json!({ "deferred_tool_use": { "id": "call_1", "name": "Bash",
    "input": { "command": "ls" } } }));
    let (outputs, outcome) = run(agent("command", says(&[deferred])), Turn::new("Hi")).await;
    outcome.unwrap();
    let same = interrupts(&outputs);
    assert_eq!((same.len(), same[0].tool_call_id.as_deref()), (1, Some("call_1")));
}

#[tokio::test]
async fn messages_of_a_process_are_paragraphs_and_its_errors_stay_inside() {
    let own = json!({ "type": "assistant", "message": { "id": "x", "model": "<synthetic>",
    "content":
        [{ "type": "text", "text": "API Error: connect http://10.1.2.3:8080" }] } });
    let lines = [message("a", "One."), own, message("b", "Two."), result(json!({}))];
    let told = ask(&gateway(agent("command", says(&lines))).await, "Hi").await;
    assert_eq!(told.text, "One.\n\nTwo.");
    let failed =
        result(json!({ "is_error": true, "result": "API Error: 502 from http://10.1.2.3:8080/v1",
        "api_error_status": 502 }));
    let told = ask(&gateway(agent("command", says(&[failed]))).await, "Hi").await;
    assert_eq!(told.errors.last().unwrap().code, "upstream_error");
    assert!(!told.raw.contains("10.1.2.3"), "{}", told.raw);
}

#[tokio::test]
async fn a_prompt_that_looks_like_a_command_is_sent_as_text() {
    let script = format!("set -- \"$(printf %s \"$1\" | tr '\\n' ' ')\"; {ECHO}");
    let config = json!({ "command": ["sh", "-c", script, "sh"], "prompt": "argument" });
    let (outputs, outcome) = run(agent("command", config), Turn::new("/clear")).await;
    outcome.unwrap();
    assert!(text(&outputs).contains("arg=The user says:"), "{}", text(&outputs));
}

/// Says its input and arguments as a result.
const ECHO: &str = r#"in=$(cat); printf '{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"in=%s arg=%s run=%s"}]}}\n' "$in" "$1" "${CAPSTAN_RUN:+set}"; printf '{"type":"result","subtype":"success","duration_ms":1,"duration_api_ms":1,"is_error":false,"num_turns":1,"session_id":"s"}\n'"#;

fn text(outputs: &[Output]) -> String {
    outputs
        .iter()
        .filter_map(|o| if let Output::Delta(text) = o { Some(text.as_str()) } else { None })
        .collect()
}

#[tokio::test]
async fn the_prompt_comes_on_standard_input_or_as_an_argument() {
    let config = json!({ "command": ["sh", "-c", ECHO, "sh"] });
    let (outputs, outcome) = run(agent("command", config), Turn::new("Hello")).await;
    outcome.unwrap();
    assert_eq!(text(&outputs), "in=Hello arg= run=set");
    for command in [json!(["sh", "-c", ECHO, "sh"]), json!(["sh", "-c", ECHO, "sh", "{prompt}"])] {
        let config = json!({ "command": command, "prompt": "argument" });
        let (outputs, outcome) = run(agent("command", config), Turn::new("Hello")).await;
        outcome.unwrap();
        assert_eq!(text(&outputs), "in= arg=Hello run=set");
    }
}

fn is_alive(pid: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    state.is_some_and(|stat| {
        !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z')
    })
}

async fn eventually(what: impl Fn() -> bool) -> bool {
    // Another process does it, and tells nobody.
    for _ in 0..1000 {
        if what() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    false
}

/// A process with a child of its own; both ignore the signal that asks.
fn stubborn(file: &Path) -> String {
    format!(
        "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >> {0}; while :; do sleep 0.1; done' & echo \
         $$ >> {0}; while :; do sleep 0.1; done",
        file.display()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_run_ends_its_whole_process_group() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let clock = Clock::by_hand();
    let config = json!({ "command": ["sh", "-c", stubborn(&file)] });
    let gateway = gateway(agent_by(clock.clone(), "command", config)).await;
    let response = post(&gateway, &question("Hi"), "text/event-stream").await;
    let stream = response.headers()["x-stream-id"].to_str().unwrap().to_owned();
    let pids = || std::fs::read_to_string(&file).unwrap_or_default();
    assert!(eventually(|| pids().lines().count() == 2).await);
    let stopped = client().delete(format!("{gateway}/v1/streams/{stream}")).send().await.unwrap();
    assert_eq!(stopped.status(), 200);
    assert!(pids().lines().all(is_alive), "the stop does not wait for the process");
    clock.strike(Timer::Grace);
    assert!(
        eventually(|| pids().lines().all(|pid| !is_alive(pid))).await,
        "parent and child are gone"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_process_is_ended_by_its_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let (clock, config) = (Clock::by_hand(), json!({ "command": ["sh", "-c", stubborn(&file)] }));
    let running = tokio::spawn(run(agent_by(clock.clone(), "command", config), Turn::new("Hi")));
    let pids = || std::fs::read_to_string(&file).unwrap_or_default();
    assert!(eventually(|| pids().lines().count() == 2).await);
    clock.strike(Timer::FirstToken);
    let (_, outcome) = running.await.unwrap();
    let fault = outcome.unwrap_err();
    assert_eq!(
        (fault.code(), &fault.details()["timeout"]),
        ("upstream_timeout", &json!("first_token"))
    );
    clock.strike(Timer::Grace);
    assert!(eventually(|| pids().lines().all(|pid| !is_alive(pid))).await);
}

#[tokio::test]
async fn a_process_that_lingers_after_its_result_is_done() {
    let script = format!("{ECHO}; sleep 3600");
    let (clock, config) = (Clock::by_hand(), json!({ "command": ["sh", "-c", script, "sh"] }));
    clock.strike(Timer::Grace);
    let (outputs, outcome) = run(agent_by(clock.clone(), "command", config), Turn::new("x")).await;
    outcome.unwrap();
    assert_eq!(text(&outputs), "in=x arg= run=set");
    assert!(
        clock.asked(Timer::Grace)[0] <= Duration::from_secs(2),
        "{:?}",
        clock.asked(Timer::Grace)
    );
}

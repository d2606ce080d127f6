//! `capstan validate` as its users meet it: the real binary, real pipes.

#[path = "../../../capstan-protocol/tests/it/common/mod.rs"]
mod conformance;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use conformance::{deep, is_strict, vectors};
use serde_json::{Value, json};

fn capstan(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_capstan"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that ends before reading its input closes the pipe: not this test's concern.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn verdicts(output: &Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    text.lines().map(deep).collect()
}

#[test]
fn each_line_gets_a_verdict_and_a_refusal_exits_with_one() {
    let input = "{\"code\":\"x\",\"message\":\"y\",\"severity\":\"FATAL\",\"details\":null}\n\
                 {\"code\":\"x\",\"message\":\"y\",\"severity\":\"Transient\"}\n";
    let output = capstan(&["validate", "--model", "StreamError"], input);
    assert_eq!(
        verdicts(&output),
        [
            json!({ "ok": true, "value": { "code": "x", "message": "y", "severity": "FATAL" } }),
            json!({ "ok": false, "error": "severity: unknown variant \"Transient\", expected \
             FATAL, TRANSIENT or WARNING" }),
        ]
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn report_exits_with_zero_all_the_same() {
    let output = capstan(&["validate", "--model", "StreamError", "--report"], "{}\n");
    assert_eq!((verdicts(&output).len(), output.status.code()), (1, Some(0)));
}

#[test]
fn a_file_is_read_instead_of_standard_input() {
    let path = std::env::temp_dir().join(format!("capstan-validate-{}.jsonl", std::process::id()));
    std::fs::write(&path, "{\"op\":\"delta\",\"p\":\"x\"}").unwrap();
    let output = capstan(
        &["validate", "--model", "StreamPacket", "--profile", "v2", path.to_str().unwrap()],
        "",
    );
    std::fs::remove_file(&path).unwrap();
    assert_eq!(verdicts(&output), [json!({ "ok": true, "value": { "op": "delta", "p": "x" } })]);
    let output = capstan(&["validate", "--model", "StreamPacket", "/nowhere/to/be/found"], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere/to/be/found"));
}

#[test]
fn an_unknown_model_gets_the_nearest_one_suggested() {
    let output = capstan(&["validate", "--model", "StreamPaket"], "");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        message.contains("did you mean \"StreamPacket\"?") && message.contains("--list"),
        "{message}"
    );
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_model_of_the_other_profile_is_found_without_asking() {
    let output = capstan(
        &["validate", "--model", "StreamReference"],
        "{\"stream_id\":\"a\",\"name\":\"b\"}\n",
    );
    assert_eq!(verdicts(&output)[0]["value"]["content_type"], "text/plain");
    let output = capstan(&["validate", "--model", "StreamReference", "--profile", "v1"], "");
    assert!(String::from_utf8_lossy(&output.stderr).contains("profile v2 has"));
}

#[test]
fn the_list_names_every_model() {
    let output = capstan(&["validate", "--list"], "");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for name in ["v1  StreamPacket", "v2  StreamPacket", "v1  ServiceRequest", "sse", "stream-json"]
    {
        assert!(text.contains(name), "{name}");
    }
}

#[test]
fn a_captured_sse_body_gets_a_verdict_per_frame() {
    let packet = |seq: u32, op: &str, p: &str| {
        format!(
            "event: stream.packet\nid: 7c9e6679-7425-40de-944b-e07fc1f90ae7:{seq}\ndata: \
             {{\"stream_id\":\"7c9e6679-7425-40de-944b-e07fc1f90ae7\",\"seq\":{seq},\"op\":\"{op}\",\"t\":\"2026-02-03T10:15:37Z\",\"p\":{p}}}\n\n"
        )
    };
    let body = format!(
        "retry: 500\nid: x:0\n\n{}:\n{}event: other\ndata: 1\n\n{}data: {{\"cut",
        packet(1, "DELTA", "\"hi\""),
        packet(2, "ERROR", "\"boom\""),
        packet(3, "CLOSE", "\"completed\"")
    );
    let output = capstan(&["validate", "--model", "sse"], &body);
    let verdicts = verdicts(&output);
    assert_eq!(verdicts[0]["value"]["p"], "hi");
    assert!(
        verdicts[1]["error"]
            .as_str()
            .unwrap()
            .starts_with("frame[2].p: expected a StreamError object"),
        "{}",
        verdicts[1]
    );
    assert_eq!((&verdicts[2]["ok"], &verdicts[2]["event"]), (&json!(true), &json!("other")));
    assert_eq!(verdicts[3]["value"]["op"], "CLOSE");
    assert_eq!(verdicts[4]["error"], "frame[5]: cut off by the end of the body");
    assert_eq!(verdicts.len(), 5);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn stream_json_frames_answer_with_type_error_and_text() {
    let input = [
        r#"{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},"error":"rate_limit"}"#,
        r#"{"type":"from_the_future"}"#,
        r#"{"type":"assistant"}"#,
        "[SandboxDebug] starting",
        "[1,2]",
        r#"{"type":"#,
    ]
    .join("\n");
    let output = capstan(&["validate", "--model", "stream-json"], &input);
    let verdicts = verdicts(&output);
    assert_eq!(
        verdicts[0],
        json!({ "ok": true, "type": "AssistantMessage", "error": "rate_limit", "text": "ab" })
    );
    assert_eq!((&verdicts[1]["ok"], &verdicts[1]["type"]), (&json!(true), &Value::Null));
    assert_eq!(verdicts[2]["error"], "message: required member is absent");
    assert_eq!(verdicts[3]["ok"], true, "log lines between the frames are passed over");
    assert_eq!((&verdicts[4]["ok"], &verdicts[5]["ok"]), (&json!(false), &json!(false)));
}

#[test]
fn lines_end_at_lf_only() {
    let output = capstan(
        &["validate", "--model", "StreamPacket", "--profile", "v2"],
        "{\"op\":\"delta\",\"p\":\"a\u{2028}b\u{85}c\"}\r\n",
    );
    assert_eq!(verdicts(&output)[0]["value"]["p"], "a\u{2028}b\u{85}c");
}

/// One process judges all cases of a model.
#[test]
fn every_case_of_the_vectors_gets_its_verdict_from_the_command() {
    let mut by_model: BTreeMap<(String, String), Vec<Value>> = BTreeMap::new();
    let cases = vectors("cap/models.jsonl").into_iter().filter(is_strict);
    for case in cases.filter(|case| case["model"] != "SSE-from-packet") {
        let word = |name: &str| case[name].as_str().unwrap().to_owned();
        by_model.entry((word("profile"), word("model"))).or_default().push(case);
    }
    assert!(by_model.len() >= 40, "only {} models", by_model.len());
    for ((profile, model), cases) in by_model {
        let lines: String = cases.iter().map(|case| format!("{}\n", case["input"])).collect();
        let output =
            capstan(&["validate", "--model", &model, "--profile", &profile, "--report"], &lines);
        let verdicts = verdicts(&output);
        assert_eq!(verdicts.len(), cases.len(), "{profile} {model}");
        for (verdict, case) in verdicts.iter().zip(&cases) {
            assert_eq!(verdict["ok"], case["accept"], "{}: {}: {verdict}", case["id"], case["why"]);
        }
    }
}

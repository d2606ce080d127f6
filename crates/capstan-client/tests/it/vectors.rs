//! The conformance vectors of packets, over a real socket: what the reference refuses ends the call
//! as a breach of the protocol, and what it accepts does not.

#[path = "../../../capstan-protocol/tests/it/common/mod.rs"]
mod conformance;

use crate::common::scripted::{STREAM, scripted, sse};
use capstan_client::protocol::{Close, Cursor, Payload, Profile};
use capstan_client::{CapClient, CapError, Options};
use conformance::{is_strict, vectors};
use serde_json::{Value, json};

/// The results of a client without retries, for bodies with these frames.
async fn read_all(profile: Profile, bodies: &[Vec<&str>]) -> Vec<Result<Vec<Payload>, CapError>> {
    let frame = |text: &&str| {
        text.split('\n').map(|line| format!("data: {line}\n")).collect::<String>() + "\n"
    };
    let answers = bodies.iter().map(|texts| sse(&texts.iter().map(frame).collect::<String>()));
    let server = scripted(answers.collect()).await;
    let options = Options::new().profile(profile).max_retries(0);
    let client = CapClient::with_options(&server.url, "sk_test", options).unwrap();
    let mut all = Vec::new();
    for _ in bodies {
        all.push(read_one(&client).await);
    }
    all
}

async fn read_one(client: &CapClient) -> Result<Vec<Payload>, CapError> {
    let mut packets = client.observe(Cursor::start(STREAM));
    let mut read = Vec::new();
    while let Some(packet) = packets.next().await? {
        read.push(packet.payload);
    }
    Ok(read)
}

fn is_breach(read: &Result<Vec<Payload>, CapError>) -> bool {
    matches!(read, Err(CapError::Protocol(_)))
}

/// SSE cannot carry an empty frame, and ends lines at CR as well.
fn can_be_sent(text: &str) -> bool {
    !text.is_empty() && !text.contains('\r')
}

/// The depth of a value.
fn depth(value: &Value) -> usize {
    let deepest = |inner: &mut dyn Iterator<Item = &Value>| inner.map(depth).max().unwrap_or(0) + 1;
    match value {
        Value::Array(items) => deepest(&mut items.iter()),
        Value::Object(members) => deepest(&mut members.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The reference's verdict, but where the contract has another: of what nests too deeply, of a
/// `seq` that counts nothing, and of a close of v2, which needs no `p`.
fn is_accepted(text: &str, case: &Value) -> bool {
    let parsed = serde_json::from_str(text).unwrap_or_default();
    let input: &Value = case.get("input").unwrap_or(&parsed);
    let seq = &input["seq"];
    let is_no_seq = case["profile"] == "v1" && seq.is_number() && !seq.is_u64();
    case["accept"] == true && !is_no_seq && depth(input) <= 128
        || *input == json!({ "op": "close" })
}

#[tokio::test]
async fn every_packet_of_the_vectors_gets_its_verdict_over_http() {
    let models =
        vectors("cap/models.jsonl").into_iter().map(|case| (case["input"].to_string(), case));
    let raw = vectors("cap/text.jsonl")
        .into_iter()
        .map(|case| (case["raw"].as_str().unwrap().to_owned(), case));
    let cases: Vec<(String, Value)> = models.chain(raw).collect();
    for profile in [Profile::V1, Profile::V2] {
        let is_one = |(text, case): &&(String, Value)| {
            case["model"] == "StreamPacket"
                && case["profile"] == profile.to_string()
                && is_strict(case)
                && can_be_sent(text)
        };
        let cases: Vec<_> = cases.iter().filter(is_one).collect();
        assert!(cases.len() > 150, "only {} cases", cases.len());
        let bodies: Vec<_> = cases.iter().map(|(text, _)| vec![text.as_str()]).collect();
        for (read, (text, case)) in read_all(profile, &bodies).await.iter().zip(cases) {
            assert_eq!(
                is_breach(read),
                !is_accepted(text, case),
                "{}: {}: {text}: {read:?}",
                case["id"],
                case["why"]
            );
        }
    }
}

/// A packet of v1 with this instead of its place, its op and its payload.
fn packet(rest: &str) -> String {
    format!(r#"{{"stream_id":"{STREAM}","t":"2026-02-03T10:15:37Z",{rest}}}"#)
}

#[tokio::test]
async fn what_a_receiver_must_refuse_is_a_breach_over_http() {
    let deep = format!("{}1{}", "[".repeat(128), "]".repeat(128));
    let wrong = [
        (
            "a string as an error",
            packet(r#""seq":1,"op":"ERROR","p":"Error: Rate limit exceeded""#),
        ),
        ("a number as an error", packet(r#""seq":1,"op":"ERROR","p":42"#)),
        (
            "an error without a severity",
            packet(r#""seq":1,"op":"ERROR","p":{"code":"c","message":"m"}"#),
        ),
        ("a member twice", packet(r#""seq":1,"seq":2,"op":"DELTA","p":"x""#)),
        ("129 levels", packet(&format!(r#""seq":1,"op":"EVENT","p":{{"v":{deep}}}"#))),
        ("a negative seq", packet(r#""seq":-1,"op":"DELTA","p":"x""#)),
        ("half a seq", packet(r#""seq":1.5,"op":"DELTA","p":"x""#)),
        ("an array", format!(r#"["{STREAM}",1,"DELTA","2026-02-03T10:15:37Z","x"]"#)),
    ];
    let read = read_all(Profile::V1, &wrong.each_ref().map(|(_, text)| vec![text.as_str()])).await;
    for (read, (what, text)) in read.iter().zip(&wrong) {
        assert!(is_breach(read), "{what}: {text}: {read:?}");
    }
    let error = read[0].clone().unwrap_err();
    assert!(
        error.to_string().contains("p: expected a StreamError object"),
        "place and remedy: {error}"
    );
}

#[tokio::test]
async fn an_event_that_nobody_knows_and_a_close_of_v2_without_p_are_read() {
    let event = r#"{"type":"FROM_THE_FUTURE","data":{"n":12345678901234567890}}"#;
    let texts = [
        packet(&format!(r#""seq":1,"op":"EVENT","p":{event}"#)),
        packet(r#""seq":2,"op":"CLOSE","p":"completed""#),
    ];
    let read = read_all(Profile::V1, &[texts.iter().map(String::as_str).collect()]).await;
    let [Payload::Event(raw), Payload::Close(_)] = &read[0].as_ref().unwrap()[..] else {
        panic!("{read:?}")
    };
    assert_eq!(raw.get(), event);
    let read = read_all(Profile::V2, &[vec![r#"{"op":"close"}"#]]).await;
    assert_eq!(read, [Ok(vec![Payload::Close(Close::Unstated)])]);
}

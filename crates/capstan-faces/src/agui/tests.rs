//! Properties of the fold. Any output of an agent becomes a legal sequence of events. A resume at
//! any event continues byte by byte. A late joiner ends with the same messages.

use capstan_engine::Engine;
use capstan_journal::{Claim, Frame, Journal, Quota, Run, RunState, TailLimits};
use capstan_protocol::agui::{Verifier, null_member};
use capstan_protocol::{
    Close, ErrorSeverity, LastEventId, Payload, RawObject, StreamError, StreamPacket, Timestamp,
    sse,
};
use capstan_stores::{Durability, open};
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::FaceSettings;

/// A stream in a journal, without a relay.
struct World {
    cx: FaceContext,
    run: Run,
    body: Bytes,
    states: Arc<FoldStates>,
    error_text: bool,
}

fn packet(stream_id: Uuid, seq: u64, payload: Payload) -> StreamPacket {
    let t = Timestamp::from_micros(1_700_000_000_000_000 + i64::try_from(seq).unwrap() * 1000);
    StreamPacket { stream_id, seq, t, payload }
}

impl World {
    async fn new(payloads: &[Payload], settings: FaceSettings) -> Self {
        let error_text = settings.agui_error_text;
        let journal =
            Journal::new(open("memory:", Durability::default()).unwrap(), TailLimits::default());
        let body = json!({ "threadId": "t", "runId": "r", "state": { "n": 0 }, "tools": [],
        "context": [],
            "messages": [{ "id": "u", "role": "user", "content": "Hi" }] });
        let claim = Claim {
            face: NAME.into(),
            body: body.to_string().into(),
            session: "t".into(),
            ..Claim::new("local", "r", Uuid::now_v7(), Timestamp::from_micros(0))
        };
        let stream = claim.stream_id;
        let body = claim.body.clone();
        journal.claim(claim, &Quota::UNLIMITED).await.unwrap();
        let frames = payloads.iter().zip(1..).map(|(payload, seq)| {
            let mut bytes = Vec::new();
            sse::encode_packet(&packet(stream, seq, payload.clone()), &mut bytes);
            Frame { seq, bytes: bytes.into() }
        });
        journal.append(stream, 1, frames.collect()).await.unwrap();
        let run = journal.store().run(stream).await.unwrap().unwrap();
        Self {
            cx: FaceContext::of_engine(Engine::builder(journal).build()),
            run,
            body,
            states: Arc::default(),
            error_text,
        }
    }

    fn facts(&self) -> Facts {
        Facts::new(&self.run, declares_version(&self.body), self.error_text)
    }

    /// A complete response to a client, if the run has this state at the end.
    async fn serve(&self, place: Begin, state: RunState, step: usize) -> Vec<u8> {
        self.serve_upto(u64::MAX, place, state, step).await
    }

    /// The response of a time when the stream had `upto` packets.
    async fn serve_upto(&self, upto: u64, place: Begin, state: RunState, step: usize) -> Vec<u8> {
        let mut agui =
            AguiWriter::open(&self.cx, &self.states, &self.run, self.facts(), place).await.unwrap();
        let mut out = agui.opening(&self.cx).to_vec();
        let mut after = agui.base();
        loop {
            let frames = self
                .cx
                .engine
                .store()
                .read(self.run.stream_id, after, step, 1 << 20)
                .await
                .unwrap();
            let frames: Vec<&Frame> = frames.iter().filter(|frame| frame.seq <= upto).collect();
            let Some(last) = frames.last() else { break };
            after = last.seq;
            let frames = frames.into_iter().cloned().collect();
            match agui.write_frames(&self.cx, &frames).await.unwrap() {
                BodyStep::Write(bytes) => out.extend(bytes),
                BodyStep::Last(bytes) => {
                    out.extend(bytes);
                    return out;
                }
                BodyStep::End | BodyStep::Cut => panic!("frames end nothing"),
            }
        }
        if let BodyStep::Write(bytes) | BodyStep::Last(bytes) =
            agui.caught_up(&self.cx, state, ViewerKind::Post)
        {
            out.extend(bytes);
        }
        out
    }

    async fn replay(&self, state: RunState) -> Vec<u8> {
        self.serve(Begin::After(Cursor::start(self.run.stream_id)), state, 7).await
    }
}

/// Ids and events of a body.
fn events(body: &[u8]) -> Vec<(Option<String>, Value)> {
    let text = std::str::from_utf8(body).unwrap();
    let line = |frame: &str, name: &str| {
        frame.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
    };
    let frames =
        text.split("\n\n").filter_map(|frame| Some((line(frame, "id: "), line(frame, "data: ")?)));
    frames.map(|(id, data)| (id, serde_json::from_str(&data).unwrap())).collect()
}

/// The frames of a body after the one with this id.
fn rest_after(body: &[u8], id: &str) -> Vec<u8> {
    let text = String::from_utf8(body.to_vec()).unwrap();
    let at = text.find(&format!("id: {id}\n")).unwrap();
    let end = at + text[at..].find("\n\n").unwrap() + 2;
    text[end..].into()
}

/// A client's messages, as a short form of the published reducer builds them.
#[derive(Debug, Clone, Default, PartialEq)]
struct Screen(Vec<(String, String, String)>);

impl Screen {
    fn take(&mut self, event: &Value) {
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let id = text("messageId");
        match event["type"].as_str().unwrap() {
            "TEXT_MESSAGE_START" | "REASONING_MESSAGE_START"
                if !self.0.iter().any(|(known, ..)| *known == id) =>
            {
                self.0.push((id, text("role"), String::new()));
            }
            "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" => {
                let known = self.0.iter_mut().find(|(known, ..)| *known == id).unwrap();
                known.2.push_str(&text("delta"));
            }
            "MESSAGES_SNAPSHOT" => self.replace(event["messages"].as_array().unwrap()),
            _ => {}
        }
    }

    fn replace(&mut self, messages: &[Value]) {
        let text =
            |message: &Value, name: &str| message[name].as_str().unwrap_or_default().to_owned();
        let messages_now: Vec<_> = messages
            .iter()
            .filter(|message| message["role"] != "tool" && message.get("content").is_some())
            .map(|m| (text(m, "id"), text(m, "role"), text(m, "content")))
            .collect();
        let tells_reasoning = messages_now.iter().any(|(_, role, _)| role == "reasoning");
        self.0.retain(|(id, role, _)| {
            messages_now.iter().any(|(known, ..)| known == id)
                || (role == "reasoning" && !tells_reasoning)
        });
        for message in messages_now {
            match self.0.iter_mut().find(|(id, ..)| *id == message.0) {
                Some(known) => *known = message,
                None => self.0.push(message),
            }
        }
    }

    fn of(start: &Self, events: &[(Option<String>, Value)]) -> Self {
        let mut screen = start.clone();
        events.iter().for_each(|(_, event)| screen.take(event));
        screen
    }

    /// The run's own messages, sorted, because a join may change the order of the conversation.
    fn own_messages(&self) -> Vec<(String, String)> {
        let mut own_messages: Vec<_> =
            self.0.iter().filter(|(_, role, _)| role != "user").cloned().collect();
        own_messages.sort();
        own_messages.into_iter().map(|(id, _, text)| (id, text)).collect()
    }
}

fn verify(events: &[(Option<String>, Value)]) -> Result<bool, TestCaseError> {
    let mut verifier = Verifier::default();
    for (id, event) in events {
        verifier.check(event).map_err(|e| TestCaseError::fail(format!("{id:?} {event}: {e}")))?;
        prop_assert_eq!(null_member(event), None, "{}", event);
    }
    let places: Vec<Cursor> =
        events.iter().filter_map(|(id, _)| id.as_ref()?.parse().ok()).collect();
    prop_assert!(places.is_sorted_by(|a, b| a < b), "ids grow and never repeat");
    Ok(verifier.is_over())
}

fn event(kind: &str, id: &str, data: Value) -> Payload {
    let whole =
        json!({ "id": id, "timestamp": "2026-01-01T00:00:00Z", "type": kind, "data": data });
    Payload::Event(RawObject::parse(&whole.to_string()).unwrap())
}

fn error(code: &str, severity: ErrorSeverity) -> Payload {
    Payload::Error(
        StreamError::new(code, "It went wrong.", severity).with_detail("retry_after", 7).into(),
    )
}

/// Uses few ids, so that events refer to each other.
fn any_event() -> impl Strategy<Value = Payload> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    let status = prop::sample::select(vec!["running", "complete", "failed"]);
    let tool = prop::sample::select(vec![
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "STATE_SNAPSHOT",
        "STATE_DELTA",
        "ACTIVITY_SNAPSHOT",
        "ACTIVITY_DELTA",
        "RUN_FINISHED",
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
        "RAW",
    ]);
    let native = (tool, name.clone(), any::<bool>()).prop_map(|(kind, name, is_whole)| {
        let mut data = json!({ "toolCallId": name, "toolCallName": "search", "delta": "{}",
        "messageId": name,
            "stepName": name, "content": "42", "snapshot": { "n": 1 }, "activityType": "A",
            "patch": [], "parentMessageId": null });
        match kind {
            "STATE_DELTA" => data["delta"] = json!([{ "op": "add", "path": "/n", "value": 2 }]),
            "ACTIVITY_SNAPSHOT" => data["content"] = json!({ "x": 1 }),
            _ if !is_whole => data = json!({ "toolCallId": 7 }),
            _ => {}
        }
        event(kind, "", data)
    });
    prop_oneof![
        "[a-z\u{2028}é ]{0,6}".prop_map(|thought| event(
            "THOUGHT_TRACE",
            "",
            json!({ "thought": thought })
        )),
        "[a-z ]{0,6}".prop_map(|content| event(
            "MARKDOWN_BLOCK",
            "",
            json!({ "content": content })
        )),
        (name, status).prop_map(|(label, status)| {
            event("PROGRESS_INDICATOR", "", json!({ "label": label, "status": status }))
        }),
        Just(event("CITATION_BLOCK", "", json!({ "citations": [] }))),
        Just(event("MEDIA_CAROUSEL", "", json!({ "items": [] }))),
        Just(event("user_error", "", json!({ "message": "no" }))),
        Just(event("NOVEL", "", json!({ "x": null }))),
        native,
    ]
}

fn any_payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        6 => "[a-z\u{85}\n\"é ]{0,5}".prop_map(Payload::Delta),
        6 => any_event(),
        1 => (0_u64..30).prop_map(|after| event("stream_reset", "", json!({ "attempt": 2,
        "after_seq": after }))),
        1 => Just(error("upstream_timeout", ErrorSeverity::Warning)),
        1 => Just(error("upstream_truncated", ErrorSeverity::Transient)),
    ]
}

fn any_end() -> impl Strategy<Value = Vec<Payload>> {
    let close = |reason: &str| Payload::Close(Close::Reason(reason.into()));
    prop_oneof![
        Just(vec![close("completed")]),
        Just(vec![close("cancelled")]),
        Just(vec![close("error")]),
        Just(vec![error("timeout", ErrorSeverity::Fatal), close("error")]),
        Just(vec![error("timeout", ErrorSeverity::Transient)]),
    ]
}

/// A stream. Every event has its own id, and some are sent again after a reset, as the relay does.
fn any_stream() -> impl Strategy<Value = Vec<Payload>> {
    (prop::collection::vec(any_payload(), 0..25), any_end()).prop_map(|(mut body, end)| {
        for (n, payload) in body.iter_mut().enumerate() {
            if let Payload::Event(raw) = payload {
                let mut whole = Value::Object(raw.to_map());
                whole["id"] = format!("e{n}").into();
                if whole["type"] == "stream_reset" {
                    let after = whole["data"]["after_seq"].as_u64().unwrap().min(n as u64);
                    whole["data"]["after_seq"] = after.into();
                }
                *raw = RawObject::parse(&whole.to_string()).unwrap();
            }
        }
        let mut stream: Vec<Payload> = Vec::new();
        for payload in body {
            let after =
                reset_of(&packet(Uuid::nil(), 1, payload.clone())).map(|reset| reset.after_seq);
            let again = after.map(|after| {
                let dropped = stream.iter().skip(usize::try_from(after).unwrap());
                dropped
                    .filter(|p| matches!(p, Payload::Event(_)))
                    .filter(|p| reset_of(&packet(Uuid::nil(), 1, (*p).clone())).is_none())
            });
            let again: Vec<Payload> = again.into_iter().flatten().cloned().collect();
            stream.push(payload);
            stream.extend(again);
        }
        stream.extend(end);
        stream
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn settings(error_text: bool) -> FaceSettings {
    FaceSettings { agui_error_text: error_text, ..FaceSettings::default() }
}

/// The state of the run of these packets.
fn state_of(payloads: &[Payload]) -> RunState {
    if matches!(payloads.last(), Some(Payload::Close(_))) {
        RunState::Closed
    } else {
        RunState::Waiting
    }
}

proptest! {
    // Every case resumes at each of its events, so few cases are enough.
    #![proptest_config(ProptestConfig { failure_persistence: None,
    cases: ProptestConfig::default().cases / 10, ..ProptestConfig::default() })]

    #[test]
    fn any_packet_sequence_maps_to_a_legal_event_sequence(payloads in any_stream(),
    error_text: bool) {
        runtime().block_on(async {
            let world = World::new(&payloads, settings(error_text)).await;
            let body = world.replay(state_of(&payloads)).await;
            prop_assert!(verify(&events(&body))?, "it ends");
            Ok(())
        })?;
    }

    #[test]
    fn a_resume_at_any_event_continues_byte_by_byte(payloads in any_stream(), error_text: bool) {
        runtime().block_on(async {
            let world = World::new(&payloads, settings(error_text)).await;
            let (state, whole) = (state_of(&payloads), world.replay(state_of(&payloads)).await);
            for (id, event) in events(&whole) {
                let id = id.unwrap();
                let cursor = id.parse::<LastEventId>().unwrap().cursor();
                let resumed = world.serve(Begin::After(cursor), state, 3).await;
                let rest = rest_after(&whole, &id);
                if rest.is_empty() {
                    end_again(&events(&resumed), &event, state)?;
                } else {
                    prop_assert_eq!(resumed.strip_prefix(b":\n").unwrap_or(&resumed), &rest[..],
                    "after {}", id);
                }
                let has_all = AguiWriter::has_all(&world.cx, &world.states, &Run { state,
                ..world.run.clone() }, world.facts(), cursor).await;
                prop_assert_eq!(has_all.unwrap(), rest.is_empty() && state == RunState::Closed);
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_late_joiner_ends_with_the_same_messages(payloads in any_stream(),
    held in 0_usize..60) {
        runtime().block_on(async {
            let world = World::new(&payloads, settings(false)).await;
            let state = state_of(&payloads);
            let whole = events(&world.replay(state).await);
            let joined = world.serve(Begin::Join, state, 5).await;
            let tail = events(&joined);
            prop_assert!(verify(&tail)?, "it ends");
            let partial = Screen::of(&Screen::default(), &whole[..held.min(whole.len())]);
            let (late, early) = (Screen::of(&partial, &tail), Screen::of(&Screen::default(),
            &whole));
            prop_assert_eq!(late.own_messages(), early.own_messages());
            for (id, _) in &tail {
                let id = id.clone().unwrap();
                let cursor = id.parse::<LastEventId>().unwrap().cursor();
                let rest = rest_after(&joined, &id);
                if !rest.is_empty() {
                    let resumed = world.serve(Begin::After(cursor), state, 2).await;
                    prop_assert_eq!(resumed.strip_prefix(b":\n").unwrap_or(&resumed), &rest[..],
                    "after {}", id);
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_client_resumes_at_its_event_after_a_wait(
        before in any_stream(), after in any_stream(), error_text: bool,
    ) {
        let mut payloads = before;
        let is_end = |p: &Payload| match p {
            Payload::Close(_) => true,
            Payload::Error(error) => error.severity == ErrorSeverity::Fatal,
            Payload::Delta(_) | Payload::Event(_) => false,
        };
        payloads.retain(|p| !is_end(p));
        payloads.push(error("run_interrupted", ErrorSeverity::Transient));
        let waits_at = payloads.len() as u64;
        payloads.extend(after.into_iter().filter(|p| reset_of(&packet(Uuid::nil(), 1,
        p.clone())).is_none()));
        runtime().block_on(async {
            let (world, state) = (World::new(&payloads, settings(error_text)).await,
            state_of(&payloads));
            let start = Begin::After(Cursor::start(world.run.stream_id));
            let first = events(&world.serve_upto(waits_at, start, RunState::Waiting, 4).await);
            prop_assert_eq!(&first.last().unwrap().1["type"], "RUN_ERROR");
            // From any event of the end, the reader gets the rest of the end, and only then the
            // reopening.
            for (id, _) in first.iter().rev().take(4).skip(1).filter(|_| error_text) {
                let cursor: Cursor = id.as_ref().unwrap().parse().unwrap();
                if cursor.seq == waits_at {
                    let rest = events(&world.serve(Begin::After(cursor), state, 3).await);
                    prop_assert_eq!(rest.last(), first.last());
                }
            }
            let cursor: Cursor = first.last().unwrap().0.as_ref().unwrap().parse().unwrap();
            let second = world.serve(Begin::After(cursor), state, 3).await;
            let again = events(&second);
            prop_assert_eq!(&again[0].1["type"], "RUN_STARTED");
            prop_assert!(verify(&again)?, "it ends");
            let whole = Screen::of(&Screen::default(), &events(&world.replay(state).await));
            let healed = Screen::of(&Screen::of(&Screen::default(), &first), &again);
            let is_answer = |(id, _): &(String, String)| !id.ends_with(".error");
            let answer = |screen: Screen| -> Vec<_> {
                screen.own_messages().into_iter().filter(is_answer).collect()
            };
            prop_assert_eq!(answer(healed), answer(whole));
            for (id, _) in &again {
                let id = id.clone().unwrap();
                let rest = rest_after(&second, &id);
                if !rest.is_empty() {
                    let resumed = world.serve(Begin::After(id.parse().unwrap()), state, 2).await;
                    prop_assert_eq!(resumed.strip_prefix(b":\n").unwrap_or(&resumed), &rest[..],
                    "after {}", id);
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn the_state_of_the_fold_survives_a_round_trip(payloads in any_stream()) {
        let facts = Facts { stream: Uuid::nil(), thread: "t".into(), run: "r".into(), created: 0,
        is_v1: true, error_text: false };
        let mut transcript = AguiTranscript::new(Arc::new(facts), Default::default());
        for (payload, seq) in payloads.into_iter().zip(1..) {
            transcript.take(&packet(Uuid::nil(), seq, payload));
            let text = serde_json::to_string(&transcript.fold.state).unwrap();
            prop_assert_eq!(&serde_json::from_str::<State>(&text).unwrap(), &transcript.fold.state);
        }
    }
}

/// At the end of a closed run, the last event comes again without an id. A waiting run opens again,
/// and waits.
fn end_again(
    resumed: &[(Option<String>, Value)],
    last: &Value,
    state: RunState,
) -> Result<(), TestCaseError> {
    match state {
        RunState::Closed => prop_assert_eq!(resumed, &[(None, last.clone())]),
        RunState::Waiting | RunState::Running => {
            prop_assert_eq!(&resumed[0].1["type"], "RUN_STARTED");
            let mut verifier = Verifier::default();
            for (_, event) in resumed {
                verifier.check(event).map_err(TestCaseError::fail)?;
            }
            prop_assert!(verifier.is_over());
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_resume_of_a_long_stream_begins_near_its_cursor() {
    let payloads: Vec<Payload> = (0..2000).map(|n| Payload::Delta(format!("{n} "))).collect();
    let world = World::new(&payloads, settings(false)).await;
    let at = |seq| Begin::After(Cursor::with_part(world.run.stream_id, seq, 1));
    let base = async |seq| {
        AguiWriter::open(&world.cx, &world.states, &world.run, world.facts(), at(seq))
            .await
            .unwrap()
            .base()
    };
    assert_eq!(base(1990).await, 0, "nobody has read it in this life");
    world.replay(RunState::Running).await;
    assert!(base(1990).await >= 1985);
}

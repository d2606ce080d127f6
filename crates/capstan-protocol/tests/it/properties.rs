//! What holds for any packet, any bytes and any cuts between them.

use std::sync::LazyLock;

use crate::any;
use crate::any::rules::Reading;
use capstan_protocol::agui::{AguiEvent, RunAgentInput};
use capstan_protocol::assistant::{Assembler, Frame, Line};
use capstan_protocol::sse::{self, Decoder};
use capstan_protocol::{
    Close, Cursor, ErrorSeverity, Event, LastEventId, Payload, Profile, RawObject, StreamPacket,
    Timestamp, model, v2,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;

const LINE_SEPARATORS: [char; 5] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];

/// Equal timestamps may still be written in different offsets, and those must survive, too.
fn assert_same(a: &StreamPacket, b: &StreamPacket) {
    assert_eq!(a, b);
    assert_eq!(a.t.to_string(), b.t.to_string());
}

/// What the decoder reads from these pieces, or nothing if it gave up.
fn read(pieces: &[&[u8]], limit: usize) -> Option<Reading> {
    let mut decoder = Decoder::with_limit(limit);
    let mut reading = Reading::default();
    for piece in pieces {
        decoder.push(piece);
        while let Some(frame) = decoder.next_frame() {
            let frame = frame.ok()?;
            let (event, data) = (frame.event.into_owned(), frame.data.into_owned());
            reading.events.push((event, data, decoder.last_event_id().map(str::to_owned)));
        }
    }
    reading.id = decoder.last_event_id().map(str::to_owned);
    reading.retry = decoder.retry();
    Some(reading)
}

proptest! {
    #[test]
    fn any_split_of_the_bytes_decodes_to_the_same_packets(
        packets in vec(any::packet(), 1..5),
        places in vec(any::<Index>(), 0..8),
    ) {
        let mut bytes = Vec::new();
        sse::encode_opening(&Cursor::start(packets[0].stream_id), 500, &mut bytes);
        for packet in &packets {
            sse::encode_packet(packet, &mut bytes);
            bytes.extend_from_slice(sse::HEARTBEAT);
        }
        let events = read(&any::cut(&bytes, &places), usize::MAX).unwrap().events;
        prop_assert_eq!(events.len(), packets.len());
        for ((event, data, id), packet) in events.iter().zip(&packets) {
            prop_assert_eq!(event, sse::EVENT_NAME);
            prop_assert_eq!(id.as_ref().unwrap().parse(), Ok(packet.cursor()));
            assert_same(&StreamPacket::decode(data).unwrap(), packet);
        }
    }

    #[test]
    fn any_bytes_read_as_the_rules_say_however_they_are_cut(
        soup in any::soup(),
        places in vec(any::<Index>(), 0..8),
    ) {
        let plain = Some(any::rules::read(&soup));
        prop_assert_eq!(&read(&[&soup], usize::MAX), &plain);
        prop_assert_eq!(&read(&any::cut(&soup, &places), usize::MAX), &plain);
        prop_assert_eq!(&read(&soup.chunks(1).collect::<Vec<_>>(), usize::MAX), &plain);
    }

    #[test]
    fn a_limit_is_met_or_broken_however_the_bytes_are_cut(
        soup in any::soup(),
        places in vec(any::<Index>(), 0..8),
        limit in 0..64_usize,
    ) {
        let whole = read(&[&soup], limit);
        prop_assert_eq!(&read(&any::cut(&soup, &places), limit), &whole);
        prop_assert_eq!(&read(&soup.chunks(1).collect::<Vec<_>>(), limit), &whole);
    }

    #[test]
    fn any_packet_survives_encoding(packet in any::packet()) {
        let text = packet.to_json();
        assert_same(&StreamPacket::decode(&text).unwrap(), &packet);
        prop_assert_eq!(&serde_json::to_string(&packet).unwrap(), &text);
        assert_same(&serde_json::from_str(&text).unwrap(), &packet);
    }

    #[test]
    fn an_encoded_packet_is_its_own_canonical_form(packet in any::packet()) {
        let text = packet.to_json();
        prop_assert_eq!(&StreamPacket::decode(&text).unwrap().to_json(), &text);
        prop_assert_eq!(model::find(Profile::V1, "StreamPacket").unwrap().canonical(&text),
        Ok(text));
    }

    #[test]
    fn a_data_line_holds_nothing_that_any_reader_takes_for_a_line_end(packet in any::packet()) {
        for encode in [sse::encode_packet, sse::encode_packet_v2] {
            let mut out = Vec::new();
            encode(&packet, &mut out);
            let text = String::from_utf8(out).unwrap();
            let data = text.split_once("\ndata: ").unwrap().1.strip_suffix("\n\n").unwrap();
            prop_assert!(!data.contains(LINE_SEPARATORS), "{:?}", data);
        }
    }

    #[test]
    fn cursors_print_and_parse(id in any::id(), seq in any::seq(), part in any::<Option<u32>>()) {
        let cursor = Cursor { stream_id: id, seq, part };
        prop_assert_eq!(cursor.to_string().parse(), Ok(cursor));
        prop_assert_eq!(cursor.to_string().parse(), Ok(LastEventId::At(cursor)));
        prop_assert_eq!(id.to_string().parse(), Ok(LastEventId::Whole(id)));
    }

    #[test]
    fn text_that_parses_as_a_cursor_prints_as_the_same_place(
        text in "[0-9a-fA-F]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:[0-9+.-]{0,22}",
    ) {
        if let Ok(cursor) = text.parse::<Cursor>() {
            prop_assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
    }

    #[test]
    fn timestamps_print_and_parse(t in any::timestamp()) {
        let again = Timestamp::parse(&t.to_string()).unwrap();
        prop_assert_eq!((again, again.to_string()), (t, t.to_string()));
        prop_assert_eq!(again.as_micros(), t.as_micros());
        prop_assert_eq!(t.as_millis(), t.as_micros().div_euclid(1000));
    }

    #[test]
    fn timestamps_are_ordered_as_their_moments(a in any::timestamp(), b in any::timestamp()) {
        prop_assert_eq!(a.cmp(&b), a.as_micros().cmp(&b.as_micros()));
    }
}

#[test]
fn timestamps_reach_from_the_first_to_the_last_microsecond() {
    for (micros, text) in [
        (i64::MIN, "0001-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (i64::MAX, "9999-12-31T23:59:59.999999Z"),
    ] {
        assert_eq!(Timestamp::from_micros(micros).to_string(), text);
        assert_eq!(Timestamp::parse(text), Some(Timestamp::from_micros(micros)));
    }
}

/// The short cut may only say what the strict path says, down to the spelling.
fn assert_paths_agree(text: &str) {
    let (fast, strict) = (StreamPacket::decode(text), StreamPacket::decode_strict(text));
    assert_eq!(format!("{fast:?}"), format!("{strict:?}"), "on {text:?}");
}

proptest! {
    #[test]
    fn the_short_cut_agrees_with_the_strict_path(packet in any::packet()) {
        assert_paths_agree(&packet.to_json());
    }

    #[test]
    fn the_short_cut_agrees_with_the_strict_path_on_damaged_packets(
        packet in any::packet(),
        damages in vec(vec(any::slip(), 1..4), 8),
    ) {
        for slips in damages {
            assert_paths_agree(&any::damaged(&packet.to_json(), &slips));
        }
    }
}

const ID: &str = r#""7c9e6679-7425-40de-944b-e07fc1f90ae7""#;
const T: &str = r#""2026-02-03T10:15:37Z""#;

fn wire(id: &str, seq: &str, op: &str, t: &str, p: &str) -> String {
    format!(r#"{{"stream_id":{id},"seq":{seq},"op":{op},"t":{t},"p":{p}}}"#)
}

/// Payloads that belong to one op, to another, or to none.
#[rustfmt::skip]
const PAYLOADS: [&str; 37] = [
    r#""""#, r#""x""#, r#" "x""#, r#""x" "#, r#"""""#, r#"""#, r#""\""#, r#""\\""#, r#""\"""#,
    r#""x","p":"y""#,
    "\"\u{1}\"", "\"\u{7f}\"", "\"\u{2028}\"", r#""\ud800""#, r#""\udc00\ud800""#,
    r#""\ud83d\udc0e""#, r#""\u00""#,
    r#""\x""#, "null", "1", "[]", "{}", "{ }", " {}", "{}}", "{\n}", "{\"a\":\"\n\"}",
    "{\"a\":1,\"a\":2}",
    "{\"a\":\"\\ud800\"}", "{\"a\":1e999}", "{\"a\":01}", r#"["c","m","FATAL",null]"#,
    r#"{"code":"c","message":"m","severity":"FATAL"}"#,
    r#"{"code":"c","message":"m","severity":"fatal"}"#,
    r#"{"code":"c","code":"c","message":"m","severity":"FATAL"}"#,
    r#"{"code":"c","message":"m","severity":"FATAL","more":1}"#,
    r#"{"code":"c","message":"m","severity":"FATAL","details":[["a",1]]}"#,
];

#[test]
fn the_short_cut_agrees_with_the_strict_path_on_every_payload_under_every_op() {
    for op in [
        "DELTA",
        "EVENT",
        "ERROR",
        "CLOSE",
        "delta",
        "OTHER",
        "\\u0044ELTA",
        "",
        "DELTA\",\"x\":\"",
    ] {
        for p in PAYLOADS {
            assert_paths_agree(&wire(ID, "1", &format!("\"{op}\""), T, p));
        }
    }
}

#[test]
fn the_short_cut_agrees_with_the_strict_path_on_payloads_nested_to_the_limit() {
    for depth in 120..135 {
        let nested = format!("{}{}", "{\"a\":".repeat(depth) + "1", "}".repeat(depth));
        let error =
            format!(r#"{{"code":"c","message":"m","severity":"FATAL","details":{nested}}}"#);
        for (op, p) in [("\"EVENT\"", &nested), ("\"CLOSE\"", &nested), ("\"ERROR\"", &error)] {
            assert_paths_agree(&wire(ID, "1", op, T, p));
        }
    }
}

#[test]
#[rustfmt::skip]
fn the_short_cut_agrees_with_the_strict_path_on_odd_members() {
    for seq in [
        "0", "00", "01", "-0", "-1", "+1", "1.0", "1e0", " 1", "1 ", "\"1\"", "null", "", "1_000",
        "999999999999999999",
        "1000000000000000000", "18446744073709551615", "18446744073709551616",
        "99999999999999999999999999",
    ] {
        assert_paths_agree(&wire(ID, seq, "\"DELTA\"", T, "\"x\""));
    }
    for id in [
        "7C9E6679-7425-40DE-944B-E07FC1F90AE7", "7c9e6679742540de944be07fc1f90ae7",
        "{7c9e6679-7425-40de-944b-e07fc1f90ae7}",
        "urn:uuid:7c9e6679-7425-40de-944b-e07fc1f90ae7", "7c9e6679-7425-40de-944b-e07fc1f90ae",
        "7c9e6679-7425-40de-944b-e07fc1f90aeg", "7c9e667-97425-40de-944b-e07fc1f90ae7",
        "7c9e6679-7425-40de-944b-e07fc1f90a\\u0065", "7c9e6679-7425-40de-944b-e07fc1f90é", "",
    ] {
        assert_paths_agree(&wire(&format!("\"{id}\""), "1", "\"DELTA\"", T, "\"x\""));
    }
    for t in [
        "2026-02-03T10:15:37z", "2026-02-03t10:15:37Z", "2026-02-03 10:15:37Z",
        "2026-02-03T10:15:37",
        "2026-02-30T10:15:37Z", "2024-02-29T10:15:37Z", "2026-02-03T10:15:60Z",
        "2026-02-03T24:00:00Z",
        "2026-02-03T10:15:37.Z", "2026-02-03T10:15:37.5Z", "2026-02-03T10:15:37.123456789Z",
        "2026-02-03T10:15:37.1234567891Z", "2026-02-03T10:15:37+23:59", "2026-02-03T10:15:37-24:00",
        "0001-01-01T00:00:00+23:59", "0000-01-01T00:00:00Z", "2026-02-03T10:15:37\\u005a", "",
    ] {
        assert_paths_agree(&wire(ID, "1", "\"DELTA\"", &format!("\"{t}\""), "\"x\""));
    }
}

#[test]
fn the_short_cut_agrees_with_the_strict_path_on_other_layouts() {
    let plain = wire(ID, "1", "\"DELTA\"", T, "\"x\"");
    let members: Vec<&str> = plain.trim_matches(['{', '}']).split(',').collect();
    for at in 0..members.len() {
        let (mut moved, mut doubled, mut missing) =
            (members.clone(), members.clone(), members.clone());
        moved.rotate_left(at);
        doubled.insert(at, members[at]);
        missing.remove(at);
        for layout in [moved, doubled, missing] {
            assert_paths_agree(&format!("{{{}}}", layout.join(",")));
            assert_paths_agree(&format!("{{{},\"more\":1}}", layout.join(",")));
        }
    }
}

#[test]
fn the_short_cut_agrees_with_the_strict_path_wherever_something_is_cut_off_or_slipped_in() {
    for (op, p) in [("\"DELTA\"", "\"x\""), ("\"EVENT\"", "{\"a\":[1]}"), ("\"CLOSE\"", "{}")] {
        let plain = wire(ID, "1", op, T, p);
        for at in 0..=plain.len() {
            assert_paths_agree(&plain[..at]);
            for scrap in any::SCRAPS {
                assert_paths_agree(&format!("{}{scrap}{}", &plain[..at], &plain[at..]));
            }
        }
    }
}

/// Hands bytes to everything that reads what strangers send.
fn decode_everything(bytes: &[u8]) {
    let mut decoder = Decoder::with_limit(4096);
    let mut assembler = Assembler::new();
    decoder.push(bytes);
    while let Some(Ok(frame)) = decoder.next_frame() {
        decode_text(&frame.data, &mut assembler);
    }
    for line in bytes.split(|byte| *byte == b'\n') {
        decode_text(&String::from_utf8_lossy(line), &mut assembler);
    }
    let _ = assembler.finish().error();
    let _ = serde_json::from_slice::<AguiEvent>(bytes)
        .map(|event| serde_json::to_string(&event).unwrap());
    let _ = serde_json::from_slice::<RunAgentInput>(bytes)
        .map(|input| serde_json::to_string(&input).unwrap());
}

fn decode_text(text: &str, assembler: &mut Assembler) {
    if let Ok(packet) = StreamPacket::decode(text) {
        let _ = (packet.to_json(), packet.to_v2_json());
        if let Payload::Event(raw) = &packet.payload {
            let _ = Event::of(raw).view();
        }
    }
    let _ = v2::StreamPacket::decode(text);
    let _ = (text.parse::<LastEventId>(), Timestamp::parse(text));
    if let Ok(Line::Object(object)) = Line::decode(text)
        && let Ok(frame) = Frame::from_object(&object)
    {
        let _ = frame.class();
        assembler.push(&frame);
    }
}

/// Real documents of every kind to start from.
static DOCUMENTS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let files =
        ["cap/models.jsonl", "claude/frames.jsonl", "agui/events.jsonl", "agui/inputs.jsonl"];
    let cases = files.into_iter().flat_map(crate::common::vectors);
    cases.map(|case| case.get("input").unwrap_or(&case["event"]).clone()).collect()
});

fn near_document() -> impl Strategy<Value = Value> {
    let other = prop_oneof![any::json(), any::<Index>().prop_map(|at| at.get(&DOCUMENTS).clone())];
    (any::<Index>(), vec(any::<Index>(), 0..4), other).prop_map(|(at, places, other)| {
        let mut document = at.get(&DOCUMENTS).clone();
        any::replace(&mut document, &places, other);
        document
    })
}

/// What a model writes it must read again, and write the same.
fn check_models(text: &str) {
    for model in model::MODELS {
        if let Ok(canonical) = model.canonical(text) {
            assert_eq!(
                model.canonical(&canonical).as_ref(),
                Ok(&canonical),
                "{} {}",
                model.profile,
                model.name
            );
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused_without_a_panic(bytes in vec(any::<u8>(), 0..256),
    soup in any::soup()) {
        decode_everything(&bytes);
        decode_everything(&soup);
    }

    #[test]
    fn scraps_of_json_are_decoded_or_refused_without_a_panic(
        scraps in vec(select(any::SCRAPS.to_vec()), 0..30),
    ) {
        decode_everything(scraps.concat().as_bytes());
    }

    #[test]
    fn nearly_right_documents_are_decoded_or_refused_without_a_panic(
        document in near_document(),
        slips in vec(any::slip(), 0..3),
    ) {
        decode_everything(any::damaged(&document.to_string(), &slips).as_bytes());
    }

    #[test]
    fn any_json_is_refused_by_a_model_or_has_a_canonical_form(value in any::json(),
    near in near_document()) {
        check_models(&value.to_string());
        check_models(&near.to_string());
    }

    #[test]
    fn what_is_written_for_v2_is_read_as_v2(packet in any::packet()) {
        let text = packet.to_v2_json();
        let read = v2::StreamPacket::decode(&text).unwrap();
        prop_assert_eq!((read.stream_id, read.seq, read.t), (Some(packet.stream_id),
        Some(packet.seq), Some(packet.t)));
        prop_assert!(model::find(Profile::V2, "StreamPacket").unwrap().canonical(&text).is_ok());
        match &packet.payload {
            Payload::Error(e) if e.severity == ErrorSeverity::Warning => {
                prop_assert!(matches!(&read.payload, Payload::Event(_)), "v2 knows no warning");
            }
            // Types and members are spelled otherwise there.
            Payload::Event(_) => prop_assert!(matches!(&read.payload, Payload::Event(_))),
            same @ (Payload::Delta(_) | Payload::Error(_) | Payload::Close(_)) => {
                prop_assert_eq!(&read.payload, same);
            }
        }
    }

    #[test]
    fn data_for_v2_never_looks_like_another_block(packet in any::packet()) {
        let value: Value = serde_json::from_str(&packet.to_v2_json()).unwrap();
        let has = |name: &str| value["p"]["data"].get(name).is_some();
        if matches!(value["p"]["type"].as_str(), Some("user_error" | "thought_trace")) {
            let looks_like_another =
                has("content") || has("items") || has("label") && has("status");
            prop_assert!(!looks_like_another, "{}", value);
        }
    }
}

/// Objects that the tree of values cannot hold, or only at the edge: no double is that large, no
/// `u64` that long.
fn extreme_objects() -> [String; 3] {
    let deep = "{\"a\":".repeat(127) + "{}" + &"}".repeat(127);
    [r#"{"a":1e999}"#.into(), r#"{"a":123456789012345678901234567890}"#.into(), deep]
}

fn of(payload: Payload) -> StreamPacket {
    StreamPacket { stream_id: uuid::Uuid::nil(), seq: 1, t: Timestamp::from_micros(0), payload }
}

#[test]
fn what_no_tree_of_values_can_hold_reaches_v2_as_it_is() {
    for text in extreme_objects() {
        let object = RawObject::parse(&text).unwrap();
        for payload in [Payload::Event(object.clone()), Payload::Close(Close::Report(object))] {
            let read = v2::StreamPacket::decode(&of(payload.clone()).to_v2_json()).unwrap();
            assert_eq!(format!("{:?}", read.payload), format!("{payload:?}"));
        }
    }
}

#[test]
fn objects_that_no_tree_of_values_can_hold_are_equal_only_if_their_text_is() {
    let parse = |text: &str| RawObject::parse(text).unwrap();
    assert_ne!(parse(r#"{"a":1e999}"#), parse(r#"{"b":1e999}"#));
    assert_ne!(parse(r#"{"a":1e999}"#), parse("{}"));
    assert_eq!(parse(r#"{"a":1e999}"#), parse(r#"{"a":1e999}"#));
    assert_eq!(parse(r#"{"a":1,"b":2}"#), parse(r#"{ "b": 2, "a": 1 }"#));
    let [.., deep] = extreme_objects();
    assert!(!parse(&deep).to_map().is_empty());
}

#[test]
fn an_unstated_close_is_null_in_v2_and_completed_in_v1() {
    let packet = of(Payload::Close(Close::Unstated));
    let read = v2::StreamPacket::decode(&packet.to_v2_json()).unwrap();
    assert_eq!(read.payload, packet.payload);
    let read = StreamPacket::decode(&packet.to_json()).unwrap();
    assert_eq!(read.payload, Payload::Close(Close::Reason(Close::COMPLETED.into())));
}

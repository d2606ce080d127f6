//! Server-sent events are read by the WHATWG rules however the bytes arrive, and ours are written
//! so that all can.
//!
//! Every case is read whole, byte by byte and cut in two at every place, and `sse-stream` gives a
//! second opinion.

use std::convert::Infallible;
use std::time::Duration;

use capstan_protocol::sse::{self, Decoder, FrameTooLarge};
use capstan_protocol::{Close, Cursor, Payload, StreamPacket, Timestamp, v2};
use futures_util::{FutureExt as _, TryStreamExt as _};
use sse_stream::{Sse, SseByteStream};
use uuid::Uuid;

const BOM: &str = "\u{feff}";

/// An event, and the last id at the moment it was dispatched.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Event {
    name: String,
    data: String,
    id: Option<String>,
}

/// What a reader has when the body ends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Reading {
    events: Vec<Event>,
    id: Option<String>,
    retry: Option<u64>,
}

impl Reading {
    fn data(&self) -> Vec<&str> {
        self.events.iter().map(|event| event.data.as_str()).collect()
    }

    fn names(&self) -> Vec<&str> {
        self.events.iter().map(|event| event.name.as_str()).collect()
    }

    fn ids(&self) -> Vec<Option<&str>> {
        self.events.iter().map(|event| event.id.as_deref()).collect()
    }
}

fn read_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Reading {
    let mut decoder = Decoder::new();
    let mut events = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        while let Some(frame) = decoder.next_frame() {
            let frame = frame.unwrap();
            let (name, data) = (frame.event.into_owned(), frame.data.into_owned());
            events.push(Event { name, data, id: decoder.last_event_id().map(str::to_owned) });
        }
    }
    let retry = decoder.retry().map(|wait| u64::try_from(wait.as_millis()).unwrap());
    Reading { events, id: decoder.last_event_id().map(str::to_owned), retry }
}

/// Reads the bytes in every way that the cuts between pieces can fall, which must make no
/// difference.
fn read_every_way(bytes: &[u8]) -> Reading {
    let whole = read_pieces([bytes]);
    assert_eq!(read_pieces(bytes.chunks(1)), whole, "bytewise: {}", bytes.escape_ascii());
    for at in 0..=bytes.len() {
        let (head, tail) = bytes.split_at(at);
        assert_eq!(read_pieces([head, tail]), whole, "cut at {at}: {}", bytes.escape_ascii());
    }
    whole
}

/// `sse-stream` hands out raw blocks; ids stick and names default here, as the rules have it.
fn second_opinion(bytes: &[u8]) -> Reading {
    let body = futures_util::stream::iter([Ok::<_, Infallible>(bytes)]);
    let blocks: Vec<Sse> = SseByteStream::new(body).try_collect().now_or_never().unwrap().unwrap();
    let mut reading = Reading::default();
    for block in blocks {
        reading.id = block.id.or(reading.id);
        reading.retry = block.retry.or(reading.retry);
        let name =
            block.event.filter(|name| !name.is_empty()).unwrap_or_else(|| "message".to_owned());
        let id = reading.id.clone();
        reading.events.extend(block.data.map(|data| Event { name, data, id }));
    }
    reading
}

/// Reads text in every way and with every line end, and asks for the second opinion.
fn read(text: &str) -> Reading {
    let reading = read_every_way(text.as_bytes());
    assert_eq!(second_opinion(text.as_bytes()), reading, "second opinion on {text:?}");
    for end in ["\r", "\r\n"] {
        let other = text.replace('\n', end);
        assert_eq!(read_every_way(other.as_bytes()), reading, "{other:?}");
    }
    reading
}

#[test]
fn a_frame_has_a_name_and_data() {
    let reading = read("event: greeting\ndata: hello\n\n");
    assert_eq!((reading.names(), reading.data()), (vec!["greeting"], vec!["hello"]));
}

#[test]
fn a_frame_without_a_name_or_with_an_empty_one_is_a_message() {
    for text in ["data: x\n\n", "event:\ndata: x\n\n", "event: a\nevent\ndata: x\n\n"] {
        assert_eq!(read(text).names(), ["message"], "{text:?}");
    }
}

#[test]
fn the_last_name_of_a_frame_counts_and_ends_with_it() {
    let reading = read("event: a\nevent: b\ndata: 1\n\ndata: 2\n\n");
    assert_eq!(reading.names(), ["b", "message"]);
}

#[test]
fn a_frame_without_data_is_no_event_and_its_name_is_forgotten() {
    assert_eq!(read("event: a\n\ndata: x\n\n").names(), ["message"]);
    assert_eq!(read("\n\n\n"), Reading::default());
}

#[test]
fn a_byte_order_mark_before_the_stream_is_not_part_of_it() {
    for rest in ["data: x\n\n", ":\ndata: x\n\n", "\ndata: x\n\n"] {
        assert_eq!(read(&format!("{BOM}{rest}")).data(), ["x"], "{rest:?}");
    }
    assert_eq!(read(BOM), Reading::default());
}

#[test]
fn a_byte_order_mark_anywhere_else_is_content() {
    assert_eq!(read(&format!("data: a\n\n{BOM}data: lost\n\ndata: b\n\n")).data(), ["a", "b"]);
    assert_eq!(read(&format!("{BOM}{BOM}data: lost\n\ndata: b\n\n")).data(), ["b"]);
    assert_eq!(read(&format!("data: {BOM}a\n\n")).data(), [format!("{BOM}a")]);
}

#[test]
fn half_a_byte_order_mark_is_content() {
    assert_eq!(read_every_way(b"\xEF\xBBdata: lost\n\ndata: b\n\n").data(), ["b"]);
    assert_eq!(read_every_way(b"\xEFdata: lost\n\ndata: b\n\n").data(), ["b"]);
}

/// Every way to end these lines; a CR right before an LF would be one line end instead of two.
fn line_end_mixtures(lines: &[&str]) -> Vec<String> {
    let mut texts = vec![String::new()];
    for line in lines {
        let grown = texts
            .iter()
            .flat_map(|text| ["\n", "\r", "\r\n"].map(|end| format!("{text}|{line}{end}")));
        texts = grown.collect();
    }
    texts.retain(|text| !text.contains("\r|\n"));
    texts.into_iter().map(|text| text.replace('|', "")).collect()
}

#[test]
fn every_mixture_of_line_ends_reads_the_same() {
    let mixtures = line_end_mixtures(&["data: a", "data: b", "", "id: 7", "data: c", ""]);
    assert!(mixtures.len() > 500);
    for text in mixtures {
        let reading = read_every_way(text.as_bytes());
        assert_eq!(reading.data(), ["a\nb", "c"], "{text:?}");
        assert_eq!(reading, second_opinion(text.as_bytes()), "{text:?}");
    }
}

#[test]
fn a_cr_and_an_lf_are_one_line_end_even_where_a_frame_ends_between_them() {
    let reading = read_every_way(b"data: a\r\r\ndata: b\r\n\rdata: c\n\r\n");
    assert_eq!(reading.data(), ["a", "b", "c"]);
    assert_eq!(read_every_way(b"data: a\r\n").data(), [""; 0], "one line end does not end a frame");
}

#[test]
fn other_line_separators_of_unicode_end_no_line() {
    let text = "data: a\u{85}b\u{2028}c\u{2029}d\u{b}e\u{c}f\n\n";
    assert_eq!(read(text).data(), ["a\u{85}b\u{2028}c\u{2029}d\u{b}e\u{c}f"]);
}

#[test]
fn data_lines_are_joined_by_lf_and_empty_ones_count() {
    assert_eq!(read("data: a\ndata: b\ndata: c\n\n").data(), ["a\nb\nc"]);
    assert_eq!(read("data: a\ndata:\ndata\ndata: b\ndata\n\n").data(), ["a\n\n\nb\n"]);
    assert_eq!(read("data: a\nevent: n\n: why\ndata: b\nid: 1\ndata: c\n\n").data(), ["a\nb\nc"]);
}

#[test]
fn joined_data_of_one_frame_does_not_leak_into_the_next() {
    assert_eq!(
        read("data: a\ndata: b\n\ndata: c\n\ndata: d\ndata: e\n\n").data(),
        ["a\nb", "c", "d\ne"]
    );
}

#[test]
fn one_empty_data_line_is_an_event_with_the_empty_string() {
    for text in ["data\n\n", "data:\n\n", "data: \n\n"] {
        assert_eq!(read(text).data(), [""], "{text:?}");
    }
    assert_eq!(read("data\ndata\n\n").data(), ["\n"]);
}

#[test]
fn only_one_blank_after_the_colon_is_removed() {
    for (text, data) in [
        ("data:x", "x"),
        ("data: x", "x"),
        ("data:  x ", " x "),
        ("data:\tx", "\tx"),
        ("data: a: b:", "a: b:"),
    ] {
        assert_eq!(read(&format!("{text}\n\n")).data(), [data], "{text:?}");
    }
    assert_eq!(read("event:  a\nid:  7\ndata\n\n").events[0].name, " a");
    assert_eq!(read("event:  a\nid:  7\ndata\n\n").id.as_deref(), Some(" 7"));
}

#[test]
fn field_names_are_matched_exactly_and_unknown_ones_are_ignored() {
    for field in
        ["Data: y", "DATA: y", "dat: y", "datax: y", " data: y", "data : y", "foo", "foo: y"]
    {
        assert_eq!(
            read(&format!("{field}\ndata: x\n{field}\n\n{field}\n\n")).data(),
            ["x"],
            "{field:?}"
        );
    }
    assert_eq!(read("Event: y\nID: 7\nRetry: 9\ndata: x\n\n"), read("data: x\n\n"));
}

#[test]
fn comments_say_nothing_wherever_they_stand() {
    let reading = read(": a\n:\n:data: b\ndata: x\n: c\ndata: y\n::\n\n: d\n\n");
    assert_eq!(reading.data(), ["x\ny"]);
}

#[test]
fn a_heartbeat_neither_makes_an_event_nor_breaks_one() {
    assert_eq!(sse::HEARTBEAT, b":\n");
    let reading = read(":\n:\ndata: x\n:\ndata: y\n\n:\n");
    assert_eq!(reading.data(), ["x\ny"]);
    let mut decoder = Decoder::new();
    decoder.push(sse::HEARTBEAT);
    assert!(decoder.next_frame().is_none());
    assert!(!decoder.is_mid_frame(), "a body that ends after a heartbeat cuts nothing off");
}

#[test]
fn an_id_sticks_until_the_next_one() {
    let reading = read("data: a\n\nid: 1\ndata: b\n\ndata: c\n\nid: 2\nid: 3\ndata: d\n\n");
    assert_eq!(reading.ids(), [None, Some("1"), Some("1"), Some("3")]);
}

#[test]
fn an_id_alone_moves_the_cursor_without_an_event() {
    let reading = read("id: 1\ndata: a\n\nid: 2\n\n");
    assert_eq!((reading.data(), reading.id.as_deref()), (vec!["a"], Some("2")));
    assert_eq!(read("id: 2\n\ndata: a\n\n").ids(), [Some("2")]);
}

#[test]
fn an_id_takes_effect_only_at_the_end_of_its_frame() {
    assert_eq!(read("id: 1\n\nid: 2\n").id.as_deref(), Some("1"));
    assert_eq!(read("id: 1\n\nid: 2\ndata: cut\n").id.as_deref(), Some("1"));
}

#[test]
fn an_empty_id_resets_the_last_one() {
    for field in ["id", "id:", "id: "] {
        let reading = read(&format!("id: 1\ndata: a\n\n{field}\ndata: b\n\n"));
        assert_eq!(reading.ids(), [Some("1"), Some("")], "{field:?}");
    }
}

#[test]
fn an_id_with_a_nul_is_ignored() {
    assert_eq!(read("id: 1\nid: a\0b\ndata: x\n\n").ids(), [Some("1")]);
    assert_eq!(read("id: 1\n\nid: \0\n\ndata: x\n\n").ids(), [Some("1")]);
    assert_eq!(read("id: \0\ndata: x\0y\n\n").data(), ["x\0y"], "NUL matters in ids only");
}

#[test]
fn a_retry_of_digits_sets_the_wait_at_once() {
    // The second opinion waits for the blank line; the rules do not.
    assert_eq!(read_every_way(b"retry: 500\n").retry, Some(500));
    assert_eq!(read("retry: 500\nretry:0\n\n").retry, Some(0));
    assert_eq!(read("retry: 007\n\n").retry, Some(7));
    let mut decoder = Decoder::new();
    decoder.push(b"retry: 1500\n");
    assert!(decoder.next_frame().is_none());
    assert_eq!(decoder.retry(), Some(Duration::from_millis(1500)));
}

#[test]
fn a_retry_of_anything_but_digits_is_ignored() {
    for value in [
        "+5",
        "-5",
        "5x",
        "x",
        "",
        " 5",
        "5 ",
        "5.0",
        "0x5",
        "1e3",
        "\u{665}",
        "99999999999999999999999",
    ] {
        assert_eq!(read(&format!("retry: {value}\n\n")).retry, None, "{value:?}");
        assert_eq!(read(&format!("retry: 9\nretry: {value}\n\n")).retry, Some(9), "{value:?}");
    }
}

#[test]
fn a_frame_that_the_end_cuts_off_is_dropped() {
    for cut in ["d", "data", "data: b", "data: b\n", "data: b\nevent: c", "event: c\n"] {
        assert_eq!(read(&format!("data: a\n\n{cut}")).data(), ["a"], "{cut:?}");
    }
}

#[test]
fn a_reader_knows_whether_the_end_cuts_a_frame_off() {
    for (text, is_cut) in [
        ("", false),
        ("data: a\n\n", false),
        ("data: a\r\n\r\n", false),
        ("data: a\n\n:\n", false),
        ("data: a\n\nd", true),
        ("data: a\n\ndata: b", true),
        ("data: a\n\ndata: b\n", true),
        ("data: a\n\nevent: b\n", true),
    ] {
        let mut decoder = Decoder::new();
        decoder.push(text.as_bytes());
        while decoder.next_frame().is_some() {}
        assert_eq!(decoder.is_mid_frame(), is_cut, "{text:?}");
    }
}

#[test]
fn bytes_that_are_not_utf8_become_replacement_characters() {
    for (bytes, data) in [
        (&b"data: a\xFFb\n\n"[..], "a\u{fffd}b"),
        (b"data: \xE2\x82\n\n", "\u{fffd}"),
        (b"data: \xF0\x9F\x90x\n\n", "\u{fffd}x"),
        (b"data: \xC0\x80\n\n", "\u{fffd}\u{fffd}"),
        (b"data: \xED\xA0\x80\n\n", "\u{fffd}\u{fffd}\u{fffd}"),
        (b"data: \xE2\ndata: \x82\xAC\n\n", "\u{fffd}\n\u{fffd}\u{fffd}"),
    ] {
        assert_eq!(read_every_way(bytes).data(), [data], "{}", bytes.escape_ascii());
    }
    let reading = read_every_way(b"event: \xFF\nid: \xFE\ndata: x\n\n");
    assert_eq!((reading.names(), reading.ids()), (vec!["\u{fffd}"], vec![Some("\u{fffd}")]));
}

#[test]
fn characters_cut_between_pieces_stay_whole() {
    assert_eq!(read("event: ñ\nid: €\ndata: 🐎\ndata: é\n\n").data(), ["🐎\né"]);
}

/// The frames that a reader with a limit gets, and whether it gave up.
fn read_within(limit: usize, pieces: &[&[u8]]) -> Result<usize, FrameTooLarge> {
    let mut decoder = Decoder::with_limit(limit);
    let mut frames = 0;
    for piece in pieces {
        decoder.push(piece);
        while let Some(frame) = decoder.next_frame() {
            frame?;
            frames += 1;
        }
    }
    Ok(frames)
}

#[test]
fn a_frame_above_the_limit_is_refused_and_nothing_is_read_on() {
    let mut decoder = Decoder::with_limit(16);
    decoder.push(b"data: ok\n\ndata: far too much of it\n\ndata: ok\n\n");
    assert_eq!(decoder.next_frame().unwrap().unwrap().data, "ok");
    for _ in 0..3 {
        assert_eq!(decoder.next_frame(), Some(Err(FrameTooLarge { limit: 16 })));
        decoder.push(b"\n\ndata: ok\n\n");
    }
}

#[test]
fn a_line_above_the_limit_is_refused_before_it_ends() {
    let refused = Err(FrameTooLarge { limit: 64 });
    assert_eq!(read_within(64, &[b"data: ", &[b'x'; 64]]), refused);
    assert_eq!(read_within(64, &[b":", &[b'x'; 64]]), refused, "a comment takes memory, too");
}

#[test]
fn many_short_lines_count_together() {
    let lines = "data: x\n".repeat(9);
    assert_eq!(read_within(64, &[lines.as_bytes()]), Err(FrameTooLarge { limit: 64 }));
    assert_eq!(
        read_within(64, &[&b"data: x\n\n"[..]; 100]),
        Ok(100),
        "but only those of one frame"
    );
    assert_eq!(read_within(64, &["data: x\n\n".repeat(100).as_bytes()]), Ok(100));
}

#[test]
fn a_frame_of_exactly_the_limit_is_read_however_it_is_cut() {
    for text in ["data: 1234\n\n", "data: 1234\r\r", "data: 1234\r\n\r\n", ":\n:\ndata: 1234\n\n"] {
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(
            (read_within(10, &[text.as_bytes()]), read_within(10, &pieces)),
            (Ok(1), Ok(1)),
            "{text:?}"
        );
        let refused = Err(FrameTooLarge { limit: 9 });
        assert_eq!(
            (read_within(9, &[text.as_bytes()]), read_within(9, &pieces)),
            (refused, refused),
            "{text:?}"
        );
    }
}

#[test]
fn heartbeats_between_frames_never_add_up_to_a_frame_too_large() {
    for pieces in
        [vec![sse::HEARTBEAT; 1000], vec![&sse::HEARTBEAT.repeat(1000)], vec![b":\r\n"; 1000]]
    {
        let mut pieces = pieces;
        pieces.push(b"data: x\n\n");
        assert_eq!(read_within(64, &pieces), Ok(1));
    }
}

#[test]
fn one_long_line_in_small_pieces_costs_no_more_than_its_bytes() {
    // Searching or copying the line anew for every piece would touch two terabytes here, and the
    // test would not end.
    for head in ["data: ", "event: stream.packet\nid: 1\ndata: "] {
        let mut decoder = Decoder::new();
        decoder.push(head.as_bytes());
        for _ in 0..512 * 1024 {
            decoder.push(b"sixteen bytes ..");
            assert!(decoder.next_frame().is_none());
        }
        decoder.push(b"\n\n");
        assert_eq!(decoder.next_frame().unwrap().unwrap().data.len(), 8 * 1024 * 1024);
    }
}

#[test]
fn many_frames_in_one_piece_or_in_odd_ones_cost_no_more_than_their_bytes() {
    let bytes = "data: x\n\n".repeat(200_000);
    for size in [bytes.len(), 5000, 7] {
        let pieces: Vec<&[u8]> = bytes.as_bytes().chunks(size).collect();
        assert_eq!(read_within(64, &pieces), Ok(200_000));
    }
}

fn packet(seq: u64, payload: Payload) -> StreamPacket {
    let stream_id = Uuid::from_u128(0x7c9e6679_7425_40de_944b_e07fc1f90ae7);
    StreamPacket { stream_id, seq, t: Timestamp::parse("2026-02-03T10:15:37Z").unwrap(), payload }
}

#[test]
fn a_response_opens_with_the_wait_and_the_readers_cursor() {
    let stream_id = packet(0, Payload::Delta(String::new())).stream_id;
    let mut out = Vec::new();
    sse::encode_opening(&Cursor::start(stream_id), 500, &mut out);
    assert_eq!(out, b"retry: 500\nid: 7c9e6679-7425-40de-944b-e07fc1f90ae7:0\n\n");
    let reading = read_every_way(&out);
    assert_eq!(reading, second_opinion(&out));
    assert_eq!((reading.events.len(), reading.retry), (0, Some(500)));
    assert_eq!(reading.id.unwrap().parse(), Ok(Cursor::start(stream_id)));
}

#[test]
fn a_packet_is_one_event_with_one_data_line() {
    let mut out = Vec::new();
    sse::encode_packet(&packet(3, Payload::Delta("a\nb".into())), &mut out);
    let expected = concat!(
        "event: stream.packet\n",
        "id: 7c9e6679-7425-40de-944b-e07fc1f90ae7:3\n",
        r#"data: {"stream_id":"7c9e6679-7425-40de-944b-e07fc1f90ae7","seq":3,"op":"DELTA","#,
        r#""t":"2026-02-03T10:15:37Z","p":"a\nb"}"#,
        "\n\n",
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn what_we_write_reads_back_with_a_cursor_at_every_packet() {
    let packets = [
        packet(1, Payload::Delta("so \u{2028}far".into())),
        packet(2, Payload::Delta(String::new())),
        packet(3, Payload::Close(Close::Reason(Close::COMPLETED.into()))),
    ];
    let mut out = Vec::new();
    sse::encode_opening(&Cursor::start(packets[0].stream_id), 500, &mut out);
    for packet in &packets {
        sse::encode_packet(packet, &mut out);
        out.extend_from_slice(sse::HEARTBEAT);
    }
    let reading = read_every_way(&out);
    assert_eq!(reading, second_opinion(&out));
    assert_eq!(reading.names(), [sse::EVENT_NAME; 3]);
    for (event, packet) in reading.events.iter().zip(&packets) {
        assert_eq!(StreamPacket::decode(&event.data).as_ref(), Ok(packet));
        assert_eq!(event.id.as_ref().unwrap().parse(), Ok(packet.cursor()));
    }
}

#[test]
fn packets_of_v2_travel_in_the_same_kind_of_frame() {
    let packet = packet(4, Payload::Delta("hi\u{85}".into()));
    let mut out = Vec::new();
    sse::encode_packet_v2(&packet, &mut out);
    let reading = read_every_way(&out);
    assert_eq!(reading.names(), [sse::EVENT_NAME]);
    assert_eq!(reading.ids(), [Some(packet.cursor().to_string().as_str())]);
    let read = v2::StreamPacket::decode(&reading.events[0].data).unwrap();
    assert_eq!((read.seq, read.payload), (Some(4), packet.payload));
}

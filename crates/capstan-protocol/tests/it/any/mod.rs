//! Strategies: any packet, any bytes, any damage.
#![allow(dead_code, clippy::unwrap_used, unreachable_pub)]

pub(crate) mod rules;

use capstan_protocol::{
    Close, ErrorSeverity, Payload, PresentationEventType, RawObject, StreamError, StreamPacket,
    Timestamp,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// Any character, with those that a codec may stumble over more often than chance would have them.
pub(crate) fn char() -> impl Strategy<Value = char> {
    let delicate = "\"\\/\n\r\t\0\u{1}\u{1f}\u{7f}\u{80}\u{85}\
                    \u{2027}\u{2028}\u{2029}\u{202a}\u{feff}\u{fffd}🐎";
    let delicate = select(delicate.chars().collect::<Vec<_>>());
    prop_oneof![3 => any::<char>(), 2 => delicate, 2 => prop::char::range(' ', '~')]
}

pub(crate) fn text() -> impl Strategy<Value = String> {
    vec(char(), 0..24).prop_map(String::from_iter)
}

fn number() -> impl Strategy<Value = Value> {
    let finite = any::<f64>().prop_filter("JSON has no other", |x| x.is_finite());
    prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        finite.prop_map(Value::from)
    ]
}

pub(crate) fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number(),
        text().prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let array = vec(inner.clone(), 0..4).prop_map(Value::from);
        let object =
            vec((text(), inner), 0..4).prop_map(|members| Value::Object(Map::from_iter(members)));
        prop_oneof![array, object]
    })
}

pub(crate) fn map() -> impl Strategy<Value = Map<String, Value>> {
    vec((text(), json()), 0..4).prop_map(Map::from_iter)
}

/// An object, written as a program would or as a person would.
pub(crate) fn object() -> impl Strategy<Value = RawObject> {
    (map(), any::<bool>()).prop_map(|(map, is_pretty)| {
        let text = if is_pretty {
            serde_json::to_string_pretty(&map)
        } else {
            serde_json::to_string(&map)
        };
        RawObject::parse(&text.unwrap()).unwrap()
    })
}

/// Any object, or one whose type v2 spells and shapes in another way.
fn event() -> impl Strategy<Value = RawObject> {
    let kind = select(PresentationEventType::ALL.map(PresentationEventType::as_str).to_vec());
    let names =
        select(vec!["content", "items", "label", "status", "citations", "thought", "other"]);
    let data = vec((names.prop_map(str::to_owned), json()), 0..5).prop_map(Map::from_iter);
    let presentation = (kind, data).prop_map(|(kind, data)| json!({ "type": kind, "data": data }));
    prop_oneof![object(), presentation.prop_map(|event| RawObject::from_serialize(&event).unwrap())]
}

fn error() -> impl Strategy<Value = StreamError> {
    let severity = select(ErrorSeverity::ALL.to_vec());
    (text(), text(), severity, proptest::option::of(map())).prop_map(
        |(code, message, severity, details)| StreamError { code, message, severity, details },
    )
}

fn payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        text().prop_map(Payload::Delta),
        event().prop_map(Payload::Event),
        error().prop_map(|error| Payload::Error(error.into())),
        text().prop_map(|reason| Payload::Close(Close::Reason(reason))),
        object().prop_map(|report| Payload::Close(Close::Report(report))),
    ]
}

/// Any moment that can be written in the years 0001 to 9999, in any offset.
pub(crate) fn timestamp() -> impl Strategy<Value = Timestamp> {
    let micros = prop_oneof![any::<i64>(), -62_135_596_800_000_000..253_402_300_800_000_000_i64];
    let offset = prop_oneof![Just(0_i16), -1439..1440_i16];
    (micros, any::<bool>(), offset).prop_map(|(micros, has_fraction, offset)| {
        let micros = if has_fraction { micros } else { micros / 1_000_000 * 1_000_000 };
        let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs());
        let zone = format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60);
        let text = Timestamp::from_micros(micros).to_string().replace('Z', &zone);
        Timestamp::parse(&text).unwrap()
    })
}

pub(crate) fn id() -> impl Strategy<Value = Uuid> {
    any::<u128>().prop_map(Uuid::from_u128)
}

pub(crate) fn seq() -> impl Strategy<Value = u64> {
    let edges = vec![999_999_999_999_999_999, 1_000_000_000_000_000_000, u64::MAX];
    prop_oneof![0..1000_u64, any::<u64>(), select(edges)]
}

pub(crate) fn packet() -> impl Strategy<Value = StreamPacket> {
    (id(), seq(), timestamp(), payload()).prop_map(|(stream_id, seq, t, payload)| StreamPacket {
        stream_id,
        seq,
        t,
        payload,
    })
}

/// Bytes that look like server-sent events until they do not.
pub(crate) fn soup() -> impl Strategy<Value = Vec<u8>> {
    #[rustfmt::skip]
    let scraps: Vec<&[u8]> = vec![
        b"\n", b"\n", b"\n\n", b"\r", b"\r\n", b"\r\n\r\n", b":", b" ", b"x", "é".as_bytes(),
        b"\xFF", b"\xEF",
        b"\xEF\xBB\xBF", b"data", b"data:", b"data: ", b"data: y\n", b"event: e", b"event",
        b"id: 1", b"id",
        b"id: \0", b"retry: 5", b"retry: z", b"event: stream.packet\nid: ",
        b"event: stream.packet\nid: 2\ndata: z\n\n",
    ];
    let scrap =
        prop_oneof![9 => select(scraps).prop_map(<[u8]>::to_vec), 1 => vec(any::<u8>(), 0..4)];
    vec(scrap, 0..40).prop_map(|scraps| scraps.concat())
}

/// Cuts bytes at the given places.
pub(crate) fn cut<'a>(bytes: &'a [u8], places: &[Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places.iter().map(|place| place.index(bytes.len() + 1)).collect();
    places.sort_unstable();
    let mut pieces = Vec::new();
    let mut rest = bytes;
    for place in places {
        let (piece, later) = rest.split_at(place - (bytes.len() - rest.len()));
        pieces.push(piece);
        rest = later;
    }
    pieces.push(rest);
    pieces
}

/// Bits of JSON and of packets that change what a text means.
#[rustfmt::skip]
pub(crate) const SCRAPS: [&str; 40] = [
    "\"", "\\", "{", "}", "[", "]", ",", ":", " ", "\n", "\t", "\r", "0", "1", "-", "+", ".", "e9",
    "null", "true",
    "{}", "[]", "\"\"", "\\u", "\\u0041", "\\ud800", "\\udc00", "\\ud83d\\udc0e", "\u{1}",
    "\u{7f}", "é", "\u{2028}",
    "\"p\":", "\"p\":\"\",", "\"seq\":1,", "\"x\":1,", "99999999999999999999", "Z", "+00:00",
    "[\"c\",\"m\",\"FATAL\"]",
];

/// One thing that goes wrong with a text.
#[derive(Debug, Clone)]
pub(crate) enum Slip {
    Change(Index, u8),
    Insert(Index, &'static str),
    Delete(Index, usize),
    Repeat(Index, usize),
}

pub(crate) fn slip() -> impl Strategy<Value = Slip> {
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Slip::Change(at, byte)),
        (any::<Index>(), select(SCRAPS.to_vec())).prop_map(|(at, scrap)| Slip::Insert(at, scrap)),
        (any::<Index>(), 1..12_usize).prop_map(|(at, len)| Slip::Delete(at, len)),
        (any::<Index>(), 1..12_usize).prop_map(|(at, len)| Slip::Repeat(at, len)),
    ]
}

impl Slip {
    fn happen(&self, bytes: &mut Vec<u8>) {
        let at = match self {
            Self::Change(at, _) | Self::Insert(at, _) => at,
            Self::Delete(at, _) | Self::Repeat(at, _) => at,
        };
        let at = at.index(bytes.len() + 1);
        let range = |len: usize| at..(at + len).min(bytes.len());
        match self {
            Self::Change(_, byte) => drop(bytes.splice(range(1), [*byte])),
            Self::Insert(_, scrap) => drop(bytes.splice(at..at, scrap.bytes())),
            Self::Delete(_, len) => drop(bytes.drain(range(*len))),
            Self::Repeat(_, len) => bytes.extend_from_within(range(*len)),
        }
    }
}

/// The text after all that went wrong with it.
pub(crate) fn damaged(text: &str, slips: &[Slip]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    slips.iter().for_each(|slip| slip.happen(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Puts another value at any place of a document, chosen level by level.
pub(crate) fn replace(value: &mut Value, places: &[Index], new: Value) {
    let here = |len: usize| places.first().filter(|_| len > 0).map(|place| place.index(len));
    let child = if let Value::Object(members) = value {
        here(members.len()).and_then(|at| members.values_mut().nth(at))
    } else if let Value::Array(items) = value {
        here(items.len()).and_then(|at| items.get_mut(at))
    } else {
        None
    };
    match child {
        Some(child) => replace(child, places.get(1..).unwrap_or_default(), new),
        None => *value = new,
    }
}

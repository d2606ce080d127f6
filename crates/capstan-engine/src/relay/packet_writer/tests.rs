//! Attempts that write the same, more, less or something else: what viewers have in the end.

use capstan_agent::Output;
use capstan_journal::{Claim, Journal, Run, TailLimits};
use capstan_protocol::{Event, EventView, Payload, Timestamp, event, sse};
use capstan_stores::{Durability, open};
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;

/// An output of an agent.
#[derive(Debug, Clone)]
enum Say {
    Text(String),
    Thought(String),
    Start(String, String),
    Arguments(String, String),
    End(String),
    Result(String, String),
    Part(String),
    Native(String, String),
}

/// `"Hello"`, `?a thought`, `+id tool`, `id:piece of arguments`, `-id`, `=id result`, `#part`,
/// `~type id`.
fn say(word: &str) -> Say {
    let two = |text: &str, by: char| {
        let (a, b) = text.split_once(by).unwrap();
        (a.to_owned(), b.to_owned())
    };
    match word.split_at(1) {
        ("\"", text) => Say::Text(text.to_owned()),
        ("?", text) => Say::Thought(text.to_owned()),
        ("+", text) => two(text, ' ').into_say(Say::Start),
        ("-", id) => Say::End(id.to_owned()),
        ("=", text) => two(text, ' ').into_say(Say::Result),
        ("#", id) => Say::Part(id.to_owned()),
        ("~", text) => two(text, ' ').into_say(Say::Native),
        _ => two(word, ':').into_say(Say::Arguments),
    }
}

trait IntoSay {
    fn into_say(self, make: fn(String, String) -> Say) -> Say;
}

impl IntoSay for (String, String) {
    fn into_say(self, make: fn(String, String) -> Say) -> Say {
        make(self.0, self.1)
    }
}

impl Say {
    fn output(&self) -> Output {
        let event = |kind: &str, data: Value| Output::Event {
            kind: kind.to_owned(),
            payload: event::envelope(kind, &data).unwrap(),
        };
        match self {
            Self::Text(text) => Output::Delta(text.clone()),
            Self::Thought(thought) => event("THOUGHT_TRACE", json!({ "thought": thought })),
            Self::Start(id, tool) => {
                event("TOOL_CALL_START", json!({ "toolCallId": id, "toolCallName": tool }))
            }
            Self::Arguments(id, piece) => {
                event("TOOL_CALL_ARGS", json!({ "toolCallId": id, "delta": piece }))
            }
            Self::End(id) => event("TOOL_CALL_END", json!({ "toolCallId": id })),
            Self::Result(id, content) => event(
                "TOOL_CALL_RESULT",
                json!({ "messageId": format!("{id}:result"), "toolCallId": id,
                    "content": content }),
            ),
            Self::Part(signature) => event(
                "NATIVE",
                json!({ "dialect": "anthropic-messages", "provider": "p", "model": "m",
                    "part": { "thinking": null, "signature": signature },
                    "text_at": "/thinking" }),
            ),
            Self::Native(kind, id) => event(
                "NATIVE",
                json!({ "dialect": "anthropic-messages", "provider": "p", "model": "m",
                    "event": { "type": "block", "block": { "type": kind, "id": id } } }),
            ),
        }
    }
}

/// What a viewer has: its texts, thoughts, calls, results and parts, in order.
#[derive(Debug, Default, PartialEq, Clone)]
struct View {
    items: Vec<(u64, Item)>,
    resets: usize,
}

#[derive(Debug, PartialEq, Clone)]
enum Item {
    Text(String),
    Thought(String),
    Start(String, String),
    Arguments(String, String),
    End(String),
    Result(String, String),
    Part(Value),
    Native(String),
}

impl View {
    fn take(&mut self, seq: u64, payload: &Payload) {
        let raw = match payload {
            Payload::Delta(text) => return self.items.push((seq, Item::Text(text.clone()))),
            Payload::Event(raw) => raw,
            Payload::Error(_) | Payload::Close(_) => return,
        };
        let event = Event::of(raw);
        let text = |name: &str| event.data[name].as_str().unwrap_or_default().to_owned();
        let item = match event.view() {
            EventView::Reset(reset) => {
                self.resets += 1;
                return self.items.retain(|(seq, _)| *seq <= reset.after_seq);
            }
            EventView::Thought(trace) => Item::Thought(trace.thought),
            EventView::Citations(_)
            | EventView::Progress(_)
            | EventView::Media(_)
            | EventView::Markdown(_)
            | EventView::UserError(_)
            | EventView::Interrupt(_)
            | EventView::Other => match event.kind.as_deref().unwrap() {
                "TOOL_CALL_START" => Item::Start(text("toolCallId"), text("toolCallName")),
                "TOOL_CALL_ARGS" => Item::Arguments(text("toolCallId"), text("delta")),
                "TOOL_CALL_END" => Item::End(text("toolCallId")),
                "TOOL_CALL_RESULT" => Item::Result(text("toolCallId"), text("content")),
                "NATIVE" if event.data.get("event").is_some() => {
                    let block = &event.data["event"]["block"];
                    let [kind, id] = ["type", "id"].map(|name| block[name].as_str().unwrap());
                    Item::Native(format!("~{kind} {id}"))
                }
                "NATIVE" => Item::Part(event.data["part"].clone()),
                other => panic!("{other}"),
            },
        };
        self.items.push((seq, item));
    }

    /// Joins consecutive texts and thoughts, and puts each call where it began.
    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut calls: Vec<(usize, &str)> = Vec::new();
        for (_, item) in &self.items {
            let mut join = |mark: &str, text: &str| match lines.last_mut() {
                Some(last) if last.starts_with(mark) => last.push_str(text),
                _ => lines.push(format!("{mark}{text}")),
            };
            match item {
                Item::Text(text) => join("\"", text),
                Item::Thought(text) => join("?", text),
                Item::Start(id, tool) => {
                    assert!(calls.iter().all(|(_, known)| known != id), "{id} began twice");
                    calls.push((lines.len(), id));
                    lines.push(format!("{id} {tool}("));
                }
                Item::Arguments(id, piece) => {
                    lines[at(&calls, id)].push_str(piece);
                }
                Item::End(id) => lines[at(&calls, id)].push(')'),
                Item::Result(id, content) => lines.push(format!("={id} {content}")),
                Item::Native(line) => lines.push(line.clone()),
                Item::Part(part) => {
                    let text = part["thinking"].as_str().map(|text| format!("[{text}]"));
                    let signature = part["signature"].as_str().unwrap();
                    lines.push(format!("#{signature}{}", text.unwrap_or_default()));
                }
            }
        }
        lines
    }
}

fn at(calls: &[(usize, &str)], id: &str) -> usize {
    calls.iter().rev().find(|(_, known)| *known == id).expect("a call that began").0
}

/// The kind of viewer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Viewer {
    Plain,
    Resets,
    Unseen,
}

fn engine() -> Engine {
    let store = open("memory:", Durability::default()).unwrap();
    Engine::builder(Journal::new(store, TailLimits::default())).build()
}

fn run(viewer: Viewer) -> Run {
    let mut claim = Claim::new("t", "k", Uuid::now_v7(), Timestamp::now());
    (claim.max_attempts, claim.accepts_reset) = (9, viewer == Viewer::Resets);
    claim.is_unseen = viewer == Viewer::Unseen;
    claim.to_run()
}

/// What a viewer has after several attempts, of which the last is complete, and whether it
/// diverged.
fn viewed(viewer: Viewer, attempts: &[Vec<Say>]) -> (View, bool) {
    let mut packets = PacketWriter::new(&engine(), &run(viewer));
    let mut diverged = false;
    for (number, attempt) in (1..).zip(attempts) {
        packets.begin_attempt(number);
        let said = attempt.iter().try_for_each(|said| packets.take(said.output()));
        let is_last = number as usize == attempts.len();
        let ended = said.and_then(|()| if is_last { packets.end_attempt() } else { Ok(()) });
        if let Err(fault) = ended {
            assert_eq!(fault.kind(), FaultKind::AttemptDiverged);
            diverged = true;
            break;
        }
    }
    let mut view = View::default();
    for frame in packets.take_frames() {
        let packet = sse::decode_packet(&frame.bytes).unwrap();
        view.take(packet.seq, &packet.payload);
    }
    (view, diverged)
}

/// Checks what a viewer has after attempts that are written as words.
fn check(viewer: Viewer, attempts: &[&[&str]], expected: &[&str], resets: usize) {
    let said: Vec<Vec<Say>> =
        attempts.iter().map(|words| words.iter().map(|word| say(word)).collect()).collect();
    let (view, diverged) = viewed(viewer, &said);
    assert!(!diverged, "{viewer:?} {attempts:?}: {:?}", view.lines());
    assert_eq!((view.lines(), view.resets), (owned(expected), resets), "{viewer:?} {attempts:?}");
}

fn owned(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

fn diverges(viewer: Viewer, attempts: &[&[&str]], seen: &[&str]) {
    let said: Vec<Vec<Say>> =
        attempts.iter().map(|words| words.iter().map(|word| say(word)).collect()).collect();
    let (view, diverged) = viewed(viewer, &said);
    assert_eq!((view.lines(), diverged), (owned(seen), true), "{viewer:?} {attempts:?}");
}

const ALL: [Viewer; 3] = [Viewer::Plain, Viewer::Resets, Viewer::Unseen];

#[test]
fn a_call_is_sent_as_it_is_written() {
    let mut packets = PacketWriter::new(&engine(), &run(Viewer::Plain));
    packets.begin_attempt(1);
    for (count, word) in (1..).zip(["+a pay", "a:{\"n\"", "a::1}", "-a"]) {
        packets.take(say(word).output()).unwrap();
        assert_eq!(packets.seq(), count, "{word}");
    }
}

#[test]
fn the_same_calls_are_sent_once() {
    let [start, whole]: [&[&str]; 2] = [&["+a pay", "a:{\"n\""], &["+a pay", "a:{\"n\":1}", "-a"]];
    let again: &[&str] = &["+b pay", "b:{", "b:\"n\":1", "b:}", "-b"];
    let spelled: &[&str] = &["+b pay", "b:{ \"n\"", "b:: 1 }", "-b"];
    let one = ["a pay({\"n\":1})"];
    for viewer in ALL {
        check(viewer, &[whole, again], &one, 0);
        check(viewer, &[whole, spelled], &one, 0);
        check(viewer, &[start, again], &one, 0);
        check(viewer, &[start, start, again], &one, 0);
        check(viewer, &[&["+a pay"], again], &one, 0);
        // Its arguments are complete, but its end is missing, so the spelling may differ.
        check(viewer, &[&["+a pay", "a:{\"n\":1}"], spelled], &one, 0);
        // The same id for another attempt's call.
        check(viewer, &[start, whole], &one, 0);
    }
}

#[test]
fn calls_at_once_have_no_order() {
    let two: &[&str] = &["+a f", "a:1", "-a", "+b f", "b:2", "-b"];
    let turned: &[&str] = &["+x f", "x:2", "-x", "+y f", "y:1", "-y"];
    let mixed: &[&str] = &["+x f", "+y f", "y:1", "x:2", "-y", "-x"];
    let both = ["a f(1)", "b f(2)"];
    for viewer in ALL {
        check(viewer, &[two, turned], &both, 0);
        check(viewer, &[two, mixed], &both, 0);
        // The second one broke off, and comes first.
        check(viewer, &[&["+a f", "a:1", "-a", "+b f", "b:"], turned], &both, 0);
    }
    // The longer beginning is continued by the call that fits it.
    let halves: &[&str] = &["+a f", "a:{\"city\":\"B", "+b f", "b:{\"city\":\"Ba"];
    let whole: &[&str] =
        &["+x f", "x:{\"city\":\"Bas", "x:el\"}", "-x", "+y f", "y:{\"city\":\"Bern\"}", "-y"];
    let both = ["a f({\"city\":\"Bern\"})", "b f({\"city\":\"Basel\"})"];
    check(Viewer::Plain, &[halves, whole], &both, 0);
}

#[test]
fn a_call_that_lacks_its_end_alone_holds_up_no_other() {
    let mut packets = PacketWriter::new(&engine(), &run(Viewer::Plain));
    packets.begin_attempt(1);
    let words = ["+a f", "a:{\"n\":1}", "+b f", "b:{\"n"];
    words.iter().for_each(|word| packets.take(say(word).output()).unwrap());
    packets.begin_attempt(2);
    // The packets of the first attempt, then one for each piece that is new.
    for (word, packet) in
        [("+x f", 4), ("x:{\"n\":1}", 4), ("+y f", 4), ("y:{\"n\"", 5), ("y::2", 6)]
    {
        packets.take(say(word).output()).unwrap();
        assert_eq!(packets.seq(), packet, "{word}");
    }
}

#[test]
fn a_further_call_waits_for_those_that_are_missing() {
    // Only `y` shows whether `x` is an additional call or a different one. Nothing can be taken
    // back.
    let one: &[&str] = &["+a f", "a:1", "-a"];
    let two: &[&str] = &["+x f", "x:2", "-x", "+y f", "y:1", "-y"];
    check(Viewer::Plain, &[one, two], &["a f(1)", "x f(2)"], 0);
    check(Viewer::Resets, &[one, two], &["a f(1)", "x f(2)"], 0);
    // Some servers number their calls anew in each attempt.
    let counted: &[&str] = &["+a f", "a:2", "-a", "+b f", "b:1", "-b"];
    check(Viewer::Plain, &[one, counted], &["a f(1)", "a-2 f(2)"], 0);
}

#[test]
fn a_different_call_is_a_divergence() {
    let [half, whole]: [&[&str]; 2] =
        [&["\"Hm. ", "+a f", "a:1"], &["\"Hm. ", "+a f", "a:1", "-a"]];
    let other: &[&str] = &["\"Hm. ", "+b f", "b:2", "-b"];
    let none: &[&str] = &["\"Hm. ", "\"No."];
    let renamed: &[&str] = &["\"Hm. ", "+b g", "b:1", "-b"];
    for other in [other, renamed] {
        diverges(Viewer::Plain, &[half, other], &["\"Hm. ", "a f(1"]);
        diverges(Viewer::Plain, &[whole, other], &["\"Hm. ", "a f(1)"]);
        diverges(Viewer::Resets, &[whole, other], &["\"Hm. ", "a f(1)"]);
    }
    check(Viewer::Resets, &[half, other], &["\"Hm. ", "b f(2)"], 1);
    check(Viewer::Resets, &[half, renamed], &["\"Hm. ", "b g(1)"], 1);
    check(Viewer::Resets, &[half, none], &["\"Hm. No."], 1);
    check(Viewer::Unseen, &[whole, other], &["\"Hm. ", "b f(2)"], 1);
    check(Viewer::Unseen, &[whole, none], &["\"Hm. No."], 1);
    diverges(Viewer::Plain, &[half, none], &["\"Hm. ", "a f(1", "\"No."]);
    diverges(Viewer::Resets, &[whole, none], &["\"Hm. ", "a f(1)", "\"No."]);
}

#[test]
fn a_complete_call_is_never_taken_back() {
    let first: &[&str] = &["\"One. ", "+a f", "a:1", "-a", "\"Paid, I thi"];
    let again: &[&str] = &["\"One. ", "+b f", "b:1", "-b", "\"Done."];
    let before: &[&str] = &["\"Two. ", "+b f", "b:1", "-b", "\"Done."];
    check(Viewer::Resets, &[first, again], &["\"One. ", "a f(1)", "\"Done."], 1);
    diverges(Viewer::Resets, &[first, before], &["\"One. ", "a f(1)", "\"Paid, I thi"]);
    check(Viewer::Unseen, &[first, before], &["\"Two. ", "b f(1)", "\"Done."], 1);
}

#[test]
fn what_a_reset_takes_back_comes_again_in_its_order() {
    let first: &[&str] = &["\"So ", "+a f", "a:1", "+b f", "b:2", "-a"];
    let second: &[&str] = &["\"So ", "+c f", "c:1", "-c", "\"far", "+d g", "-d"];
    check(Viewer::Unseen, &[first, second], &["\"So ", "a f(1)", "\"far", "d g()"], 1);
}

#[test]
fn a_result_belongs_to_the_call_that_viewers_know() {
    let first: &[&str] = &["+a f", "a:1", "-a", "=a ok"];
    let again: &[&str] = &["+b f", "b:1", "-b", "=b ok", "\"Done."];
    let other: &[&str] = &["+b f", "b:1", "-b", "=b no", "\"Done."];
    let endless: &[&str] = &["+b f", "b:1", "=b ok", "-b", "\"Done."];
    let done = ["a f(1)", "=a ok", "\"Done."];
    for viewer in ALL {
        check(viewer, &[first, again], &done, 0);
        check(viewer, &[first, endless], &done, 0);
    }
    check(Viewer::Resets, &[first, other], &["a f(1)", "=a no", "\"Done."], 1);
    diverges(Viewer::Plain, &[first, other], &["a f(1)", "=a ok"]);
    // The agent acted on a call that earlier attempts did not make.
    let acted: &[&str] = &["+b f", "b:2", "-b", "=b ok", "+c f", "c:1", "-c"];
    diverges(Viewer::Plain, &[&["+a f", "a:1", "-a"], acted], &["a f(1)"]);
}

#[test]
fn thoughts_are_compared_in_their_order_whatever_the_pieces() {
    let first: &[&str] = &["?Let me", "? see. ", "\"Hel"];
    for viewer in ALL {
        let again: &[&str] = &["?Let", "? me see. ", "\"Hello"];
        check(viewer, &[first, again], &["?Let me see. ", "\"Hello"], 0);
        // An agent that continues a text does not think again.
        check(viewer, &[first, &["\"Hello"]], &["?Let me see. ", "\"Hello"], 0);
        let on: &[&str] = &["?Let me see. ", "\"Hello", "?And now", "\"!"];
        check(viewer, &[first, on], &["?Let me see. ", "\"Hello", "?And now", "\"!"], 0);
    }
    let other: &[&str] = &["?Let me go. ", "\"Hello"];
    check(Viewer::Resets, &[first, other], &["?Let me go. ", "\"Hello"], 1);
    check(Viewer::Plain, &[first, other], &["?Let me see. ", "\"Hel", "?Let me go. ", "\"lo"], 0);
    let longer: &[&str] = &["?Let me see. Hm. ", "\"Hello"];
    check(Viewer::Resets, &[first, longer], &["?Let me see. Hm. ", "\"Hello"], 1);
    check(Viewer::Plain, &[first, longer], &["?Let me see. ", "\"Hel", "?Hm. ", "\"lo"], 0);
    // A complete call stands between: a thought cannot reset it.
    let called: &[&str] = &["?One. ", "+a f", "-a", "?Two. "];
    let thought: &[&str] = &["?Other. ", "+b f", "-b", "\"Done."];
    let seen = ["?One. ", "a f()", "?Two. Other. ", "\"Done."];
    check(Viewer::Resets, &[called, thought], &seen, 0);
}

#[test]
fn a_part_has_the_thoughts_before_it_or_holds_its_own() {
    let first: &[&str] = &["?Hm. ", "#s1", "\"Hel"];
    for viewer in ALL {
        check(viewer, &[first, &["?Hm. ", "#s1", "\"Hello"]], &["?Hm. ", "#s1", "\"Hello"], 0);
        let signed: &[&str] = &["?Hm. ", "#s2", "\"Hello"];
        check(viewer, &[first, signed], &["?Hm. ", "#s1", "\"Hello"], 0);
        check(viewer, &[&["?Hm. ", "#s1"], signed], &["?Hm. ", "#s1", "\"Hello"], 0);
        check(viewer, &[&["?H"], signed], &["?Hm. ", "#s2", "\"Hello"], 0);
        // The earlier attempt had more thoughts than this part covers.
        check(viewer, &[&["?Hm. Ah. "], signed], &["?Hm. Ah. ", "#s2[Hm. ]", "\"Hello"], 0);
    }
    let other: &[&str] = &["?Hmmm.", "#s2", "\"Hello"];
    check(Viewer::Resets, &[first, other], &["?Hmmm.", "#s2", "\"Hello"], 1);
    let seen = ["?Hm. ", "#s1", "\"Hel", "?Hmmm.", "#s2", "\"lo"];
    check(Viewer::Plain, &[first, other], &seen, 0);
    let pieces: &[&str] = &["?H", "?mm", "?m.", "#s2", "\"Hello"];
    let seen = ["?Hm. ", "#s1", "\"Hel", "?mmm.", "#s2[Hmmm.]", "\"lo"];
    check(Viewer::Plain, &[first, pieces], &seen, 0);
}

#[test]
fn a_native_event_is_sent_once_at_its_place_whatever_its_values() {
    let answer = |n: &str| -> Vec<String> {
        let words = "~start 0|?One. |#s|\"Intro. |~start 2|?Two. |#s|~search 3|+c f|c:1|-c|\
            ~found 4|=c ok|\"End.";
        let own = words.split('|').map(|word| match word.chars().next() {
            Some('#' | '~') => format!("{word}{n}"),
            Some('+') => format!("+c{n} f"),
            Some('c' | '-' | '=') => word.replacen('c', &format!("c{n}"), 1),
            _ => word.to_owned(),
        });
        own.collect()
    };
    let whole = answer("b");
    for cut in 0..whole.len() {
        let first = answer("a");
        let kept: Vec<&str> = first[..cut].iter().map(String::as_str).collect();
        let again: Vec<&str> = whole.iter().map(String::as_str).collect();
        for viewer in ALL {
            let said = [kept.clone(), again.clone()];
            let said = said.map(|words| words.into_iter().map(say).collect::<Vec<_>>());
            let (view, diverged) = viewed(viewer, &said);
            let lines = view.lines().concat().replace(['a', 'b'], "");
            let (expected, _) = viewed(viewer, &said[1..]);
            let expected = expected.lines().concat().replace(['a', 'b'], "");
            assert_eq!((lines, diverged, view.resets), (expected, false, 0), "{viewer:?} {cut}");
        }
    }
}

#[test]
fn a_native_event_behind_which_viewers_are_is_left_out_unless_a_reset_takes_them_back() {
    let first: &[&str] = &["\"One. ", "\"Tw"];
    let more: &[&str] = &["~new 1", "\"One. ", "~new 2", "\"Two."];
    for viewer in ALL {
        check(viewer, &[first, more], &["\"One. Two."], 0);
    }
    let other: &[&str] = &["~new 1", "\"One. ", "~new 2", "\"Three."];
    let seen = ["\"One. ", "~new 2", "\"Three."];
    check(Viewer::Resets, &[first, other], &seen, 1);
}

#[test]
fn a_call_that_viewers_do_not_have_comes_with_its_native_beginning() {
    let first: &[&str] = &["~search 1", "+a f", "a:1", "-a"];
    let two: &[&str] = &["~search 2", "+x f", "x:2", "-x", "~search 3", "+y f", "y:1", "-y"];
    let seen = ["~search 1", "a f(1)", "~search 2", "x f(2)"];
    for viewer in [Viewer::Plain, Viewer::Resets] {
        check(viewer, &[first, two], &seen, 0);
    }
}

/// The outputs of a complete answer.
fn answers() -> impl Strategy<Value = Vec<Say>> {
    let text = "[ab ]{1,6}".prop_map(Say::Text);
    let thought = "[cd ]{1,6}".prop_map(Say::Thought);
    let call = ("[fg]", "[12]{0,4}").prop_map(|(tool, body)| Say::Start(tool, body));
    proptest::collection::vec(prop_oneof![text, thought, call], 0..7)
}

/// Writes an answer as an attempt does: in pieces of random length, and with call ids of its own.
fn written(answer: &[Say], attempt: usize, random: &[usize]) -> Vec<Say> {
    let mut random = random.iter().cycle();
    let mut next = |below: usize| random.next().unwrap() % below.max(1);
    let mut out = Vec::new();
    for (n, said) in answer.iter().enumerate() {
        let mut pieces = |text: &str, make: &dyn Fn(String) -> Say, out: &mut Vec<Say>| {
            let mut rest = text;
            while !rest.is_empty() {
                let (piece, left) = rest.split_at(1 + next(rest.len()));
                out.push(make(piece.to_owned()));
                rest = left;
            }
        };
        match said {
            Say::Text(text) => pieces(text, &Say::Text, &mut out),
            Say::Thought(text) => pieces(text, &Say::Thought, &mut out),
            Say::Start(tool, body) => {
                let id = format!("{attempt}-{n}");
                out.push(Say::Start(id.clone(), tool.clone()));
                let make = |piece: String| Say::Arguments(id.clone(), piece);
                pieces(&format!("[{body}]"), &make, &mut out);
                out.push(Say::End(id.clone()));
            }
            Say::Arguments(..) | Say::End(_) | Say::Result(..) | Say::Part(_) | Say::Native(..) => {
                panic!("{said:?}")
            }
        }
    }
    out
}

/// The lines without the ids of calls.
fn unnamed(view: &View) -> Vec<String> {
    let unnamed = |line: String| match line.split_once(' ') {
        Some((_, call)) if line.starts_with(|c: char| c.is_ascii_digit()) => call.to_owned(),
        _ => line,
    };
    view.lines().into_iter().map(unnamed).collect()
}

fn whole_calls(view: &View) -> Vec<String> {
    let mut calls: Vec<String> =
        unnamed(view).into_iter().filter(|line| line.ends_with(')')).collect();
    calls.sort();
    calls
}

proptest! {
    #[test]
    fn the_same_answer_over_any_cuts_and_pieces_is_sent_once(
        answer in answers(),
        cuts in proptest::collection::vec(0_usize..40, 0..4),
        random in proptest::collection::vec(0_usize..100, 1..30),
        viewer in prop_oneof![Just(Viewer::Plain), Just(Viewer::Resets), Just(Viewer::Unseen)],
    ) {
        let attempt = |n: usize| written(&answer, n, &random[n % random.len()..]);
        let mut attempts: Vec<Vec<Say>> = cuts
            .iter()
            .enumerate()
            .map(|(n, cut)| attempt(n).into_iter().take(*cut).collect())
            .collect();
        attempts.push(attempt(cuts.len()));
        let (view, diverged) = viewed(viewer, &attempts);
        let (expected, _) = viewed(viewer, &[attempt(0)]);
        prop_assert!(!diverged, "{:?}", view.lines());
        prop_assert_eq!((unnamed(&view), view.resets), (unnamed(&expected), 0));
    }

    #[test]
    fn whatever_attempts_say_viewers_have_what_the_last_one_said_or_are_told_that_it_diverged(
        first in answers(),
        second in answers(),
        shared in 0_usize..4,
        cut in 0_usize..40,
        random in proptest::collection::vec(0_usize..100, 1..30),
        viewer in prop_oneof![Just(Viewer::Plain), Just(Viewer::Resets), Just(Viewer::Unseen)],
    ) {
        let second: Vec<Say> = first.iter().take(shared).chain(&second).cloned().collect();
        let broken: Vec<Say> = written(&first, 0, &random).into_iter().take(cut).collect();
        let last = written(&second, 1, &random);
        let (begun, _) = viewed(viewer, &[broken.clone(), Vec::new()]);
        let (view, diverged) = viewed(viewer, &[broken, last.clone()]);
        let (alone, _) = viewed(viewer, &[last]);
        if diverged {
            prop_assert!(viewer != Viewer::Unseen);
        } else {
            prop_assert_eq!(whole_calls(&view), whole_calls(&alone));
            let text = |view: &View| {
                let texts = view.items.iter().filter_map(|(_, item)| {
                    if let Item::Text(text) = item { Some(text.as_str()) } else { None }
                });
                texts.collect::<String>()
            };
            prop_assert_eq!(text(&view), text(&alone));
        }
        // A client that acted on a call still has it under the same id.
        if viewer != Viewer::Unseen {
            let ended = |view: &View| {
                view.lines().into_iter().filter(|line| line.ends_with(')')).collect::<Vec<_>>()
            };
            let now = ended(&view);
            prop_assert!(ended(&begun).iter().all(|call| now.contains(call)));
        }
    }
}

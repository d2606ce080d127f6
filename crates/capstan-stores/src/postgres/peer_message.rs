//! The messages that processes send to each other as PostgreSQL notifications. They are only hints,
//! which arrive earlier than the next poll.

use bytes::Bytes;
use capstan_journal::{Frame, RunState};
use uuid::Uuid;

/// The channel to which all processes of a journal listen.
pub(super) const CHANNEL: &str = "capstan";
/// The version of the format. Messages of another version are ignored, and polling replaces them.
const VERSION: &str = "1";
/// The most bytes of a notification: PostgreSQL allows less than 8,000.
const LONGEST: usize = 7900;

/// A message to all processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PeerMessage {
    /// Frames were stored, or the run's state changed. Frames that do not fit are left out.
    Frames { stream: Uuid, standing: (u32, RunState), frames: Vec<Frame> },
    /// The stream was erased.
    Erased(Uuid),
    /// A request to the owner to stop the run.
    Stop(Uuid),
    /// A reader of another process waits for more frames of the stream.
    Awaited(Uuid),
}

/// Encodes messages into as few texts as possible.
pub(super) fn encode(messages: &[PeerMessage]) -> Vec<String> {
    let mut texts = vec![VERSION.to_owned()];
    for message in messages {
        let text = message.to_text();
        if let Some(last) = texts.last_mut().filter(|last| last.len() + text.len() <= LONGEST) {
            last.push_str(&text);
        } else {
            texts.push(format!("{VERSION}{text}"));
        }
    }
    texts.retain(|text| text != VERSION);
    texts
}

/// Decodes all messages of a text; `None` if it is invalid.
pub(super) fn decode(text: &str) -> Option<Vec<PeerMessage>> {
    let mut rest = text.strip_prefix(VERSION)?;
    let mut messages = Vec::new();
    while let Some(line) = rest.strip_prefix('\n') {
        let (head, after) = line.split_once('\n')?;
        let (message, after) = PeerMessage::parse(head, after)?;
        messages.push(message);
        rest = after;
    }
    rest.is_empty().then_some(messages)
}

impl PeerMessage {
    fn to_text(&self) -> String {
        match self {
            Self::Erased(stream) => format!("\ng {}\n", stream.simple()),
            Self::Stop(stream) => format!("\ns {}\n", stream.simple()),
            Self::Awaited(stream) => format!("\na {}\n", stream.simple()),
            Self::Frames { stream, standing, frames } => {
                let whole = frames_text(*stream, *standing, frames);
                whole
                    .filter(|text| text.len() < LONGEST)
                    .unwrap_or_else(|| frames_text(*stream, *standing, &[]).unwrap_or_default())
            }
        }
    }

    fn parse<'a>(head: &str, after: &'a str) -> Option<(Self, &'a str)> {
        let mut words = head.split(' ');
        let (kind, stream) = (words.next()?, Uuid::try_parse(words.next()?).ok()?);
        match kind {
            "g" => Some((Self::Erased(stream), after)),
            "s" => Some((Self::Stop(stream), after)),
            "a" => Some((Self::Awaited(stream), after)),
            "f" => {
                let attempt = words.next()?.parse().ok()?;
                let state = state_of(words.next()?.parse().ok()?)?;
                let (mut seq, mut rest, mut frames) =
                    (words.next()?.parse::<u64>().ok()?, after, Vec::new());
                for length in words {
                    let (bytes, others) = rest.split_at_checked(length.parse().ok()?)?;
                    frames.push(Frame::new(seq, Bytes::copy_from_slice(bytes.as_bytes())));
                    (seq, rest) = (seq + 1, others);
                }
                Some((Self::Frames { stream, standing: (attempt, state), frames }, rest))
            }
            _ => None,
        }
    }
}

/// Frames as text; `None` if they are binary, too long, or not consecutive.
fn frames_text(
    stream: Uuid,
    (attempt, state): (u32, RunState),
    frames: &[Frame],
) -> Option<String> {
    let first = frames.first().map_or(0, |frame| frame.seq);
    let mut head = format!("\nf {} {attempt} {} {first}", stream.simple(), number_of(state));
    let mut body = String::new();
    for (frame, seq) in frames.iter().zip(first..) {
        let text = std::str::from_utf8(&frame.bytes).ok().filter(|text| !text.contains('\0'))?;
        if frame.seq != seq || body.len() + text.len() > LONGEST {
            return None;
        }
        head.push_str(&format!(" {}", text.len()));
        body.push_str(text);
    }
    Some(format!("{head}\n{body}"))
}

/// The number of a state in the tables.
pub(super) fn number_of(state: RunState) -> i16 {
    match state {
        RunState::Running => 1,
        RunState::Waiting => 2,
        RunState::Closed => 3,
    }
}

pub(super) fn state_of(number: i16) -> Option<RunState> {
    [RunState::Running, RunState::Waiting, RunState::Closed]
        .into_iter()
        .find(|state| number_of(*state) == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(texts: &[&str]) -> PeerMessage {
        let frames =
            (7..).zip(texts).map(|(seq, text)| Frame::new(seq, text.to_string())).collect();
        PeerMessage::Frames { stream: Uuid::from_u128(5), standing: (2, RunState::Running), frames }
    }

    #[test]
    fn messages_survive_the_round_trip() {
        let all = [
            frames(&["data: a\n\n", "", "data: ä€ \n1\n\n"]),
            PeerMessage::Stop(Uuid::now_v7()),
            PeerMessage::Awaited(Uuid::now_v7()),
            frames(&[]),
            PeerMessage::Erased(Uuid::now_v7()),
            frames(&["\nf g s 1\n"]),
        ];
        let texts = encode(&all);
        assert_eq!(texts.len(), 1);
        let read = decode(&texts[0]).unwrap();
        assert_eq!(read, all);
    }

    #[test]
    fn frames_that_do_not_fit_are_left_out() {
        let long = "x".repeat(5000);
        let all = [frames(&[&long]), frames(&[&long]), frames(&[&long, &long])];
        let texts = encode(&all);
        assert!(texts.len() == 2 && texts.iter().all(|text| text.len() < 8000), "{}", texts.len());
        let read: Vec<_> = texts.iter().flat_map(|text| decode(text).unwrap()).collect();
        assert_eq!(read, [frames(&[&long]), frames(&[&long]), frames(&[])]);
        let binary = vec![Frame::new(7, vec![0xff_u8, 0])];
        let unexpected = PeerMessage::Frames {
            stream: Uuid::from_u128(5),
            standing: (2, RunState::Running),
            frames: binary,
        };
        assert_eq!(decode(&encode(&[unexpected])[0]).unwrap(), [frames(&[])]);
        assert!(encode(&[]).is_empty());
    }

    #[test]
    fn invalid_text_decodes_to_nothing() {
        for text in [
            "",
            "2\ng 1\n",
            "1\nx 00000000000000000000000000000005\n",
            "1\nf 00000000000000000000000000000005 1 1 1 9\nshort",
            "1 rest",
        ] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}

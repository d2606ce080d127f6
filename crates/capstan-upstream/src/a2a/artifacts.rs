//! Turns the artifacts of a task into text. An agent may send an artifact several times; the text
//! is sent once.

use capstan_agent::Output;
use capstan_protocol::{MediaCarousel, MediaItem, PresentationEventType};
use serde_json::{Value, json};
use url::Url;

use super::status::text_of;
use crate::decode::{member, text};
use crate::thoughts::make;

/// The text between two artifacts.
const GAP: &str = "\n\n";
/// Events that a Capstan gateway sends as data parts. They become the original events again.
const OWN: [PresentationEventType; 2] =
    [PresentationEventType::CitationBlock, PresentationEventType::MediaCarousel];

#[derive(Debug, Default)]
struct Artifact {
    id: String,
    text: String,
    /// The length of the text that existed before this run.
    before: usize,
    /// The number of other parts that were sent.
    others: usize,
}

#[derive(Debug, Default)]
pub(super) struct Artifacts {
    list: Vec<Artifact>,
    /// All text that was sent.
    sent: String,
}

impl Artifacts {
    /// Records the artifacts that existed before this run.
    pub(super) fn pass_over(&mut self, artifacts: &[Value]) {
        for artifact in artifacts {
            let (text, others) = contents(artifact);
            let (id, before) = (id_of(artifact), text.len());
            self.list.push(Artifact { id, text, before, others: others.len() });
        }
    }

    /// Takes the present artifacts. Returns true if they contain anything new.
    pub(super) fn replace_all(&mut self, artifacts: &[Value], out: &mut Vec<Output>) -> bool {
        let before = out.len();
        for artifact in artifacts {
            self.set(artifact, out);
        }
        self.send_changes(out);
        out.len() > before
    }

    /// Takes a piece of an artifact, or a replacement of it.
    pub(super) fn update(&mut self, artifact: &Value, is_added: bool, out: &mut Vec<Output>) {
        let known = self.list.iter().position(|known| known.id == id_of(artifact));
        let Some(at) = known.filter(|_| is_added) else {
            self.set(artifact, out);
            return self.send_changes(out);
        };
        let (piece, others) = contents(artifact);
        let is_last = at + 1 == self.list.len();
        if let Some(known) = self.list.get_mut(at) {
            known.text.push_str(&piece);
            known.others += others.len();
        }
        out.extend(others.into_iter().filter_map(|part| other(artifact, part)));
        if is_last {
            self.send_text(&piece, out);
        } else {
            self.send_changes(out);
        }
    }

    /// Takes a message that is the complete answer.
    pub(super) fn message(&mut self, message: &Value, out: &mut Vec<Output>) {
        let (text, others) = contents(message);
        self.send_text(&text, out);
        out.extend(others.into_iter().filter_map(|part| other(message, part)));
    }

    /// Takes the message that ends a task, unless it repeats the text that was sent.
    pub(super) fn last_message(&mut self, message: &Value, out: &mut Vec<Output>) {
        let text = text_of(message);
        if text.is_empty() || self.sent.ends_with(&text) {
            return;
        }
        let gap = if self.sent.is_empty() { "" } else { GAP };
        self.send_text(&format!("{gap}{text}"), out);
    }

    fn set(&mut self, artifact: &Value, out: &mut Vec<Output>) {
        let (id, (text, others)) = (id_of(artifact), contents(artifact));
        let at = self.list.iter().position(|known| known.id == id).unwrap_or_else(|| {
            self.list.push(Artifact { id, ..Artifact::default() });
            self.list.len() - 1
        });
        let Some(known) = self.list.get_mut(at) else { return };
        known.before = known.before.min(text.len());
        known.text = text;
        let sent_others = std::mem::replace(&mut known.others, others.len());
        out.extend(others.into_iter().skip(sent_others).filter_map(|part| other(artifact, part)));
    }

    fn send_text(&mut self, piece: &str, out: &mut Vec<Output>) {
        if !piece.is_empty() {
            self.sent.push_str(piece);
            out.push(Output::Delta(piece.to_owned()));
        }
    }

    /// Sends what the artifacts have beyond the sent text. If they lost text, sends a reset first.
    fn send_changes(&mut self, out: &mut Vec<Output>) {
        let now = self.text();
        let keep = common(&self.sent, &now);
        if keep < self.sent.len() {
            out.push(Output::Again { keep });
        }
        let rest = now.get(keep..).unwrap_or_default();
        if !rest.is_empty() {
            out.push(Output::Delta(rest.to_owned()));
        }
        self.sent = now;
    }

    fn text(&self) -> String {
        let texts = self.list.iter().filter_map(|artifact| artifact.text.get(artifact.before..));
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(GAP)
    }
}

/// The length of the common beginning of two texts, in bytes, at a character boundary.
fn common(a: &str, b: &str) -> usize {
    let equal = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    (0..=equal).rev().find(|at| a.is_char_boundary(*at)).unwrap_or(0)
}

fn id_of(artifact: &Value) -> String {
    text(artifact, "artifactId").unwrap_or_default().to_owned()
}

/// Returns the text, and the parts that are not text.
fn contents(of: &Value) -> (String, Vec<&Value>) {
    let parts = of.get("parts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    (text_of(of), parts.iter().filter(|part| part.get("text").is_none()).collect())
}

/// Converts data to an event and a file to media.
fn other(artifact: &Value, part: &Value) -> Option<Output> {
    if let Some(data) = part.get("data").filter(|data| !data.is_null()) {
        let kind = text(data, "type").filter(|kind| OWN.iter().any(|own| own.as_str() == *kind));
        return match kind {
            Some(kind) => make(kind, member(data, "data")),
            None => make("A2A_DATA", &json!({ "artifact": id_of(artifact), "data": data })),
        };
    }
    let file = part.get("file").unwrap_or(part);
    let mime = ["mediaType", "mimeType"]
        .iter()
        .find_map(|name| text(part, name).or_else(|| text(file, name)));
    let mime_type = mime.unwrap_or("application/octet-stream").to_owned();
    let at = ["url", "uri"].iter().find_map(|name| text(file, name)).map(str::to_owned);
    let bytes = || ["raw", "bytes"].iter().find_map(|name| text(file, name));
    let address = at.or_else(|| Some(format!("data:{mime_type};base64,{}", bytes()?)))?;
    let name =
        ["filename", "name"].iter().find_map(|name| text(part, name).or_else(|| text(file, name)));
    let item =
        MediaItem { url: Url::parse(&address).ok()?, mime_type, alt_text: name.map(str::to_owned) };
    make(PresentationEventType::MediaCarousel.as_str(), &MediaCarousel { items: vec![item] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(id: &str, text: &str) -> Value {
        json!({ "artifactId": id, "parts": [{ "text": text }] })
    }

    /// The text as a reader of the outputs gets it.
    fn read(out: &[Output]) -> String {
        let mut text = String::new();
        for output in out {
            if let Output::Delta(piece) = output {
                text.push_str(piece);
            } else if let Output::Again { keep } = output {
                text.truncate(*keep);
            } else {
                panic!("{output:?}");
            }
        }
        text
    }

    #[test]
    fn a_repeated_artifact_is_sent_once() {
        let (mut artifacts, mut out) = (Artifacts::default(), Vec::new());
        artifacts.update(&artifact("a", "One "), false, &mut out);
        artifacts.update(&artifact("a", "two "), true, &mut out);
        assert!(artifacts.replace_all(&[artifact("a", "One two three")], &mut out));
        assert!(!artifacts.replace_all(&[artifact("a", "One two three")], &mut out));
        assert_eq!(read(&out), "One two three");
        assert!(
            !out.iter().any(|output| matches!(output, Output::Again { .. })),
            "nothing was taken back"
        );
    }

    #[test]
    fn replaced_text_is_reset_and_artifacts_keep_their_order() {
        let (mut artifacts, mut out) = (Artifacts::default(), Vec::new());
        artifacts.update(&artifact("a", "Grün"), false, &mut out);
        artifacts.update(&artifact("a", "Grau"), false, &mut out);
        assert_eq!(read(&out), "Grau");
        artifacts.update(&artifact("b", "B"), false, &mut out);
        artifacts.update(&artifact("a", "!"), true, &mut out);
        assert_eq!(read(&out), "Grau!\n\nB");
    }

    #[test]
    fn text_from_before_this_run_is_not_sent() {
        let (mut artifacts, mut out) = (Artifacts::default(), Vec::new());
        artifacts.pass_over(&[artifact("a", "Old.")]);
        artifacts.update(&artifact("a", " New."), true, &mut out);
        artifacts.replace_all(&[artifact("a", "Old. New. Newer.")], &mut out);
        assert_eq!(read(&out), " New. Newer.");
    }
}

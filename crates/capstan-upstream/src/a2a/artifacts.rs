//! What a task has said: artifacts, one behind the other, told once however often they are
//! restated.

use capstan_agent::Output;
use capstan_protocol::{MediaCarousel, MediaItem, PresentationEventType};
use serde_json::{Value, json};
use url::Url;

use super::status::text_of;
use crate::decode::{member, text};
use crate::thoughts::make;

/// Between two artifacts.
const GAP: &str = "\n\n";
/// The events that a gateway tells as data, and that are read back.
const OWN: [PresentationEventType; 2] =
    [PresentationEventType::CitationBlock, PresentationEventType::MediaCarousel];

#[derive(Debug, Default)]
struct Artifact {
    id: String,
    text: String,
    /// So much of the text was said before this run.
    before: usize,
    /// So many other parts were told.
    others: usize,
}

#[derive(Debug, Default)]
pub(super) struct Artifacts {
    list: Vec<Artifact>,
    /// All text that was told, as it was told.
    told: String,
}

impl Artifacts {
    /// What was said before this run.
    pub(super) fn pass_over(&mut self, artifacts: &[Value]) {
        for artifact in artifacts {
            let (text, others) = contents(artifact);
            let (id, before) = (id_of(artifact), text.len());
            self.list.push(Artifact { id, text, before, others: others.len() });
        }
    }

    /// The artifacts as they are now; whether that brought anything new.
    pub(super) fn restate(&mut self, artifacts: &[Value], out: &mut Vec<Output>) -> bool {
        let before = out.len();
        for artifact in artifacts {
            self.set(artifact, out);
        }
        self.mend(out);
        out.len() > before
    }

    /// A piece, or an artifact anew.
    pub(super) fn update(&mut self, artifact: &Value, is_added: bool, out: &mut Vec<Output>) {
        let known = self.list.iter().position(|known| known.id == id_of(artifact));
        let Some(at) = known.filter(|_| is_added) else {
            self.set(artifact, out);
            return self.mend(out);
        };
        let (piece, others) = contents(artifact);
        let is_last = at + 1 == self.list.len();
        if let Some(known) = self.list.get_mut(at) {
            known.text.push_str(&piece);
            known.others += others.len();
        }
        out.extend(others.into_iter().filter_map(|part| other(artifact, part)));
        if is_last {
            self.say(&piece, out);
        } else {
            self.mend(out);
        }
    }

    /// A message that is the whole answer.
    pub(super) fn tell(&mut self, message: &Value, out: &mut Vec<Output>) {
        let (said, others) = contents(message);
        self.say(&said, out);
        out.extend(others.into_iter().filter_map(|part| other(message, part)));
    }

    /// The words with which a task ends, unless they are what it has said.
    pub(super) fn tell_last(&mut self, message: &Value, out: &mut Vec<Output>) {
        let said = text_of(message);
        if said.is_empty() || self.told.ends_with(&said) {
            return;
        }
        let gap = if self.told.is_empty() { "" } else { GAP };
        self.say(&format!("{gap}{said}"), out);
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
        let told = std::mem::replace(&mut known.others, others.len());
        out.extend(others.into_iter().skip(told).filter_map(|part| other(artifact, part)));
    }

    fn say(&mut self, piece: &str, out: &mut Vec<Output>) {
        if !piece.is_empty() {
            self.told.push_str(piece);
            out.push(Output::Delta(piece.to_owned()));
        }
    }

    /// Tells what the artifacts have beyond what was told; what they have no longer is taken back.
    fn mend(&mut self, out: &mut Vec<Output>) {
        let now = self.text();
        let keep = common(&self.told, &now);
        if keep < self.told.len() {
            out.push(Output::Again { keep });
        }
        let rest = now.get(keep..).unwrap_or_default();
        if !rest.is_empty() {
            out.push(Output::Delta(rest.to_owned()));
        }
        self.told = now;
    }

    fn text(&self) -> String {
        let texts = self.list.iter().filter_map(|artifact| artifact.text.get(artifact.before..));
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(GAP)
    }
}

/// How many bytes two texts begin with in common, in whole characters.
fn common(a: &str, b: &str) -> usize {
    let equal = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    (0..=equal).rev().find(|at| a.is_char_boundary(*at)).unwrap_or(0)
}

fn id_of(artifact: &Value) -> String {
    text(artifact, "artifactId").unwrap_or_default().to_owned()
}

/// Text, and the parts that are something else.
fn contents(of: &Value) -> (String, Vec<&Value>) {
    let parts = of.get("parts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    (text_of(of), parts.iter().filter(|part| part.get("text").is_none()).collect())
}

/// Data are an event, a file is a medium.
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

    /// The text as whoever reads the outputs has it.
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
    fn what_is_restated_is_told_once() {
        let (mut artifacts, mut out) = (Artifacts::default(), Vec::new());
        artifacts.update(&artifact("a", "One "), false, &mut out);
        artifacts.update(&artifact("a", "two "), true, &mut out);
        assert!(artifacts.restate(&[artifact("a", "One two three")], &mut out));
        assert!(!artifacts.restate(&[artifact("a", "One two three")], &mut out));
        assert_eq!(read(&out), "One two three");
        assert!(
            !out.iter().any(|output| matches!(output, Output::Again { .. })),
            "nothing was taken back"
        );
    }

    #[test]
    fn what_is_replaced_is_taken_back_and_artifacts_that_grow_by_turns_keep_their_order() {
        let (mut artifacts, mut out) = (Artifacts::default(), Vec::new());
        artifacts.update(&artifact("a", "Grün"), false, &mut out);
        artifacts.update(&artifact("a", "Grau"), false, &mut out);
        assert_eq!(read(&out), "Grau");
        artifacts.update(&artifact("b", "B"), false, &mut out);
        artifacts.update(&artifact("a", "!"), true, &mut out);
        assert_eq!(read(&out), "Grau!\n\nB");
    }

    #[test]
    fn what_was_said_before_this_run_is_not_told() {
        let (mut artifacts, mut out) = (Artifacts::default(), Vec::new());
        artifacts.pass_over(&[artifact("a", "Old.")]);
        artifacts.update(&artifact("a", " New."), true, &mut out);
        artifacts.restate(&[artifact("a", "Old. New. Newer.")], &mut out);
        assert_eq!(read(&out), " New. Newer.");
    }
}

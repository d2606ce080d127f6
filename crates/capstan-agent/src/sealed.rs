//! Sealed parts: reasoning that a client carries, so that it comes back to its maker and to nobody
//! else. docs/decisions/0027 has the reasons.
//!
//! Faces seal the parts of an answer. Faces and adapters open what a request brings back.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use capstan_protocol::{Dialect, NativeEvent, NativeOrigin, NativePart, RawJson, decode};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// What each sealed part begins with.
pub const PREFIX: &str = "cap1.";
/// What stands between the parts of a string that holds several.
const SEPARATOR: &str = ".";
/// The longest part that is sealed or opened.
pub const LONGEST: usize = 1024 * 1024;
/// So many bytes of a hash tell makers apart.
const DIGEST: usize = 16;

/// Whether a text is a sealed part.
pub fn is_sealed(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// Whether this maker made a part. A sealed part names its maker by a digest.
pub fn is_made_by(part: &NativePart, origin: &NativeOrigin) -> bool {
    part.origin == *origin || part.origin == digest(origin)
}

/// Names a maker so that it can be compared, but tells a client neither host nor model.
fn digest(origin: &NativeOrigin) -> NativeOrigin {
    let NativeOrigin { dialect, provider, model } = origin;
    let hash = Sha256::digest(format!("{provider}\n{model}"));
    let hash = URL_SAFE_NO_PAD.encode(hash.get(..DIGEST).unwrap_or_default());
    NativeOrigin { dialect: *dialect, provider: format!("sha256:{hash}"), model: String::new() }
}

/// Seals a part: a string that clients bring back untouched. `None` if it is too long.
pub fn seal(part: &NativePart) -> Option<String> {
    let whole = NativePart {
        origin: digest(&part.origin),
        part: part.to_value().into(),
        text_at: None,
        text: String::new(),
    };
    let json = serde_json::to_vec(&whole).ok()?;
    let sealed = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(json));
    (sealed.len() <= LONGEST).then_some(sealed)
}

/// Several sealed parts as one, for a place that has room for one string.
pub fn join(sealed: &[String]) -> String {
    let parts: Vec<&str> = sealed.iter().filter_map(|one| one.strip_prefix(PREFIX)).collect();
    format!("{PREFIX}{}", parts.join(SEPARATOR))
}

/// Opens sealed parts. What cannot be read is left out.
pub fn open(text: &str) -> Vec<NativePart> {
    let coded = text.strip_prefix(PREFIX).into_iter().flat_map(|all| all.split(SEPARATOR));
    coded.filter(|one| one.len() <= LONGEST).filter_map(open_part).collect()
}

fn open_part(coded: &str) -> Option<NativePart> {
    let json = URL_SAFE_NO_PAD.decode(coded).ok()?;
    let part: NativePart = decode::from_slice(&json).ok()?;
    // The parts of all protocols are objects.
    part.part.get().starts_with('{').then_some(part)
}

/// Whether a part only adds members to a call of Messages, or to its result. It is never sealed: a
/// client that does not have the call has no place for it.
pub fn is_of_tool(part: &RawJson) -> bool {
    #[derive(Deserialize)]
    struct Block {
        #[serde(rename = "type")]
        kind: String,
    }
    let block: Option<Block> = part.decode().ok();
    block.is_some_and(|Block { kind }| kind.ends_with("tool_use") || kind.ends_with("tool_result"))
}

/// Seals the parts of one answer for a client.
#[derive(Debug, Clone)]
pub struct Sealer {
    client: Dialect,
    origins: Vec<NativeOrigin>,
    /// The thoughts since the last part.
    thoughts: String,
}

impl Sealer {
    /// For a client of this protocol. `origins` are those of all agents that it may turn to.
    pub fn new(client: Dialect, origins: impl IntoIterator<Item = NativeOrigin>) -> Self {
        let origins = origins.into_iter().filter(|origin| origin.dialect == client).collect();
        Self { client, origins, thoughts: String::new() }
    }

    /// Whether the client gets parts of this origin sealed: it speaks another protocol, or another
    /// agent could get what it brings back.
    pub fn seals(&self, origin: &NativeOrigin) -> bool {
        self.client != origin.dialect || self.origins.iter().any(|other| other != origin)
    }

    /// Takes a thought, which may be the text of the next part.
    pub fn thought(&mut self, thought: &str) {
        if self.thoughts.len() + thought.len() <= LONGEST {
            self.thoughts.push_str(thought);
        }
    }

    /// Ends the thoughts before a part that is not sealed.
    pub fn skip(&mut self) {
        self.thoughts.clear();
    }

    /// Seals the part of an event, if it has one that is to be sealed.
    pub fn seal(&mut self, event: NativeEvent) -> Option<String> {
        let NativeEvent { origin, part, text_at, .. } = event;
        let part = part.filter(|part| !is_of_tool(part))?;
        // A part without a place for them holds its thoughts itself.
        let thoughts = std::mem::take(&mut self.thoughts);
        let text = text_at.as_ref().map(|_| thoughts).unwrap_or_default();
        let part = Some(NativePart { origin, part, text_at, text });
        seal(&part.filter(|part| self.seals(&part.origin))?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn origin(dialect: Dialect, model: &str) -> NativeOrigin {
        NativeOrigin { dialect, provider: "a.example".into(), model: model.into() }
    }

    fn event(text_at: Option<&str>) -> NativeEvent {
        let part = json!({ "type": "thinking", "thinking": null, "signature": "s\u{2014}" });
        NativeEvent {
            origin: origin(Dialect::AnthropicMessages, "m"),
            event: None,
            part: Some(RawJson::from(part)),
            text_at: text_at.map(str::to_owned),
        }
    }

    #[test]
    fn sealed_part_opens_with_its_text() {
        let mut sealer = Sealer::new(Dialect::OpenaiChat, []);
        sealer.thought("Hm");
        sealer.thought("m.");
        let sealed = sealer.seal(event(Some("/thinking"))).unwrap();
        assert!(is_sealed(&sealed) && sealed.is_ascii(), "{sealed}");
        let part = open(&sealed).remove(0);
        assert!(is_made_by(&part, &origin(Dialect::AnthropicMessages, "m")));
        assert!(!is_made_by(&part, &origin(Dialect::AnthropicMessages, "n")));
        assert!(!is_made_by(&part, &origin(Dialect::OpenaiChat, "m")));
        let whole = json!({ "type": "thinking", "thinking": "Hmm.", "signature": "s\u{2014}" });
        assert_eq!(part.to_value(), whole);
        let next = sealer.seal(event(Some("/thinking"))).unwrap();
        let both = open(&join(&[sealed, next]));
        assert_eq!((both.len(), &both[0]), (2, &part));
        assert_eq!(both[1].to_value()["thinking"], "", "each part has its own thoughts");
    }

    #[test]
    fn part_without_a_place_for_thoughts_ends_those_before_it() {
        let mut sealer = Sealer::new(Dialect::OpenaiChat, []);
        sealer.thought("One. Two.");
        sealer.seal(event(None)).unwrap();
        sealer.thought("Three.");
        let sealed = sealer.seal(event(Some("/thinking"))).unwrap();
        assert_eq!(open(&sealed).remove(0).to_value()["thinking"], "Three.");
    }

    #[test]
    fn part_is_sealed_where_another_agent_could_get_it() {
        let (messages, chat) = (Dialect::AnthropicMessages, Dialect::OpenaiChat);
        let seals = |client, origins: &[NativeOrigin]| {
            Sealer::new(client, origins.to_vec()).seals(&origin(messages, "m"))
        };
        assert!(seals(chat, &[]), "another protocol");
        assert!(!seals(messages, &[origin(messages, "m"), origin(chat, "n")]), "the only agent");
        assert!(seals(messages, &[origin(messages, "m"), origin(messages, "n")]), "another model");
        let mut alone = Sealer::new(messages, [origin(messages, "m")]);
        assert_eq!(alone.seal(event(None)), None);
    }

    #[test]
    fn members_of_a_tool_are_not_sealed() {
        let mut sealer = Sealer::new(Dialect::OpenaiChat, []);
        for kind in ["server_tool_use", "web_search_tool_result"] {
            let part = Some(json!({ "type": kind, "id": "s" }).into());
            assert_eq!(sealer.seal(NativeEvent { part, ..event(None) }), None, "{kind}");
        }
    }

    #[test]
    fn broken_or_forged_text_opens_to_nothing() {
        let forged = |json: &str| format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(json));
        let origin = r#""dialect":"openai-chat","provider":"p","model":"m""#;
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for text in [
            String::new(),
            "EqRkLmsig".into(),
            PREFIX.into(),
            format!("{PREFIX}!!!"),
            format!("{PREFIX}{}", "A".repeat(LONGEST + 1)),
            forged("{"),
            forged("[]"),
            forged(&format!("{{{origin}}}")),
            forged(&format!(r#"{{{origin},"part":"text"}}"#)),
            forged(&format!(r#"{{{origin},"part":{{"a":{deep}}}}}"#)),
            forged(r#"{"dialect":"latin","provider":"p","model":"m","part":{}}"#),
        ] {
            assert_eq!(open(&text), [], "{}", text.get(..60).unwrap_or(&text));
        }
        assert_eq!(open(&forged(&format!(r#"{{{origin},"part":{{}}}}"#))).len(), 1);
    }

    #[test]
    fn part_that_is_too_long_is_not_sealed() {
        let mut sealer = Sealer::new(Dialect::OpenaiChat, []);
        (0..3).for_each(|_| sealer.thought(&"x".repeat(LONGEST / 3)));
        assert_eq!(sealer.seal(event(Some("/thinking"))), None);
    }
}

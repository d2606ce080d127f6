//! Seals of thinking: signatures, redacted blocks and encrypted content that only the provider
//! that made them accepts again, each in its place.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use serde_json::Value;

use crate::protocol::{Complaint, Shape};

/// Makes and checks the seals of one provider.
#[derive(Debug)]
pub(crate) struct Sealer {
    name: String,
}

/// The content that a seal protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Signature,
    Redacted,
    Encrypted,
}

/// Characters that some encodings change, at both ends.
const HEAD: &str = "Eo8+";
const TAIL: &str = "/w==";
/// Hexadecimal digits of a hash.
const DIGITS: usize = 16;

impl Sealer {
    /// Seals of another name are foreign.
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// A seal of a text.
    pub(crate) fn seal(&self, kind: Kind, text: &str) -> String {
        self.sealed(kind, &hash(&text))
    }

    fn sealed(&self, kind: Kind, salt: &str) -> String {
        format!("{HEAD}{salt}{}{TAIL}", hash(&(kind, &self.name, salt)))
    }

    /// Whether this provider made the seal.
    fn knows(&self, kind: Kind, seal: &str) -> bool {
        let salt = seal.get(HEAD.len()..HEAD.len() + DIGITS);
        salt.is_some_and(|salt| self.sealed(kind, salt) == seal)
    }

    /// The suffix of a tool call's id, if sealed thinking must come before the call.
    pub(crate) fn digest<'a>(seals: impl Iterator<Item = &'a String>) -> String {
        let seals: Vec<&String> = seals.collect();
        if seals.is_empty() { String::new() } else { format!("_{}", hash(&seals)) }
    }

    /// The mistake in the thinking of a request. `issued` are the ids of tool calls that came after
    /// sealed thinking.
    pub(crate) fn complaint(
        &self,
        shape: Shape,
        body: &Value,
        issued: &HashSet<String>,
    ) -> Option<Complaint> {
        match shape {
            Shape::Chat => None,
            Shape::Messages if body.pointer("/thinking/type") == Some(&"disabled".into()) => None,
            Shape::Messages => {
                let messages = members(body, "messages").iter().enumerate();
                messages.map(|(at, message)| self.message(at, message, issued)).find_map(|it| it)
            }
            Shape::Responses => self.items(members(body, "input"), issued),
        }
    }

    /// Anthropic's rules for one message.
    fn message(&self, at: usize, message: &Value, issued: &HashSet<String>) -> Option<Complaint> {
        let mut seals = Vec::new();
        for (place, block) in members(message, "content").iter().enumerate() {
            let here = format!("messages.{at}.content.{place}");
            match text(block, "type") {
                "thinking" => {
                    let signature = text(block, "signature");
                    if self.seal(Kind::Signature, text(block, "thinking")) != signature {
                        return Some(invalid(format!("{here}: {SIGNATURE}")));
                    }
                    seals.push(signature.to_owned());
                }
                "redacted_thinking" => {
                    let data = text(block, "data");
                    if !self.knows(Kind::Redacted, data) {
                        return Some(invalid(format!("{here}: {REDACTED}")));
                    }
                    seals.push(data.to_owned());
                }
                "tool_use" => {
                    let is_wrong = is_misplaced(text(block, "id"), &seals, issued);
                    if is_wrong && seals.is_empty() {
                        let first = members(message, "content").first();
                        let found = first.map(|block| text(block, "type")).unwrap_or_default();
                        return Some(invalid(expected_thinking(at, found)));
                    }
                    if is_wrong {
                        return Some(invalid(format!("{here}: {MODIFIED}")));
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// OpenAI's rules for the items of Responses.
    fn items(&self, items: &[Value], issued: &HashSet<String>) -> Option<Complaint> {
        let (mut seals, mut is_group) = (Vec::new(), false);
        for item in items {
            let kind = text(item, "type");
            if kind == "reasoning" {
                if !std::mem::replace(&mut is_group, true) {
                    seals.clear();
                }
                let content = text(item, "encrypted_content");
                if !content.is_empty() && !self.knows(Kind::Encrypted, content) {
                    let code = Some("invalid_encrypted_content");
                    return Some(Complaint { code, ..invalid(unverified(content)) });
                }
                seals.push(content.to_owned());
                continue;
            }
            is_group = false;
            let id = text(item, "call_id");
            // Codex also sends the reasoning of a call that was cut, before that of the next.
            let mut places = 0..seals.len().max(1);
            let is_wrong =
                places.all(|at| is_misplaced(id, seals.get(at..).unwrap_or_default(), issued));
            if is_wrong && kind.ends_with("_call") {
                return Some(invalid(format!(
                    "Item '{id}' of type '{kind}' was provided without its required 'reasoning' \
                     item."
                )));
            }
        }
        None
    }
}

const SIGNATURE: &str = "Invalid `signature` in `thinking` block";
const REDACTED: &str = "Invalid `data` in `redacted_thinking` block";
const MODIFIED: &str = "`thinking` or `redacted_thinking` blocks in the latest assistant message \
     cannot be modified. These blocks must remain as they were in the original response.";

fn expected_thinking(at: usize, found: &str) -> String {
    format!(
        "messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found \
         `{found}`. When `thinking` is enabled, a final `assistant` message must start with a \
         thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We \
         recommend you include thinking blocks from previous turns. To avoid this requirement, \
         disable `thinking`. Please consult our documentation at \
         https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
    )
}

fn unverified(content: &str) -> String {
    let beginning: String = content.chars().take(4).collect();
    format!(
        "The encrypted content {beginning}... could not be verified. Reason: Encrypted content \
         could not be decrypted or parsed."
    )
}

fn invalid(message: String) -> Complaint {
    Complaint { status: 400, kind: "invalid_request_error", code: None, message: message.into() }
}

/// Whether one of our tool calls lacks the thinking that came before it.
fn is_misplaced(id: &str, seals: &[String], issued: &HashSet<String>) -> bool {
    issued.contains(id) && !id.ends_with(&Sealer::digest(seals.iter()))
        || issued.contains(id) && seals.is_empty()
}

fn members<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn hash(value: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    format!("{:0DIGITS$x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_seal_is_known_to_its_maker_alone_and_for_its_kind_alone() {
        let sealer = Sealer::new("here");
        let seal = sealer.seal(Kind::Redacted, "a thought");
        assert!(sealer.knows(Kind::Redacted, &seal));
        assert!(!sealer.knows(Kind::Encrypted, &seal));
        assert!(!Sealer::new("there").knows(Kind::Redacted, &seal));
        assert!(!sealer.knows(Kind::Redacted, ""));
    }

    #[test]
    fn thinking_comes_back_before_the_call_that_it_led_to_or_is_refused() {
        let sealer = Sealer::new("here");
        let signature = sealer.seal(Kind::Signature, "Hm.");
        let id = format!("call_1{}", Sealer::digest([signature.clone()].iter()));
        let issued = HashSet::from([id.clone()]);
        let thinking = |text: &str, signature: &str| {
            let kind = "thinking";
            json!({ "type": kind, "thinking": text, "signature": signature })
        };
        let call = json!({ "type": "tool_use", "id": id });
        let judge = |content: Value| {
            let body = json!({ "messages": [{ "role": "assistant", "content": content }] });
            let complaint = sealer.complaint(Shape::Messages, &body, &issued);
            complaint.map(|complaint| complaint.message.into_owned()).unwrap_or_default()
        };
        let own = thinking("Hm.", &signature);
        assert_eq!(judge(json!([own, call])), "");
        assert_eq!(judge(json!([{ "type": "tool_use", "id": "call_1" }])), "", "nobody thought");
        assert!(judge(json!([call])).contains("content.0.type: Expected `thinking`"));
        assert!(judge(json!([own, own, call])).contains("cannot be modified"));
        assert!(judge(json!([thinking("Ha.", &signature), call])).contains("Invalid `signature`"));
        assert!(judge(json!([thinking("Hm.", "x"), call])).contains("Invalid `signature`"));
        let off = json!({ "thinking": { "type": "disabled" },
        "messages": [{ "role": "assistant", "content": [call] }] });
        assert!(sealer.complaint(Shape::Messages, &off, &issued).is_none());
    }

    #[test]
    fn encrypted_reasoning_comes_back_before_its_call_or_is_refused() {
        let sealer = Sealer::new("here");
        let content = sealer.seal(Kind::Encrypted, "Hm.");
        let id = format!("call_1{}", Sealer::digest([content.clone()].iter()));
        let issued = HashSet::from([id.clone()]);
        let reasoning =
            |content: &str| json!({ "type": "reasoning", "encrypted_content": content });
        let call = json!({ "type": "function_call", "call_id": id });
        let output = json!({ "type": "function_call_output", "call_id": id });
        let judge = |input: Value| {
            let body = json!({ "input": input });
            let complaint = sealer.complaint(Shape::Responses, &body, &issued);
            complaint.map(|complaint| complaint.message.into_owned()).unwrap_or_default()
        };
        let own = reasoning(&content);
        assert_eq!(judge(json!([own, call, output])), "");
        let cut = reasoning(&sealer.seal(Kind::Encrypted, "Hm, hm."));
        assert_eq!(judge(json!([cut, own, call, output])), "");
        assert!(judge(json!([own, cut, call, output])).contains("without its required"));
        assert!(judge(json!([call, output])).contains("without its required 'reasoning' item"));
        assert!(judge(json!([reasoning("x"), call])).contains("could not be verified"));
        let foreign = Sealer::new("there").seal(Kind::Encrypted, "Hm.");
        assert!(judge(json!([reasoning(&foreign)])).contains("could not be verified"));
    }
}

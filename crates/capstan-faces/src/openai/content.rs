//! The content of a message in both APIs: a text, or parts with text, pictures, sound and files.

use std::fmt;

use capstan_agent::sealed;
use capstan_protocol::{ChatMessage, DecodeError, Modality, Part, Role};
use serde::Deserialize;
use serde::de::{Deserializer, Visitor};

use super::foreign::Foreign;
use crate::text_or::TextOr;

pub(super) type Contents = TextOr<ContentPart>;

/// A part of a message. It has the members of all types.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContentPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    refusal: Option<String>,
    image_url: Option<ImageUrl>,
    input_audio: Option<Audio>,
    file: Option<File>,
    file_id: Option<String>,
    file_data: Option<String>,
    file_url: Option<String>,
    filename: Option<String>,
}

/// An object in Chat, a text in Responses.
#[derive(Debug)]
struct ImageUrl(String);

impl<'de> Deserialize<'de> for ImageUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Object {
            url: String,
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = ImageUrl;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an object")
            }

            fn visit_str<E>(self, url: &str) -> Result<ImageUrl, E> {
                Ok(ImageUrl(url.to_owned()))
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                members: A,
            ) -> Result<ImageUrl, A::Error> {
                let members = serde::de::value::MapAccessDeserializer::new(members);
                Object::deserialize(members).map(|object| ImageUrl(object.url))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[derive(Debug, Deserialize)]
struct Audio {
    data: String,
    format: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct File {
    file_id: Option<String>,
    file_data: Option<String>,
    filename: Option<String>,
}

impl Contents {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Many(parts) if parts.is_empty())
    }

    /// The parts for any agent; `place` is the member's path in the request.
    pub(super) fn into_parts(
        self,
        place: &str,
        foreign: &mut Foreign,
    ) -> Result<Vec<Part>, DecodeError> {
        match self {
            Self::Text(content) => Ok(vec![Part::Text { content }]),
            Self::Many(parts) => {
                let mut all = Vec::with_capacity(parts.len());
                for (n, part) in parts.into_iter().enumerate() {
                    all.extend(part.into_part(&format!("{place}[{n}]"), foreign)?);
                }
                Ok(all)
            }
        }
    }

    /// The result of a call: its text, and then its pictures and files.
    pub(super) fn into_result(
        self,
        call: String,
        place: &str,
        foreign: &mut Foreign,
    ) -> Result<ChatMessage, DecodeError> {
        let (mut text, mut others) = (String::new(), Vec::new());
        match self {
            Self::Text(all) => text = all,
            Self::Many(parts) => {
                for (n, part) in parts.into_iter().enumerate() {
                    match part.text {
                        Some(piece) => text.push_str(&piece),
                        None => others.extend(part.into_part(&format!("{place}[{n}]"), foreign)?),
                    }
                }
            }
        }
        let mut message = ChatMessage::tool(call, text);
        message.parts.append(&mut others);
        Ok(message)
    }
}

impl ContentPart {
    /// The part, or `None` if only an agent of the request's protocol may know its type.
    fn into_part(self, place: &str, foreign: &mut Foreign) -> Result<Option<Part>, DecodeError> {
        let missing = |member: &str| DecodeError::value(format!("{place}.{member}"), "is missing");
        let text = |content: Option<String>, member| {
            content.map(|content| Part::Text { content }).ok_or_else(|| missing(member))
        };
        let part = match self.kind.as_str() {
            "text" | "input_text" | "output_text" => text(self.text, "text"),
            "refusal" => text(self.refusal, "refusal"),
            "image_url" | "input_image" => match (self.image_url, self.file_id) {
                (Some(ImageUrl(url)), _) => Ok(bytes_at(url, Modality::Image, None)),
                (None, Some(id)) => Ok(uploaded(id, Modality::Image, None)),
                (None, None) => Err(missing("image_url")),
            },
            "input_audio" => {
                let audio = self.input_audio.ok_or_else(|| missing("input_audio"))?;
                let mime_type = audio.format.map(|format| format!("audio/{format}"));
                let (content, modality, filename) = (audio.data, Modality::Audio, None);
                Ok(Part::Blob { content, modality, mime_type, filename })
            }
            "file" | "input_file" => {
                let inside = self.file.unwrap_or_default();
                let data = self.file_data.or(inside.file_data).or(self.file_url);
                let name = self.filename.or(inside.filename);
                match (data, self.file_id.or(inside.file_id)) {
                    (Some(data), _) => Ok(bytes_at(data, Modality::Text, name)),
                    (None, Some(id)) => Ok(uploaded(id, Modality::Text, name)),
                    (None, None) => Err(missing("file_data")),
                }
            }
            other => {
                let what = format!("{other:?} is not understood");
                foreign.add(DecodeError::value(format!("{place}.type"), what));
                return Ok(None);
            }
        };
        part.map(Some)
    }
}

/// Moves pictures and files of tool results into a user message after the results, because agents
/// take only text as a result. Consecutive results stay together.
pub(super) fn pictures_behind_results(messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
    let (mut out, mut pictures) = (Vec::with_capacity(messages.len()), Vec::new());
    for mut message in messages {
        if message.role == Role::Tool {
            let is_result = |part: &Part| matches!(part, Part::ToolCallResponse { .. });
            let result = message.parts.iter().position(is_result);
            pictures.extend(message.parts.drain(result.map_or(0, |at| at + 1)..));
        } else if message.role == Role::User {
            message.parts.splice(0..0, pictures.drain(..));
        } else if !pictures.is_empty() {
            out.push(by_user(std::mem::take(&mut pictures)));
        }
        out.push(message);
    }
    out.extend((!pictures.is_empty()).then(|| by_user(pictures)));
    out
}

fn by_user(parts: Vec<Part>) -> ChatMessage {
    ChatMessage { role: Role::User, parts, name: None }
}

/// The sealed parts that a client sends back in a member.
pub(super) fn opened(text: Option<&str>) -> Vec<Part> {
    let parts = text.map(sealed::open).unwrap_or_default();
    parts.into_iter().map(|part| Part::Native(Box::new(part))).collect()
}

fn uploaded(file_id: String, modality: Modality, filename: Option<String>) -> Part {
    Part::File { file_id, modality, mime_type: None, filename }
}

/// Reads an address: the bytes themselves if it is a `data:` address.
fn bytes_at(url: String, modality: Modality, filename: Option<String>) -> Part {
    let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(','));
    match inline.and_then(|(kind, data)| Some((kind.strip_suffix(";base64")?, data))) {
        Some((kind, data)) => {
            let mime_type = Some(kind).filter(|kind| !kind.is_empty()).map(str::to_owned);
            Part::Blob { content: data.to_owned(), modality, mime_type, filename }
        }
        None => Part::Uri { uri: url, modality, mime_type: None, filename },
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::decode;

    use super::*;

    fn parts(text: &str) -> Result<Vec<Part>, String> {
        let contents: Contents = decode::from_str(text).map_err(|e| e.to_string())?;
        let mut foreign = Foreign::default();
        let parts = contents.into_parts("content", &mut foreign).map_err(|e| e.to_string())?;
        foreign.into_first().map_or(Ok(parts), |error| Err(error.to_string()))
    }

    #[test]
    fn contents_of_both_apis_become_parts() {
        let text = |content: &str| Part::Text { content: content.into() };
        let png = || Some("image/png".to_owned());
        let picture = Part::Blob {
            content: "AA==".into(),
            modality: Modality::Image,
            mime_type: png(),
            filename: None,
        };
        let link = Part::Uri {
            uri: "https://a.example/x".into(),
            modality: Modality::Image,
            mime_type: None,
            filename: None,
        };
        for (json, expected) in [
            (r#""Hi""#, vec![text("Hi")]),
            ("null", vec![]),
            (
                r#"[{"type":"text","text":"a"},{"text":"b","type":"input_text"}]"#,
                vec![text("a"), text("b")],
            ),
            (
                r#"[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]"#,
                vec![picture.clone()],
            ),
            (r#"[{"type":"input_image","image_url":"data:image/png;base64,AA=="}]"#, vec![picture]),
            (
                r#"[{"type":"input_image","image_url":"https://a.example/x","detail":"low"}]"#,
                vec![link],
            ),
            (
                r#"[{"type":"file","file":{"file_id":"f"}}]"#,
                vec![Part::File {
                    file_id: "f".into(),
                    modality: Modality::Text,
                    mime_type: None,
                    filename: None,
                }],
            ),
        ] {
            assert_eq!(parts(json).unwrap(), expected, "{json}");
        }
    }

    #[test]
    fn pictures_of_tool_results_stand_behind_all_results() {
        let result = |id: &str| {
            let text = r#"[{"type":"text","text":"Seen."},
                {"type":"input_image","image_url":"data:image/png;base64,AA=="}]"#;
            let contents = decode::from_str::<Contents>(text).unwrap();
            contents.into_result(id.into(), "content", &mut Foreign::default()).unwrap()
        };
        let roles = |messages: Vec<ChatMessage>| -> Vec<(Role, usize)> {
            let moved = pictures_behind_results(messages);
            moved.iter().map(|message| (message.role, message.parts.len())).collect()
        };
        let (a, b) = (result("a"), result("b"));
        let alone = roles(vec![a.clone(), b.clone()]);
        assert_eq!(alone, [(Role::Tool, 1), (Role::Tool, 1), (Role::User, 2)]);
        let asks = roles(vec![a.clone(), ChatMessage::user("And?")]);
        assert_eq!(asks, [(Role::Tool, 1), (Role::User, 2)]);
        let goes_on = roles(vec![a, ChatMessage::assistant("So."), b]);
        let expected =
            [Role::Tool, Role::User, Role::Assistant, Role::Tool, Role::User].map(|role| (role, 1));
        assert_eq!(goes_on, expected);
    }

    #[test]
    fn an_invalid_part_is_named() {
        for (json, expected) in [
            ("5", "document: expected a string or an array, found integer 5"),
            (r#"[{"type":"song"}]"#, "content[0].type: \"song\" is not understood"),
            (r#"[{"type":"text"}]"#, "content[0].text: is missing"),
            (
                r#"[{"type":"text","text":"x"},{"type":"image_url"}]"#,
                "content[1].image_url: is missing",
            ),
            (
                r#"[{"type":"image_url","image_url":{}}]"#,
                "[0].image_url.url: required member is absent",
            ),
        ] {
            assert_eq!(parts(json).unwrap_err(), expected, "{json}");
        }
    }
}

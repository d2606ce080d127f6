//! Translates the messages of a request for agents of other protocols. An `anthropic` agent gets
//! them unchanged, so nothing is refused here that its provider may accept.

use capstan_agent::sealed;
use capstan_protocol::{
    Arguments, ChatMessage, DecodeError, Modality, Part, RawJson, RawObject, Role,
};
use serde::Deserialize;

use crate::text_or::TextOr;

/// The agent for which messages are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// It may speak this protocol, and know blocks that we do not know.
    Any,
    /// It speaks another protocol. Blocks that cannot be translated are refused by name.
    Other,
}

/// A message.
#[derive(Debug, Deserialize)]
pub(super) struct Message {
    role: String,
    #[serde(default)]
    content: Contents,
}

pub(super) type Contents = TextOr<Block>;

/// A block of any type, with the members of all types.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    data: Option<String>,
    source: Option<RawJson>,
    id: Option<String>,
    name: Option<String>,
    input: Option<RawObject>,
    tool_use_id: Option<String>,
    content: Option<RawJson>,
    is_error: Option<bool>,
    title: Option<String>,
}

/// The source of a picture or a document.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Source {
    #[serde(rename = "type")]
    kind: String,
    media_type: Option<String>,
    data: Option<String>,
    url: Option<String>,
    file_id: Option<String>,
    content: Contents,
}

impl Message {
    /// Translates the message. Results of tools become messages of their own, before the user's
    /// text.
    pub(super) fn into_messages(
        self,
        n: usize,
        reader: Reader,
    ) -> Result<Vec<ChatMessage>, DecodeError> {
        let place = format!("messages[{n}]");
        let role = match self.role.as_str() {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => {
                let text = text_of(self.content, &format!("{place}.content"))?;
                return Ok(vec![ChatMessage::system(text)]);
            }
            other => {
                let what = format!("{other:?} is none: user, assistant, system");
                return Err(DecodeError::value(format!("{place}.role"), what));
            }
        };
        let (mut results, mut parts) = (Vec::new(), Vec::new());
        for (n, block) in blocks(self.content).into_iter().enumerate() {
            let place = format!("{place}.content[{n}]");
            if block.kind == "tool_result" {
                let result = block.into_result(&place, reader)?;
                parts.extend(result.pictures);
                results.push(result.message);
            } else {
                match block.sealed() {
                    Some(sealed) => parts.extend(sealed),
                    None => parts.extend(block.into_part(&place, reader)?),
                }
            }
        }
        let is_empty = parts.is_empty() && results.is_empty() && role == Role::User;
        if is_empty && reader == Reader::Other {
            return Err(DecodeError::value(format!("{place}.content"), "is empty"));
        }
        if is_empty || !parts.is_empty() {
            results.push(ChatMessage { role, parts, name: None });
        }
        Ok(results)
    }
}

/// The blocks of a content. A text is one block.
fn blocks(contents: Contents) -> Vec<Block> {
    match contents {
        TextOr::Text(text) => {
            vec![Block { kind: "text".into(), text: Some(text), ..Block::default() }]
        }
        TextOr::Many(blocks) => blocks,
    }
}

/// Joins blocks of text.
pub(super) fn text_of(contents: Contents, place: &str) -> Result<String, DecodeError> {
    let blocks = match contents {
        TextOr::Text(text) => return Ok(text),
        TextOr::Many(blocks) => blocks,
    };
    let texts: Result<Vec<_>, _> = blocks
        .into_iter()
        .enumerate()
        .map(|(n, block)| {
            let missing = || DecodeError::value(format!("{place}[{n}].text"), "is missing");
            block.text.ok_or_else(missing)
        })
        .collect();
    Ok(texts?.join("\n\n"))
}

/// The result of a tool. Agents take only text as a result, so pictures go with the user's text.
struct ToolResult {
    message: ChatMessage,
    pictures: Vec<Part>,
}

impl Block {
    fn into_part(self, place: &str, reader: Reader) -> Result<Option<Part>, DecodeError> {
        let missing = |member: &str| DecodeError::value(format!("{place}.{member}"), "is missing");
        Ok(Some(match self.kind.as_str() {
            "text" => Part::Text { content: self.text.ok_or_else(|| missing("text"))? },
            "thinking" => {
                // A thought without text has a signature alone, which no other provider can use.
                let thought = self.thinking.filter(|thought| !thought.is_empty());
                return Ok(thought.map(|content| Part::Reasoning { content }));
            }
            "image" => return self.placed(Modality::Image, place, reader),
            "document" => return self.placed(Modality::Text, place, reader),
            "tool_use" => Part::ToolCall {
                name: self.name.ok_or_else(|| missing("name"))?,
                arguments: self.input.map_or_else(no_arguments, Arguments::Object),
                id: Some(self.id.ok_or_else(|| missing("id"))?),
            },
            "search_result" => Part::Text { content: self.cited(place)? },
            "" => return Err(missing("type")),
            kind if is_own_working(kind) => return Ok(None),
            kind => return unknown(&format!("{place}.type"), kind, reader),
        }))
    }

    /// The sealed reasoning that the client brings back, if it is that.
    fn sealed(&self) -> Option<impl Iterator<Item = Part> + use<>> {
        let proof = match self.kind.as_str() {
            "thinking" => self.signature.as_deref(),
            "redacted_thinking" => self.data.as_deref(),
            _ => None,
        };
        let sealed = proof.filter(|proof| sealed::is_sealed(proof))?;
        Some(sealed::open(sealed).into_iter().map(|part| Part::Native(Box::new(part))))
    }

    fn into_result(self, place: &str, reader: Reader) -> Result<ToolResult, DecodeError> {
        let missing = || DecodeError::value(format!("{place}.tool_use_id"), "is missing");
        let id = self.tool_use_id.ok_or_else(missing)?;
        let (mut texts, mut pictures) = (Vec::new(), Vec::new());
        for (n, block) in inner(self.content, place)?.into_iter().enumerate() {
            let place = format!("{place}.content[{n}]");
            match block.into_part(&place, reader)? {
                Some(Part::Text { content }) => texts.push(content),
                Some(part) => pictures.push(part),
                None => {}
            }
        }
        let text = texts.join("\n\n");
        let text = if self.is_error == Some(true) { format!("Error: {text}") } else { text };
        Ok(ToolResult { message: ChatMessage::tool(id, text), pictures })
    }

    fn cited(self, place: &str) -> Result<String, DecodeError> {
        let source: Option<String> = self.source.and_then(|source| source.decode().ok());
        let head = self.title.into_iter().chain(source);
        let texts = inner(self.content, place)?.into_iter().filter_map(|block| block.text);
        Ok(head.chain(texts).collect::<Vec<_>>().join("\n"))
    }

    fn placed(
        self,
        modality: Modality,
        place: &str,
        reader: Reader,
    ) -> Result<Option<Part>, DecodeError> {
        let missing = |member: &str| DecodeError::value(format!("{place}.{member}"), "is missing");
        let filename = self.title.filter(|title| !title.is_empty());
        let raw = self.source.ok_or_else(|| missing("source"))?;
        let Source { kind, media_type: mime_type, data, url, file_id, content } =
            raw.decode().map_err(|error| error.inside(&format!("{place}.source")))?;
        Ok(Some(match kind.as_str() {
            "base64" => {
                let content = data.ok_or_else(|| missing("source.data"))?;
                Part::Blob { content, modality, mime_type, filename }
            }
            "url" => {
                let uri = url.ok_or_else(|| missing("source.url"))?;
                Part::Uri { uri, modality, mime_type, filename }
            }
            "file" => {
                let file_id = file_id.ok_or_else(|| missing("source.file_id"))?;
                Part::File { file_id, modality, mime_type, filename }
            }
            "text" => titled(filename, data.ok_or_else(|| missing("source.data"))?),
            "content" => titled(filename, text_of(content, &format!("{place}.source.content"))?),
            kind => return unknown(&format!("{place}.source.type"), kind, reader),
        }))
    }
}

/// The text of a document, below its title.
fn titled(title: Option<String>, text: String) -> Part {
    let content = title.map_or_else(|| text.clone(), |title| format!("{title}\n{text}"));
    Part::Text { content }
}

/// Whether a block is an encrypted thought, or work of Anthropic's own servers. Only they can read
/// it again; other agents have the answer that followed.
fn is_own_working(kind: &str) -> bool {
    const OWN: [&str; 4] = ["redacted_thinking", "server_tool_use", "mcp_tool_use", "compaction"];
    OWN.contains(&kind) || kind.ends_with("_tool_result")
}

fn unknown(place: &str, kind: &str, reader: Reader) -> Result<Option<Part>, DecodeError> {
    match reader {
        Reader::Any => Ok(None),
        Reader::Other => Err(DecodeError::value(
            place,
            format!("{kind:?} is understood by agents of kind `anthropic` alone"),
        )),
    }
}

/// The blocks within a block.
fn inner(content: Option<RawJson>, place: &str) -> Result<Vec<Block>, DecodeError> {
    let Some(content) = content else { return Ok(Vec::new()) };
    let contents: Contents =
        content.decode().map_err(|error| error.inside(&format!("{place}.content")))?;
    Ok(blocks(contents))
}

fn no_arguments() -> Arguments {
    Arguments::Text("{}".into())
}

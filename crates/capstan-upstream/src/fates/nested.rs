//! Lists the values inside members that are translated for agents of other protocols. The warning
//! names every other value, once for each place.

use std::collections::BTreeSet;

use capstan_protocol::Dialect;
use serde_json::{Map, Value};

use crate::request_body::RequestBody;
use Dialect::{AnthropicMessages as Messages, OpenaiChat as Chat, OpenaiResponses as Responses};

/// The path of some objects, their types, and their translated members. An empty list of types
/// stands for any type. `[]` stands for each element of a list.
type Place = (&'static str, &'static [&'static str], &'static [&'static str]);

const CHAT: &[Place] = &[
    (
        "messages[]",
        &[],
        &[
            "role",
            "content",
            "name",
            "tool_calls",
            "tool_call_id",
            "refusal",
            "reasoning",
            "reasoning_content",
            "reasoning_details",
            // Answers of this gateway contain it, and no agent needs it.
            "annotations",
        ],
    ),
    ("messages[].content[]", &[], CONTENT),
    ("messages[].content[].image_url", &[], &["url"]),
    ("messages[].content[].input_audio", &[], &["data", "format"]),
    ("messages[].content[].file", &[], &["file_id", "file_data", "filename"]),
    (
        "messages[].tool_calls[]",
        &[],
        &["index", "id", "type", "function", "custom", "extra_content"],
    ),
    ("messages[].tool_calls[].function", &[], &["name", "arguments"]),
    ("tools[]", &["function"], &["type", "function"]),
    ("tools[].function", &[], &["name", "description", "parameters", "strict"]),
    ("tool_choice", &["function"], &["type", "function"]),
    ("response_format", &[], &["type", "json_schema"]),
    ("response_format.json_schema", &[], &["name", "schema", "strict"]),
];

const RESPONSES: &[Place] = &[
    (
        "input[]",
        super::ITEMS,
        &[
            "type",
            "id",
            "status",
            "role",
            "content",
            "call_id",
            "name",
            "namespace",
            "arguments",
            "input",
            "output",
            "tools",
            "summary",
            "encrypted_content",
        ],
    ),
    ("input[].content[]", &[], CONTENT),
    ("input[].output[]", &[], CONTENT),
    ("tools[]", &["function", "custom", "namespace"], TOOL),
    ("tools[].tools[]", &[], TOOL),
    ("tool_choice", &["function", "custom"], &["type", "name"]),
    ("reasoning", &[], &["effort"]),
    ("text", &[], &["format", "verbosity"]),
    ("text.format", &[], &["type", "name", "schema", "strict"]),
];

const MESSAGES: &[Place] = &[
    ("messages[]", &[], &["role", "content"]),
    ("messages[].content[]", &["search_result"], SEARCH_RESULT),
    ("messages[].content[]", &["document"], DOCUMENT),
    ("messages[].content[]", &[], BLOCK),
    ("messages[].content[].content[]", &["search_result"], SEARCH_RESULT),
    ("messages[].content[].content[]", &["document"], DOCUMENT),
    ("messages[].content[].content[]", &[], BLOCK),
    ("system[]", &[], &["type", "text"]),
    ("tools[]", &["custom"], &["type", "name", "description", "input_schema", "strict"]),
    ("tool_choice", &[], &["type", "name", "disable_parallel_tool_use"]),
    ("output_config", &[], &["effort", "format"]),
    ("output_config.format", &[], &["type", "schema"]),
    ("output_format", &[], &["type", "schema"]),
];

/// A part of a message in OpenAI's protocols.
const CONTENT: &[&str] = &[
    "type",
    "text",
    "refusal",
    "image_url",
    "input_audio",
    "file",
    "file_id",
    "file_data",
    "file_url",
    "filename",
    // Answers of this gateway contain these.
    "annotations",
    "logprobs",
];
const TOOL: &[&str] = &["type", "name", "description", "parameters", "strict", "tools"];
/// A block of Messages.
const BLOCK: &[&str] = &[
    "type",
    "text",
    "source",
    "id",
    "name",
    "input",
    "tool_use_id",
    "content",
    "is_error",
    "thinking",
    "signature",
    "data",
];

const DOCUMENT: &[&str] = &["type", "title", "source"];
const SEARCH_RESULT: &[&str] = &["type", "title", "source", "content", "citations"];

/// The most places in the warning.
const MOST: usize = 40;
/// The longest name in the warning, in bytes.
const LONGEST: usize = 100;

/// The places of a request that are not translated for agents of another protocol.
pub(super) fn untranslated(request: &RequestBody, from: Dialect) -> BTreeSet<String> {
    let places = match from {
        Chat => CHAT,
        Responses => RESPONSES,
        Messages => MESSAGES,
    };
    let mut walk = Walk { places, lost: BTreeSet::new() };
    for name in request.names() {
        let is_known = |(path, _, _): &Place| {
            path.strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        if places.iter().any(is_known) {
            walk.value(name, &request.read(name).unwrap_or_default());
        }
    }
    walk.lost
}

struct Walk {
    places: &'static [Place],
    lost: BTreeSet<String>,
}

impl Walk {
    fn value(&mut self, path: &str, value: &Value) {
        match value {
            Value::Array(items) => {
                let path = format!("{path}[]");
                items.iter().for_each(|item| self.value(&path, item));
            }
            Value::Object(members) => self.object(path, members),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn object(&mut self, path: &str, members: &Map<String, Value>) {
        let mut here = self.places.iter().filter(|(known, _, _)| *known == path).peekable();
        if here.peek().is_none() {
            return;
        }
        let kind = members.get("type").and_then(Value::as_str);
        let fits =
            |types: &[&str]| types.is_empty() || kind.is_none_or(|kind| types.contains(&kind));
        let Some((_, _, known)) = here.find(|(_, types, _)| fits(types)) else {
            // Items and tools of other types are named with their numbers.
            if !path.ends_with("[]") {
                self.lose(format!("{path} ({})", kind.unwrap_or_default()));
            }
            return;
        };
        for (name, value) in members {
            let path = format!("{path}.{name}");
            if known.contains(&name.as_str()) {
                self.value(&path, value);
            } else if !super::is_empty(value) {
                self.lose(path);
            }
        }
    }

    fn lose(&mut self, name: String) {
        if self.lost.len() < MOST {
            self.lost.insert(name.chars().take(LONGEST).collect());
        }
    }
}

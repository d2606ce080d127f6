//! A message of a client, and the body that is stored with its run. After a restart the run
//! continues from that body. Members may have camel-case or underscore names, as in all JSON of
//! Protocol Buffers.

use std::sync::Arc;

use capstan_protocol::agui::ResumeEntry;
use capstan_protocol::{
    ChatMessage, DecodeError, Fault, Modality, Part, RawJson, RawObject, Role, decode,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::push_config::Config;
use super::version::Version;
use capstan_engine::ask::{Ask, Extras, LONGEST_ID, RequestBody, invalid, parameters_of};

/// The parameters of `SendMessage`, in either version.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Send {
    pub(super) message: RawObject,
    #[serde(default)]
    pub(super) configuration: Configuration,
    pub(super) metadata: Option<RawJson>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Configuration {
    #[serde(alias = "return_immediately")]
    return_immediately: bool,
    #[serde(alias = "task_push_notification_config")]
    task_push_notification_config: Option<Config>,
    /// The 0.3 form of the next two members.
    blocking: Option<bool>,
    #[serde(alias = "pushNotification")]
    push_notification_config: Option<Config>,
}

impl Configuration {
    pub(super) fn is_blocking(&self, version: Version) -> bool {
        match version {
            Version::V1 | Version::V03 => !self.return_immediately && self.blocking != Some(false),
            // In 0.3, a false member is absent.
            Version::Rest03 => self.blocking == Some(true),
        }
    }

    /// The push notification config of the message.
    pub(super) fn push(&self) -> Result<Option<Config>, Fault> {
        let asked =
            self.task_push_notification_config.as_ref().or(self.push_notification_config.as_ref());
        asked.cloned().map(Config::checked).transpose()
    }
}

/// The members of a message that the gateway understands.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Message {
    #[serde(alias = "message_id")]
    pub(super) message_id: String,
    #[serde(default, alias = "context_id")]
    pub(super) context_id: String,
    #[serde(default, alias = "task_id")]
    pub(super) task_id: String,
    #[serde(default)]
    parts: Vec<MessagePart>,
    /// In 0.3 as HTTP+JSON.
    #[serde(default)]
    content: Vec<MessagePart>,
}

/// A part of either version: `{text}` or `{kind: "text", text}`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MessagePart {
    text: Option<String>,
    data: Option<RawJson>,
    url: Option<String>,
    raw: Option<String>,
    #[serde(alias = "media_type")]
    media_type: Option<String>,
    filename: Option<String>,
    /// The 0.3 form.
    file: Option<File>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    #[serde(alias = "fileWithUri")]
    uri: Option<String>,
    #[serde(alias = "fileWithBytes")]
    bytes: Option<String>,
    mime_type: Option<String>,
    name: Option<String>,
}

impl MessagePart {
    /// In HTTP+JSON of 0.3, data are one level deeper.
    fn unwrap_data(&mut self) {
        #[derive(Deserialize)]
        struct Wrapped {
            data: RawJson,
        }
        let inner =
            self.data.as_ref().and_then(|data| decode::from_str::<Wrapped>(data.get()).ok());
        self.data = inner.map(|wrapped| wrapped.data).or(self.data.take());
    }

    fn to_part(&self) -> Option<Part> {
        let file = self.file.as_ref();
        let mime_type = self.media_type.clone().or_else(|| file?.mime_type.clone());
        let filename = self.filename.clone().or_else(|| file?.name.clone());
        let modality = match mime_type.as_deref().unwrap_or_default().split('/').next() {
            Some("image") => Modality::Image,
            Some("audio") => Modality::Audio,
            Some("video") => Modality::Video,
            _ => Modality::Text,
        };
        if let Some(content) = &self.text {
            return Some(Part::Text { content: content.clone() });
        }
        if let Some(data) = &self.data {
            return Some(Part::Text { content: data.get().to_owned() });
        }
        if let Some(uri) = self.url.clone().or_else(|| file?.uri.clone()) {
            return Some(Part::Uri { uri, modality, mime_type, filename });
        }
        let content = self.raw.clone().or_else(|| file?.bytes.clone())?;
        Some(Part::Blob { content, modality, mime_type, filename })
    }
}

impl Message {
    pub(super) fn of(raw: &RawObject) -> Result<Self, Fault> {
        let mut message: Self = raw.decode().map_err(|e| in_message(&e))?;
        message.content.iter_mut().for_each(MessagePart::unwrap_data);
        message.parts.append(&mut message.content);
        if message.message_id.is_empty() || message.message_id.len() > LONGEST_ID {
            let wrong = format!("must have 1 to {LONGEST_ID} bytes");
            return Err(invalid(&DecodeError::value("message.messageId", wrong)));
        }
        if message.parts.iter().all(|part| part.to_part().is_none()) {
            return Err(invalid(&DecodeError::value(
                "message.parts",
                "must have a part that is text, a file or data",
            )));
        }
        Ok(message)
    }

    /// The message's answer to a question: its data, else its text.
    pub(super) fn answer(&self) -> RawJson {
        let data = self.parts.iter().find_map(|part| part.data.clone());
        data.unwrap_or_else(|| {
            let text: String = self.parts.iter().filter_map(|part| part.text.as_deref()).collect();
            Value::String(text).into()
        })
    }
}

fn in_message(error: &DecodeError) -> Fault {
    Fault::new(capstan_protocol::FaultKind::InvalidRequest).with_message(format!("message.{error}"))
}

/// The body of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredMessage {
    pub(super) message: RawObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<RawJson>,
    /// The task that the message continues, if it answers one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) task: Option<String>,
    /// That task's context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) answers: Vec<ResumeEntry>,
}

/// The message's id is the key, its context the session.
pub(super) fn from_a2a(body: &RequestBody) -> Result<Ask, Fault> {
    let stored: StoredMessage = body.decode()?;
    let payload = body.object()?;
    let message = Message::of(&stored.message)?;
    let parts = message.parts.iter().filter_map(MessagePart::to_part).collect();
    let turn = ChatMessage { role: Role::User, parts, name: None };
    let session = stored.context.unwrap_or(message.context_id);
    // An answer is not also a message.
    let messages = if stored.answers.is_empty() { vec![turn] } else { Vec::new() };
    let extras = Extras {
        answers: stored.answers,
        parameters: Arc::new(parameters_of(stored.metadata.as_ref())),
        forwarded: stored.metadata.map(Arc::new),
        payload: Arc::new(payload),
        ..Extras::default()
    };
    Ok(Ask { extras, ..Ask::new(message.message_id, session, messages) })
}

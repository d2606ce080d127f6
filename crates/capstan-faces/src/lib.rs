#![doc = include_str!("../README.md")]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod a2a;
mod agui;
mod ai_sdk;
mod cap;
mod durable;
mod head_members;
mod messages;
mod openai;
mod text_or;

use std::sync::Arc;

use capstan_kit::face::{BodyStep, Emit, Face, FaceWriter, RefusalTarget, Request, ViewRequest};
use capstan_kit::{accounted_body, answers, face, identity, openapi, query, refusal, webhook};
use schemars::{Schema, SchemaGenerator, json_schema};

/// The settings of single faces.
#[derive(Debug, Clone, Default)]
pub struct FaceSettings {
    /// In AG-UI, a failure is also sent as a text message.
    pub agui_error_text: bool,
    /// In OpenAI's API, a repeat without a key attaches to the run that it repeats.
    pub openai_repeats: bool,
    /// In OpenAI's API, clients may request responses over a WebSocket.
    pub openai_websocket: bool,
}

/// Creates the faces of a gateway, one row each.
pub fn all(settings: &FaceSettings) -> Vec<Arc<dyn Face>> {
    let ai_sdk = Arc::new(ai_sdk::AiSdk);
    vec![
        Arc::new(cap::Cap),
        Arc::new(agui::Agui::new(settings.agui_error_text)),
        Arc::new(openai::Chat::new(settings.openai_repeats)),
        Arc::new(openai::Responses::new(settings.openai_repeats, settings.openai_websocket)),
        Arc::new(messages::Messages::default()),
        ai_sdk.clone(),
        Arc::new(durable::Durable::new(vec![ai_sdk])),
        Arc::new(a2a::A2a),
    ]
}

/// The names of the protocols that a gateway speaks.
pub fn faces() -> Vec<&'static str> {
    all(&FaceSettings::default()).iter().map(|face| face.name()).collect()
}

/// The events of any face, for routes that serve all of them.
pub fn events_of_any_face(generator: &mut SchemaGenerator) -> Schema {
    let faces = all(&FaceSettings::default());
    let events: Vec<Schema> = faces.iter().map(|face| face.events()(generator)).collect();
    json_schema!({ "anyOf": events })
}

/// The names of all faces.
pub fn face_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "enum": faces() })
}

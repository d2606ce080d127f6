//! Encodes a turn as a service request. The bytes are the same in every attempt, so that a repeat
//! attaches to the same run.

use capstan_agent::Turn;
use capstan_protocol::{
    AgentRequest, ChatMessage, Fault, Identity, Part, ServiceRequest, SessionContext, Timestamp,
    TraceContext, UserContext, v2,
};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::parts::{self, PartPath, refused};

/// The user id that the upstream gets.
const USER: &str = "capstan";

pub(super) fn v1(turn: &Turn, system: Option<&str>) -> ServiceRequest {
    // A session id that is no UUID becomes the run's id. The history is part of the request anyway.
    let session = turn.session.parse().unwrap_or(turn.run);
    let time = time_of(turn.run);
    let context = SessionContext {
        trace: TraceContext { trace_id: turn.run, span_id: turn.run, parent_id: None },
        created_at: time,
        ..SessionContext::new(session, UserContext::new(USER))
    };
    let messages = parts::messages(turn).map(|(_, message)| message.clone());
    let messages: Vec<_> = system.map(ChatMessage::system).into_iter().chain(messages).collect();
    let mut payload = turn.payload.to_map();
    // The messages contain the first two. Ids and answers belong to this run, not to the remote
    // one.
    let replaced = ["query", "input", "threadId", "runId", "resume"];
    payload.retain(|name, _| !replaced.contains(&name.as_str()));
    let mut request = AgentRequest::messages(session, &messages);
    payload.extend(std::mem::take(&mut request.payload));
    payload.extend(members(turn));
    let request = AgentRequest {
        request_id: turn.run,
        root_request_id: turn.run,
        timestamp: time,
        payload,
        ..request
    };
    ServiceRequest { request_id: turn.run, ..ServiceRequest::new(context, request) }
}

/// The members beside the messages.
fn members(turn: &Turn) -> Map<String, Value> {
    let mut members = Map::new();
    if let Ok(Value::Object(parameters)) = serde_json::to_value(&*turn.parameters) {
        members.extend(parameters);
    }
    if !turn.answers.is_empty() {
        members.insert("resume".into(), serde_json::to_value(&*turn.answers).unwrap_or_default());
    }
    members
}

/// The time at which the run began, from its id.
fn time_of(run: Uuid) -> Timestamp {
    let (seconds, nanos) = run.get_timestamp().map_or((0, 0), |time| time.to_unix());
    let micros = i64::try_from(seconds).unwrap_or_default() * 1_000_000 + i64::from(nanos / 1000);
    Timestamp::from_micros(micros)
}

/// v2 has one question per request. The upstream finds the session by its id.
pub(super) fn v2(turn: &Turn) -> Result<v2::ServiceRequest, Fault> {
    for (index, message) in parts::messages(turn).skip(turn.history.len()) {
        for (at, part) in message.parts.iter().enumerate() {
            if !matches!(part, Part::Text { .. }) {
                let place = PartPath { message: index, part: at };
                return Err(refused(place, part, "cannot be sent in profile v2"));
            }
        }
    }
    let user = Identity { id: USER.into(), name: USER.into(), role: None };
    Ok(v2::ServiceRequest {
        request_id: turn.run,
        context: v2::SessionContext { session_id: turn.session.clone(), user, agent: None },
        payload: v2::AgentRequest {
            request_id: turn.run,
            root_request_id: turn.run,
            parent_request_id: None,
            query: turn.text(),
            files: Vec::new(),
            conversation_id: Some(turn.session.clone()),
            session_id: None,
            meta: members(turn),
        },
    })
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{Modality, Role};

    use super::*;

    #[test]
    fn every_attempt_sends_the_same_bytes() {
        let mut turn = Turn::new("Hi");
        turn.session = Uuid::now_v7().to_string();
        let mut again = turn.clone();
        again.attempt = 2;
        let bytes = |turn: &Turn| serde_json::to_string(&v1(turn, Some("Be kind."))).unwrap();
        assert_eq!(bytes(&turn), bytes(&again));
        assert!(bytes(&turn).contains("Be kind."));
    }

    #[test]
    fn a_part_that_v2_cannot_carry_is_named() {
        let part = Part::File {
            file_id: "f".into(),
            modality: Modality::Image,
            mime_type: None,
            filename: None,
        };
        let message = ChatMessage { role: Role::User, parts: vec![part], name: None };
        let fault = v2(&Turn::of(message)).unwrap_err();
        assert_eq!(
            (fault.code(), &fault.details()["path"]),
            ("invalid_request", &"messages[0].parts[0]".into())
        );
    }
}

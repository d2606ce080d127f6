//! The requests: each with a key of its own, in the form of each face and profile.

use capstan_protocol::{AgentRequest, ServiceRequest, SessionContext, UserContext};
use serde_json::{Value, json};
use uuid::Uuid;

/// A request, its bytes fixed.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    /// The key of the run.
    pub(crate) id: Uuid,
    pub(crate) body: String,
}

impl Question {
    pub(crate) fn cap(query: &str) -> Self {
        Self::cap_under(Uuid::now_v7(), query)
    }

    /// A question under a key that may be taken.
    pub(crate) fn cap_under(id: Uuid, query: &str) -> Self {
        let session = Uuid::now_v7();
        let context = SessionContext::new(session, UserContext::new("check"));
        let request = ServiceRequest {
            request_id: id,
            ..ServiceRequest::new(context, AgentRequest::query(session, query))
        };
        Self { id, body: serde_json::to_string(&request).unwrap_or_default() }
    }

    pub(crate) fn v2(query: &str) -> Self {
        let id = Uuid::now_v7();
        let context = json!({ "session_id": format!("check-{id}"), "user": { "id": "check",
        "name": "Check" } });
        Self {
            id,
            body: json!({ "request_id": id, "context": context, "payload": { "query": query } })
                .to_string(),
        }
    }

    pub(crate) fn agui(query: &str) -> Self {
        Self::agui_under(Uuid::now_v7(), query, None)
    }

    pub(crate) fn agui_under(id: Uuid, query: &str, protocol_version: Option<&str>) -> Self {
        let message = json!({ "id": Uuid::now_v7(), "role": "user", "content": query });
        let mut body = json!({ "threadId": Uuid::now_v7(), "runId": id, "state": {},
        "messages": [message], "tools": [],
            "context": [], "forwardedProps": {} });
        if let (Some(version), Some(members)) = (protocol_version, body.as_object_mut()) {
            members.insert("protocolVersion".into(), version.into());
        }
        Self { id, body: body.to_string() }
    }

    /// The same value, otherwise written.
    pub(crate) fn respaced(&self) -> Self {
        let value: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let members: serde_json::Map<_, _> =
            value.as_object().cloned().unwrap_or_default().into_iter().rev().collect();
        Self { id: self.id, body: serde_json::to_string_pretty(&members).unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_otherwise_written_is_the_same_value() {
        let question = Question::cap("Why?");
        let (one, other): (Value, Value) = (
            serde_json::from_str(&question.body).unwrap(),
            serde_json::from_str(&question.respaced().body).unwrap(),
        );
        assert_eq!(one, other);
        assert_ne!(question.body, question.respaced().body);
    }
}

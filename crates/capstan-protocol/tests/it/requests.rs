//! Requests that are built rather than read.

use capstan_protocol::model::{self, Profile};
use capstan_protocol::{
    AgentRequest, ChatMessage, Role, ServiceRequest, SessionContext, UserContext, decode,
};
use serde_json::json;
use uuid::Uuid;

fn assert_valid(request: &ServiceRequest) {
    let text = serde_json::to_string(request).unwrap();
    let canonical = model::find(Profile::V1, "ServiceRequest").unwrap().canonical(&text).unwrap();
    assert_eq!(canonical, text, "what is built is already canonical");
    assert_eq!(&decode::from_str::<ServiceRequest>(&text).unwrap(), request);
}

#[test]
fn requests_built_by_constructors_are_valid_envelopes() {
    let session = Uuid::now_v7();
    let context = SessionContext::new(session, UserContext::new("user_123"));
    let messages = [
        ChatMessage::system("Be brief."),
        ChatMessage::user("Hi"),
        ChatMessage::assistant("Hello"),
        ChatMessage::tool("c1", json!({ "n": 1 })),
    ];
    for payload in [AgentRequest::messages(session, &messages), AgentRequest::query(session, "Hi")]
    {
        assert_eq!(payload.root_request_id, payload.request_id, "a first request is its own root");
        assert_valid(&ServiceRequest::new(context.clone(), payload.clone()));
        assert_valid(&ServiceRequest {
            request_id: Uuid::nil(),
            context: context.clone(),
            payload,
        });
    }
}

#[test]
fn each_message_constructor_speaks_in_its_role() {
    for (message, role) in [
        (ChatMessage::system("x"), Role::System),
        (ChatMessage::user("x"), Role::User),
        (ChatMessage::assistant("x"), Role::Assistant),
    ] {
        assert_eq!((message.role, message.text().as_str()), (role, "x"));
    }
    assert_eq!(ChatMessage::tool("c1", "ok").role, Role::Tool);
}

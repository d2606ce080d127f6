//! The methods of JSON-RPC.

use super::version::Version;
use crate::identity::scopes::Operation;

#[derive(Clone, Copy)]
pub(super) enum Method {
    Send,
    Stream,
    Get,
    List,
    Cancel,
    Subscribe,
    PushSet,
    PushGet,
    PushList,
    PushDelete,
    Card,
}

/// The methods of both versions, by name.
pub(super) const METHODS: [(&str, Method, Version); 21] = [
    ("SendMessage", Method::Send, Version::V1),
    ("SendStreamingMessage", Method::Stream, Version::V1),
    ("GetTask", Method::Get, Version::V1),
    ("ListTasks", Method::List, Version::V1),
    ("CancelTask", Method::Cancel, Version::V1),
    ("SubscribeToTask", Method::Subscribe, Version::V1),
    ("CreateTaskPushNotificationConfig", Method::PushSet, Version::V1),
    ("GetTaskPushNotificationConfig", Method::PushGet, Version::V1),
    ("ListTaskPushNotificationConfigs", Method::PushList, Version::V1),
    ("DeleteTaskPushNotificationConfig", Method::PushDelete, Version::V1),
    ("GetExtendedAgentCard", Method::Card, Version::V1),
    ("message/send", Method::Send, Version::V03),
    ("message/stream", Method::Stream, Version::V03),
    ("tasks/get", Method::Get, Version::V03),
    ("tasks/cancel", Method::Cancel, Version::V03),
    ("tasks/resubscribe", Method::Subscribe, Version::V03),
    ("tasks/pushNotificationConfig/set", Method::PushSet, Version::V03),
    ("tasks/pushNotificationConfig/get", Method::PushGet, Version::V03),
    ("tasks/pushNotificationConfig/list", Method::PushList, Version::V03),
    ("tasks/pushNotificationConfig/delete", Method::PushDelete, Version::V03),
    ("agent/getAuthenticatedExtendedCard", Method::Card, Version::V03),
];

impl Method {
    /// The operation, which decides the scopes.
    pub(super) fn operation(self) -> Operation {
        match self {
            Self::Send | Self::Stream => Operation::Start,
            Self::Get
            | Self::List
            | Self::Subscribe
            | Self::PushGet
            | Self::PushList
            | Self::Card => Operation::Read,
            Self::Cancel => Operation::StopAndRead,
            Self::PushSet => Operation::Notify,
            Self::PushDelete => Operation::StopNotifying,
        }
    }
}

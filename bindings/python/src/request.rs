//! Prepared requests: checked, and serialised once, so that repeats have the same bytes.

use capstan_client::{Envelope, PacketStream};
use capstan_protocol::{
    AgentRequest, Profile, ServiceRequest, SessionContext, UserContext, decode, v2,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use uuid::Uuid;

use crate::{failure, imports};

/// A request that was checked and serialised.
#[pyclass(frozen, module = "coreason_client._core")]
#[derive(Debug)]
pub(crate) struct Prepared {
    profile: Profile,
    /// The key of the run.
    #[pyo3(get)]
    request_id: Uuid,
    body: Vec<u8>,
}

#[pymethods]
impl Prepared {
    /// The bytes of the body.
    #[getter]
    fn body(&self) -> &[u8] {
        &self.body
    }

    /// `v1` or `v2`.
    #[getter]
    fn profile(&self) -> String {
        self.profile.to_string()
    }
}

/// One type per profile, because the profile is a part of an envelope's type.
struct V1<'a>(&'a Prepared);
struct V2<'a>(&'a Prepared);

macro_rules! envelope {
    ($name:ident) => {
        impl Envelope for $name<'_> {
            const PROFILE: Profile = Profile::$name;

            fn request_id(&self) -> Uuid {
                self.0.request_id
            }

            fn to_body(&self) -> Vec<u8> {
                self.0.body.clone()
            }
        }
    };
}

envelope!(V1);
envelope!(V2);

impl Prepared {
    pub(crate) fn send(&self, client: &capstan_client::CapClient) -> PacketStream {
        match self.profile {
            Profile::V1 => client.assist(&V1(self)),
            Profile::V2 => client.assist(&V2(self)),
        }
    }
}

/// Checks a request: our model, a dict, or a pydantic model. A request that is valid as v1 is v1;
/// otherwise it must be valid as v2. Unknown members are sent unchanged.
#[pyfunction]
pub(crate) fn prepare(request: &Bound<'_, PyAny>) -> PyResult<Prepared> {
    let text = imports::to_json(request)?;
    let as_v1 = decode::from_str::<ServiceRequest>(&text).map(|r| (Profile::V1, r.request_id));
    let found = as_v1.or_else(|error| {
        let as_v2 = decode::from_str::<v2::ServiceRequest>(&text);
        as_v2.map(|r| (Profile::V2, r.request_id)).map_err(|_| error)
    });
    let (profile, request_id) = found.map_err(|error| failure::invalid(request.py(), &error))?;
    Ok(Prepared { profile, request_id, body: text.into_bytes() })
}

/// The request of a chat: plain text in a conversation.
#[pyfunction]
pub(crate) fn question(
    profile: &str,
    conversation: Uuid,
    message: &str,
    user_id: &str,
) -> PyResult<Prepared> {
    let profile: Profile = profile.parse().map_err(PyValueError::new_err)?;
    let wrong = |e: serde_json::Error| PyValueError::new_err(e.to_string());
    let (request_id, body) = match profile {
        Profile::V1 => {
            let context = SessionContext::new(conversation, UserContext::new(user_id));
            let request = ServiceRequest::new(context, AgentRequest::query(conversation, message));
            (request.request_id, serde_json::to_vec(&request).map_err(wrong)?)
        }
        Profile::V2 => {
            let request = v2::ServiceRequest::query(conversation, user_id, message);
            (request.request_id, serde_json::to_vec(&request).map_err(wrong)?)
        }
    };
    Ok(Prepared { profile, request_id, body })
}

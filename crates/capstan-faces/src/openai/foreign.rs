//! What only an agent of the request's own protocol can judge: values, parts, roles and tools that
//! the gateway does not know. Such an agent gets them as they came; all others refuse the request.

use capstan_protocol::DecodeError;

/// The first such thing in a request.
#[derive(Debug, Default)]
pub(super) struct Foreign(Option<DecodeError>);

impl Foreign {
    /// Adds a thing, with the reason for which other agents refuse it.
    pub(super) fn add(&mut self, error: DecodeError) {
        self.0.get_or_insert(error);
    }

    /// Adds the error of a check, if there is one.
    pub(super) fn add_from(&mut self, checked: Result<(), DecodeError>) {
        checked.err().into_iter().for_each(|error| self.add(error));
    }

    pub(super) fn into_first(self) -> Option<DecodeError> {
        self.0
    }
}

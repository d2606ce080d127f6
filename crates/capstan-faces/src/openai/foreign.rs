//! Values, parts, roles and tools that the gateway does not know. An agent of the request's
//! protocol gets them unchanged. Every other agent refuses the request.

use capstan_protocol::DecodeError;

/// The first unknown value of a request.
#[derive(Debug, Default)]
pub(super) struct Foreign(Option<DecodeError>);

impl Foreign {
    /// Adds a value, with the reason for which other agents refuse it.
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

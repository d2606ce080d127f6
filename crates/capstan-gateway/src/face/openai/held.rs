//! The run that a repeat is for, while its answer is not there yet.

use std::sync::{Arc, Mutex, PoisonError};

use capstan_engine::readers::ReaderGuard;

/// Keeps the run that a repeat is for from others that repeat the same, until its answer has begun.
#[derive(Clone, Default)]
pub(super) struct Held(Arc<Mutex<Option<ReaderGuard>>>);

impl Held {
    pub(super) fn hold(&self, reading: ReaderGuard) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
    }
}

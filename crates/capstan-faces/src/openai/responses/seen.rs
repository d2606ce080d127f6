//! The output items of an answer that its client already has, as its request shows.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The ids of these items. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen(Arc<BTreeSet<String>>);

impl Seen {
    pub(super) fn of(ids: BTreeSet<String>) -> Self {
        Self(Arc::new(ids))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.0.contains(id)
    }
}

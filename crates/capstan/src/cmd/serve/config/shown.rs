//! Formats values as in a file.

use std::path::PathBuf;
use std::time::Duration;

/// Formats a value as in a file.
pub(super) trait Shown {
    fn shown(&self) -> String;
}

impl Shown for Duration {
    fn shown(&self) -> String {
        self.as_secs_f64().to_string()
    }
}

impl Shown for PathBuf {
    fn shown(&self) -> String {
        format!("{:?}", self.display().to_string())
    }
}

impl<T: Shown> Shown for Option<T> {
    fn shown(&self) -> String {
        self.as_ref().map_or_else(|| "none".into(), Shown::shown)
    }
}

macro_rules! shown_as_it_is {
    ($($type:ty)*) => { $(impl Shown for $type {
        fn shown(&self) -> String { self.to_string() }
    })* };
}
shown_as_it_is! { u32 u64 usize }

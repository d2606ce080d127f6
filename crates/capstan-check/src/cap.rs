//! Checks of the CAP face, a file for each topic.

pub(crate) mod fail;
pub(crate) mod head;
pub(crate) mod packets;
pub(crate) mod resume;
pub(crate) mod start;
pub(crate) mod stop;
pub(crate) mod watch;
pub(crate) mod whole;

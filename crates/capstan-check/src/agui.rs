//! Checks of the AG-UI face, a file a topic. What goes beyond AG-UI itself is skipped on servers
//! that do not have it.

pub(crate) mod fail;
pub(crate) mod resume;
pub(crate) mod stream;

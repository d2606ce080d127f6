//! Checks of the AG-UI face, a file for each topic. Checks beyond AG-UI itself are skipped on
//! servers without these features.

pub(crate) mod fail;
pub(crate) mod resume;
pub(crate) mod stream;

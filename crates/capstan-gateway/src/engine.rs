//! The run engine.

pub(crate) mod ask;
pub(crate) mod conversation;
pub(crate) mod heavy;
pub(crate) mod histories;
pub(crate) mod interrupts;
pub(crate) mod lanes;
pub(crate) mod limits;
pub(crate) mod live;
pub(crate) mod lookup;
pub(crate) mod purge;
pub(crate) mod readers;
pub(crate) mod readiness;
pub(crate) mod recovery;
pub(crate) mod relay;
pub(crate) mod resume;
pub(crate) mod runs;
pub(crate) mod traces;
pub(crate) mod waits;
pub(crate) mod wall_clock;

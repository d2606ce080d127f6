//! Rules that all stores share, so that each is implemented once. Only authors of a store need this
//! module; all others use [`Store`](crate::Store).

pub mod failpoint;
pub mod planted_bug;
pub mod rules;

pub use crate::page::{Pager, faults_of, request_ids_of, trace_ids_of};
pub use crate::quota::{Rates, Tally};
pub use crate::retention::Judge;
pub use crate::rollup::{Hours, KEPT_HOURS};

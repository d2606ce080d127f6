//! What stores have in common besides the trait, decided once. For whoever writes a store;
//! everybody else goes by [`Store`](crate::Store).

pub mod failpoint;
pub mod planted_bug;
pub mod rules;

pub use crate::page::{Pager, faults_of, request_ids_of, trace_ids_of};
pub use crate::quota::{Rates, Tally};
pub use crate::retention::Judge;
pub use crate::rollup::{Hours, KEPT_HOURS};

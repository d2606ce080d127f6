//! The run contract's promises, tried against a server over the wire.
//!
//! It judges what a server sends, byte by byte, and so it knows neither the gateway nor the self-healing client: the one
//! would let it look behind the wire, the other would heal what it is to find.
//!
//! ```no_run
//! # async fn example() -> Result<(), capstan_check::Unreachable> {
//! let target = capstan_check::Target::new("http://localhost:8787".parse().unwrap());
//! let report = capstan_check::run(target, |_| ()).await?;
//! assert_eq!(report.summary.broken, 0, "{report:#?}");
//! # Ok(())
//! # }
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod agui;
mod cap;
mod check;
mod evidence;
mod frames;
mod http;
mod lab;
mod question;
mod report;
mod run;
mod table;
mod target;
mod tenants;
mod wire;

pub use check::{Check, Face, Use};
pub use evidence::Evidence;
pub use report::{Environment, Judged, Report, Summary, Verdict};
pub use run::{Progress, Unreachable, run};
pub use table::CHECKS;
pub use target::{Faces, Queries, Target};

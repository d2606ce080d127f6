#![doc = include_str!("../README.md")]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod backend;
mod clock_steps;
mod copy;
mod error;
mod finish;
mod frames;
mod health;
mod journal;
mod memory;
mod notifications;
mod page;
mod quota;
mod reader;
mod refused;
mod replica;
mod retention;
mod ring;
mod rollup;
mod run;
mod secret;
mod split;
mod store;
mod tails;
mod tokens;
mod write_retry;

pub use clock_steps::ClockSteps;
pub use copy::{Copied, copy};
pub use error::{ErrorKind, JournalError, Result};
pub use frames::{Frames, Piece};
pub use health::{Health, SharedStats, Stats};
pub use journal::Journal;
pub use memory::MemoryStore;
pub use notifications::{LeaseEpoch, Notification, Watch, Watched};
pub use page::{Budget, Query, RunPage, Status};
pub use quota::{Quota, Usage};
pub use reader::{Reader, Step};
pub use refused::{Over, Refused};
pub use replica::{BreakerState, Load, RemoteReaders, Replica, ReplicaState, Standing};
pub use retention::{Expired, Retention, TenantRetention};
pub use rollup::{Counts, FIRST_PACKET_MS, Rollup, RollupKey};
pub use run::{
    ArmedBy, Attempt, Claim, ContinuedBy, Frame, MemberUse, NameKind, Questions, Run, RunState,
    StoredTurn, Viewers,
};
pub use secret::Secret;
pub use store::{
    Catalog, Claimed, Cluster, Found, KeyRecord, Layer, Named, Peer, Records, RunCopy, SessionCopy,
    Sessions, Store, TenantHost, TenantHosts, Transfer, Transition, TurnRange,
};
pub use tails::TailLimits;
pub use tokens::{Spent, Tokens};

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
mod hold;
mod journal;
mod memory;
mod news;
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

pub use clock_steps::ClockSteps;
pub use copy::{Copied, copy};
pub use error::{ErrorKind, JournalError, Result};
pub use frames::{Frames, Piece};
pub use health::{Health, SharedStats, Stats};
pub use journal::Journal;
pub use memory::MemoryStore;
pub use news::{News, Tenure, Watch, Watched};
pub use page::{Budget, Query, RunPage, Status};
pub use quota::{Quota, Usage};
pub use reader::{Reader, Step};
pub use refused::{Over, Refused};
pub use replica::{
    BreakerNotice, Elsewhere, Home, Load, Noted, Peer, Replica, ReplicaState, Standing,
};
pub use retention::{Expired, Retention, TenantRetention};
pub use rollup::{Counts, FIRST_PACKET_MS, Rollup, RollupKey};
pub use run::{
    ArmedBy, Asked, Attempt, Claim, Frame, MemberUse, NameKind, Run, RunState, StoredTurn, Viewers,
};
pub use secret::Secret;
pub use store::{
    Catalog, Claimed, Cluster, Found, Kept, KeptSession, Layer, Named, Records, Sessions, Store,
    Transfer, Transition, TurnRange,
};
pub use tails::TailLimits;
pub use tokens::{Spent, Tokens};

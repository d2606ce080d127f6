//! Where streams live: append-only frames, run claims, session turns.
//!
//! A [`Store`] keeps them, in memory or on disk ([`open`] chooses by URL). A [`Journal`] is a store plus the live
//! tails of this process: whoever appends through it wakes the [`Reader`]s, and a frame is in the store before any
//! reader sees it. This crate knows frames and runs, not HTTP, and never looks into a frame.
//!
//! ```
//! # use capstan_journal::{Claim, Durability, Frame, Journal, Quota, Step, TailLimits, open};
//! # use capstan_protocol::Timestamp;
//! # use uuid::Uuid;
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let journal = Journal::new(open("memory:", Durability::default())?, TailLimits::default());
//! let claim = Claim::new("local", "request-1", Uuid::now_v7(), Timestamp::now());
//! let stream = journal.claim(claim, &Quota::UNLIMITED).await?.run.stream_id;
//! journal.append(stream, 1, vec![Frame::new(1, "data: hello\n\n")]).await?;
//!
//! let mut reader = journal.reader(stream, 0);
//! assert_eq!(reader.next().await?, Step::Frames(vec!["data: hello\n\n".into()]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod backend;
mod clock_steps;
mod disk;
mod error;
mod failpoint;
mod finish;
mod health;
mod hold;
mod journal;
mod memory;
mod news;
mod planted_bug;
#[cfg(feature = "postgres")]
mod postgres;
mod quota;
mod reader;
mod replica;
mod report;
mod retention;
mod ring;
mod rules;
mod run;
mod secret;
mod split;
mod store;
mod tails;

pub use backend::{Durability, Options, check_url, connect, open, open_with};
pub use clock_steps::ClockSteps;
pub use disk::{check, repair};
pub use error::{ErrorKind, JournalError};
pub use health::{Health, Stats};
pub use journal::Journal;
pub use news::{News, Tenure, Watch, Watched};
#[cfg(feature = "postgres")]
pub use postgres::{Schema, migrate};
pub use quota::{Over, Quota, Refused, Usage};
pub use reader::{Reader, Step};
pub use replica::{Replica, ReplicaState, Standing};
pub use report::{Damage, Report};
pub use retention::{Expired, Retention, TenantRetention};
pub use run::{ArmedBy, Asked, Attempt, Claim, Frame, NameKind, Run, RunState, StoredTurn};
pub use secret::Secret;
pub use store::{Claimed, Found, Store};
pub use tails::TailLimits;

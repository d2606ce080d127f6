#![doc = include_str!("../README.md")]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod disk;
mod open;
mod options;
mod packing;
#[cfg(feature = "postgres")]
mod postgres;
mod report;

pub use disk::{check, repair};
pub use open::{check_url, connect, open, open_with};
pub use options::{Durability, Options};
#[cfg(feature = "postgres")]
pub use postgres::{Schema, migrate};
pub use report::{Damage, Report};

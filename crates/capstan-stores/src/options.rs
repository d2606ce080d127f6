//! How a store is to work, whichever it is.

/// What an acknowledged append survives. Claims and transitions are always synced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// The end of this process, kill -9 included: the operating system has the bytes.
    #[default]
    Process,
    /// A power cut: the disk has the bytes. Costs an fsync for every group of appends.
    Power,
}

/// How a store is to work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// What an acknowledged append survives.
    pub durability: Durability,
    /// New runs are refused while less than this is free on the disk; 0 is never.
    pub min_free_bytes: u64,
}

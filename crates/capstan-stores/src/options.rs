//! Options of a store.

/// What an acknowledged append survives. Claims and transitions are always synced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// The end of this process, also by kill -9: the operating system has the bytes.
    #[default]
    Process,
    /// A power cut: the disk has the bytes. Costs an fsync for every group of appends.
    Power,
}

/// Options of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// What an acknowledged append survives.
    pub durability: Durability,
    /// New runs are refused while less disk space is free; 0 disables this.
    pub min_free_bytes: u64,
}

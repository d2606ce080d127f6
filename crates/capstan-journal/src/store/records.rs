//! The core of the journal: claims, runs and their packets.

use async_trait::async_trait;
use bytes::Bytes;
use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::{Layer, found};
use crate::backend::rules;
use crate::{Claim, Frame, Piece, Quota, Result, Run, RunState, StoredTurn};

/// The result of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The run of the key, from this claim or an earlier one.
    pub run: Run,
    /// Whether this claim started it.
    pub is_new: bool,
}

/// The result of a lookup by key.
// The large variant is the usual one, so boxing it would only add an allocation.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Its run.
    Run(Run),
    /// Retention has deleted the run, and its claim is still held.
    Expired,
}

/// A change of a run's state, with everything that is written in the same step.
#[derive(Debug, Clone)]
pub struct Transition {
    /// The state and attempt that the run must have; otherwise nothing happens.
    pub from: (RunState, u32),
    /// The new record.
    pub to: Run,
    /// The packets of this step.
    pub frames: Vec<Frame>,
    /// The session's turn, if the run ends.
    pub turn: Option<StoredTurn>,
    /// The limit on the tenant's waiting runs, this one included.
    pub quota: Quota,
}

impl Transition {
    /// A transition without a quota.
    pub fn new(
        from: (RunState, u32),
        to: Run,
        frames: Vec<Frame>,
        turn: Option<StoredTurn>,
    ) -> Self {
        Self { from, to, frames, turn, quota: Quota::UNLIMITED }
    }
}

/// Claims, runs and their packets.
#[async_trait]
pub trait Records: Layer {
    /// Claims (tenant, key). The first claim wins, and later ones get its run. Synced before it
    /// returns.
    ///
    /// Returns `Expired` if the key was used and its stream is deleted. Returns `Answered` if the
    /// claim's answers fit no open question of its session. Returns `Refused` if a new run would
    /// exceed `quota`. The store decides all of this in the same step as the claim, so that
    /// concurrent claims cannot exceed the quota. A refused claim writes nothing, and a repeated
    /// one is never refused.
    async fn claim(&self, claim: Claim, quota: &Quota) -> Result<Claimed> {
        found(self.below())?.claim(claim, quota).await
    }

    /// The body of the stream's claim.
    async fn body(&self, stream: Uuid) -> Result<Option<Bytes>> {
        found(self.at(stream))?.body(stream).await
    }

    /// Appends all frames or none. They are as durable as the store's setting says before it
    /// returns.
    ///
    /// Returns `Fenced` if the run is not running this attempt, and `OutOfOrder` if a `seq` is not
    /// the last one plus one.
    async fn append(&self, stream: Uuid, attempt: u32, frames: Vec<Frame>) -> Result<()> {
        found(self.at(stream))?.append(stream, attempt, frames).await
    }

    /// Changes a run by compare-and-set on (state, attempt), and writes record and frames together,
    /// synced. Returns false if another writer was faster, and always for a closed run. The turn of
    /// a run that ends is written in the same step, so a client that has seen the end can rely on
    /// it.
    ///
    /// The fields of the claim (tenant, key, agent, body hash, …) stay unchanged, whatever `to`
    /// has. Returns `OutOfOrder` as `append` does, except that the first frame may skip 2^20
    /// numbers or more, the contract's sign of a lost tail. Returns `Refused`, and changes nothing,
    /// if the run would wait and the quota of waiting runs is used up.
    async fn transition(&self, step: Transition) -> Result<bool> {
        found(self.at(step.to.stream_id))?.transition(step).await
    }

    /// Records when the answer of a closed run was written completely to a client; false if there
    /// is no such run. It is not synced: after a power cut the answer may count as not sent.
    async fn mark_sent(&self, stream: Uuid, at: Timestamp) -> Result<bool> {
        found(self.at(stream))?.mark_sent(stream, at).await
    }

    /// Reads frames after a `seq`, up to a number and a size, but at least one if there is one.
    /// Empty for an unknown stream.
    async fn read(&self, id: Uuid, after: u64, most: usize, bytes: usize) -> Result<Vec<Frame>> {
        found(self.at(id))?.read(id, after, most, bytes).await
    }

    /// The same for callers that forward the frames: one buffer, if the store has them in one.
    async fn read_on(&self, id: Uuid, after: u64, most: usize, bytes: usize) -> Result<Piece> {
        Ok(rules::piece(self.read(id, after, most, bytes).await?))
    }

    /// The run of a stream.
    async fn run(&self, stream: Uuid) -> Result<Option<Run>> {
        found(self.at(stream))?.run(stream).await
    }

    /// Whether every acknowledged frame of this stream is certainly there. False after a power cut
    /// or a failover that may have lost unsynced frames. Such a stream must be closed with a gap in
    /// its numbers, and never goes on.
    async fn is_tail_certain(&self, stream: Uuid) -> Result<bool> {
        found(self.at(stream))?.is_tail_certain(stream).await
    }

    /// Finds the run of a key.
    async fn find(&self, tenant: &str, key: &str) -> Result<Option<Found>> {
        found(self.below())?.find(tenant, key).await
    }

    /// Whether retention has deleted this stream of the tenant, and its claim is still held.
    async fn is_expired(&self, tenant: &str, stream: Uuid) -> Result<bool> {
        found(self.below())?.is_expired(tenant, stream).await
    }

    /// Erases the frames, body, record and turn of a closed stream. When it returns, no file of the
    /// store contains them. The claim stays as after an expiry, so that a repeated request starts
    /// no second run. Returns false if the stream does not exist or is open.
    async fn purge(&self, stream: Uuid, now: Timestamp) -> Result<bool> {
        found(self.at(stream))?.purge(stream, now).await
    }
}

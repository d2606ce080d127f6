//! The journal proper: claims, runs and their packets.

use async_trait::async_trait;
use bytes::Bytes;
use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::{Layer, found};
use crate::backend::rules;
use crate::{Claim, Frame, Piece, Quota, Result, Run, RunState, StoredTurn};

/// The answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The run of the key, whoever claimed it.
    pub run: Run,
    /// Whether this call claimed it.
    pub is_new: bool,
}

/// What a key stands for.
// The large variant is the usual one; boxing it would only add an allocation.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Its run.
    Run(Run),
    /// Retention deleted the run; the claim is kept a while longer.
    Expired,
}

/// A run's way from one state to another, with all that is written in the same step.
#[derive(Debug, Clone)]
pub struct Transition {
    /// State and attempt that it must have, else nothing happens.
    pub from: (RunState, u32),
    /// What it becomes.
    pub to: Run,
    /// Packets that come with it.
    pub frames: Vec<Frame>,
    /// What a run that ends leaves to its session.
    pub turn: Option<StoredTurn>,
    /// How many of the tenant's runs may wait, this one included.
    pub quota: Quota,
}

impl Transition {
    /// One that no quota hinders.
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
    /// Claims (tenant, key): the first wins, everyone else gets the winner's run. Synced before it
    /// returns.
    ///
    /// `Expired` if the key was claimed and its stream is gone; `Answered` if another claim has
    /// answered what this one answers, or nothing of the kind is asked in its session; `Refused` if
    /// a new run would be more than `quota` allows. All of that is decided in one step with the
    /// claim: however many come at once, the quota holds, and a refusal leaves nothing behind. A
    /// duplicate is never refused.
    async fn claim(&self, claim: Claim, quota: &Quota) -> Result<Claimed> {
        found(self.below())?.claim(claim, quota).await
    }

    /// The body with which the stream was claimed.
    async fn body(&self, stream: Uuid) -> Result<Option<Bytes>> {
        found(self.at(stream))?.body(stream).await
    }

    /// Appends frames, durable by the store's setting before it returns; all of them or none.
    ///
    /// `Fenced` if the run is not running this attempt, `OutOfOrder` if a seq is not the last one
    /// plus one.
    async fn append(&self, stream: Uuid, attempt: u32, frames: Vec<Frame>) -> Result<()> {
        found(self.at(stream))?.append(stream, attempt, frames).await
    }

    /// Compare-and-set on (state, attempt): writes record and frames together, synced. False if
    /// somebody was first, and always for a closed run. A run that ends leaves its turn to its
    /// session, in the same step: who has seen the end can count on it.
    ///
    /// What a claim fixed (tenant, key, agent, body hash, …) stays as it is, whatever `to` says.
    /// `OutOfOrder` as for `append`; but the first frame may also lie 2^20 or more ahead, the
    /// contract's mark of a lost tail. `Refused`, and the run is as it was, if it would wait and as
    /// many of the tenant's wait as the quota allows: decided in one step, as for a claim.
    async fn transition(&self, step: Transition) -> Result<bool> {
        found(self.at(step.to.stream_id))?.transition(step).await
    }

    /// The frames after a seq, at most so many and so many bytes, but at least one if there is one.
    /// Nothing for an unknown stream.
    async fn read(&self, id: Uuid, after: u64, most: usize, bytes: usize) -> Result<Vec<Frame>> {
        found(self.at(id))?.read(id, after, most, bytes).await
    }

    /// The same for whoever passes them on: in one piece where the store has them so.
    async fn read_on(&self, id: Uuid, after: u64, most: usize, bytes: usize) -> Result<Piece> {
        Ok(rules::piece(self.read(id, after, most, bytes).await?))
    }

    /// A stream's run.
    async fn run(&self, stream: Uuid) -> Result<Option<Run>> {
        found(self.at(stream))?.run(stream).await
    }

    /// Whether no frame that was acknowledged for this stream can be missing. False after a power
    /// cut or a failover that unsynced frames may not have survived; such a stream must be ended
    /// beyond the gap, never continued.
    async fn is_tail_certain(&self, stream: Uuid) -> Result<bool> {
        found(self.at(stream))?.is_tail_certain(stream).await
    }

    /// The run of a key.
    async fn find(&self, tenant: &str, key: &str) -> Result<Option<Found>> {
        found(self.below())?.find(tenant, key).await
    }

    /// Whether this was a stream of the tenant's that retention deleted, while its claim is still
    /// kept.
    async fn is_expired(&self, tenant: &str, stream: Uuid) -> Result<bool> {
        found(self.below())?.is_expired(tenant, stream).await
    }

    /// Erases a closed stream for good: frames, body, record, and its turn. When it returns, no
    /// file of the store holds a word of it. The claim stays as it does after an expiry, so that a
    /// duplicate starts no second run. False if there is no such stream, or it runs or waits.
    async fn purge(&self, stream: Uuid, now: Timestamp) -> Result<bool> {
        found(self.at(stream))?.purge(stream, now).await
    }
}

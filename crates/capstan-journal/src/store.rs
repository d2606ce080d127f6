//! The storage trait. Nothing in it assumes that only one process uses the store.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use capstan_protocol::Timestamp;
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use crate::{
    ArmedBy, BreakerNotice, Claim, Elsewhere, ErrorKind, Expired, Frame, Frames, Health, Home,
    JournalError, Kept, KeptSession, Load, NameKind, News, Noted, Query, Quota, ReplicaState,
    Retention, Rollup, Run, RunPage, RunState, Secret, Stats, StoredTurn, Tenure, Usage, Watch,
    copy,
};

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

/// Streams, claims and session turns.
///
/// A writing operation that was begun may take effect even if its future is dropped.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Claims (tenant, key): the first wins, everyone else gets the winner's run. Synced before it
    /// returns.
    ///
    /// `Expired` if the key was claimed and its stream is gone; `Answered` if another claim has
    /// answered what this one answers, or nothing of the kind is asked in its session; `Refused` if
    /// a new run would be more than `quota` allows. All of that is decided in one step with the
    /// claim: however many come at once, the quota holds, and a refusal leaves nothing behind. A
    /// duplicate is never refused.
    async fn claim(&self, claim: Claim, quota: &Quota) -> Result<Claimed, JournalError>;

    /// The body with which the stream was claimed.
    async fn body(&self, stream: Uuid) -> Result<Option<Bytes>, JournalError>;

    /// Appends frames, durable by the store's setting before it returns; all of them or none.
    ///
    /// `Fenced` if the run is not running this attempt, `OutOfOrder` if a seq is not the last one
    /// plus one.
    async fn append(
        &self,
        stream: Uuid,
        attempt: u32,
        frames: Vec<Frame>,
    ) -> Result<(), JournalError>;

    /// Compare-and-set on (state, attempt): writes record and frames together, synced. False if
    /// somebody was first, and always for a closed run. A run that ends leaves its turn to its
    /// session, in the same step: who has seen the end can count on it.
    ///
    /// What a claim fixed (tenant, key, agent, body hash, …) stays as it is, whatever `to` says.
    /// `OutOfOrder` as for `append`; but the first frame may also lie 2^20 or more ahead, the
    /// contract's mark of a lost tail.
    async fn transition(
        &self,
        from: (RunState, u32),
        to: Run,
        frames: Vec<Frame>,
        turn: Option<StoredTurn>,
    ) -> Result<bool, JournalError>;

    /// A transition to `Waiting`, unless as many of the tenant's runs wait as the quota allows:
    /// then `Refused`, and the run is as it was. Decided in one step, as for a claim.
    async fn suspend(
        &self,
        from: (RunState, u32),
        to: Run,
        frames: Vec<Frame>,
        quota: &Quota,
    ) -> Result<bool, JournalError>;

    /// The frames after a seq, up to both limits, but at least one if there is one. Nothing for an
    /// unknown stream.
    async fn read(
        &self,
        stream: Uuid,
        after: u64,
        max_packets: usize,
        max_bytes: usize,
    ) -> Result<Vec<Frame>, JournalError>;

    /// The same for whoever passes them on: the frames, in one piece where the store has them so,
    /// and the last one's seq.
    async fn read_on(
        &self,
        stream: Uuid,
        after: u64,
        max_packets: usize,
        max_bytes: usize,
    ) -> Result<Option<(Frames, u64)>, JournalError> {
        let frames = self.read(stream, after, max_packets, max_bytes).await?;
        let last = frames.last().map(|frame| frame.seq);
        Ok(last.map(|last| (frames.into_iter().collect(), last)))
    }

    /// A stream's run.
    async fn run(&self, stream: Uuid) -> Result<Option<Run>, JournalError>;

    /// Whether no frame that was acknowledged for this stream can be missing. False after a power
    /// cut or a failover that unsynced frames may not have survived; such a stream must be ended
    /// beyond the gap, never continued.
    async fn is_tail_certain(&self, _stream: Uuid) -> Result<bool, JournalError> {
        Ok(true)
    }

    /// The run of a key.
    async fn find(&self, tenant: &str, key: &str) -> Result<Option<Found>, JournalError>;

    /// Whether this was a stream of the tenant's that retention deleted, while its claim is still
    /// kept.
    async fn is_expired(&self, tenant: &str, stream: Uuid) -> Result<bool, JournalError>;

    /// A tenant's runs, newest first, older than `before`.
    async fn list(
        &self,
        tenant: &str,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>, JournalError>;

    /// A tenant's runs with a name, newest first, older than `before`.
    async fn named(
        &self,
        tenant: &str,
        kind: NameKind,
        name: &str,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>, JournalError>;

    /// A page of runs, of several tenants or of all, newest first: within the query's budget, and
    /// with a word on how far it looked. It takes few of the store's reads at once, so that nobody
    /// who reads a stream waits for it.
    async fn page(&self, _query: Query) -> Result<RunPage, JournalError> {
        Err(JournalError::new(ErrorKind::Unsupported, "this journal cannot be looked through"))
    }

    /// Runs that run and whose process is gone, now this process's to end. Where only one process
    /// can use the store these are all that run, so it is to be asked before the first claim.
    async fn orphans(&self, limit: usize) -> Result<Vec<Run>, JournalError>;

    /// Runs that wait for a gateway, any gateway, to go on with them.
    async fn unarmed(&self, limit: usize) -> Result<Vec<Run>, JournalError> {
        let open = self.open_runs().await?.into_iter();
        let is_unarmed =
            |run: &Run| run.state == RunState::Waiting && run.armed_by == ArmedBy::Gateway;
        Ok(open.filter(is_unarmed).take(limit).collect())
    }

    /// Runs that wait and have not changed since `before`.
    async fn waiting(&self, before: Timestamp, limit: usize) -> Result<Vec<Run>, JournalError>;

    /// All runs that run or wait, of all tenants.
    async fn open_runs(&self) -> Result<Vec<Run>, JournalError>;

    /// A session's turns from a number on, in order, up to both limits, but at least one if there
    /// is one. Bytes are those that the turns take in the store.
    async fn turns(
        &self,
        tenant: &str,
        session: &str,
        from: u64,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<StoredTurn>, JournalError>;

    /// How many turns a session has; it costs no look at them.
    async fn turn_count(&self, tenant: &str, session: &str) -> Result<u64, JournalError>;

    /// Whether the tenant has this session.
    async fn has_session(&self, tenant: &str, session: &str) -> Result<bool, JournalError>;

    /// How many sessions a tenant has. A session begins with its first claim or turn.
    async fn sessions(&self, tenant: &str) -> Result<u64, JournalError>;

    /// What a tenant has, and one session of it, as far as it is written: what claims are measured
    /// by.
    async fn usage(&self, tenant: &str, session: &str) -> Result<Usage, JournalError>;

    /// Erases a closed stream for good: frames, body, record, and its turn. When it returns, no
    /// file of the store holds a word of it. The claim stays as it does after an expiry, so that a
    /// duplicate starts no second run. False if there is no such stream, or it runs or waits.
    async fn purge(&self, stream: Uuid, now: Timestamp) -> Result<bool, JournalError>;

    /// Erases a session and its turns for good, as `purge` does; its streams are left. False if the
    /// tenant has no such session.
    async fn purge_session(&self, tenant: &str, session: &str) -> Result<bool, JournalError>;

    /// Deletes what the retention no longer covers, in small steps between which appends go on.
    async fn expire(&self, retention: &Retention, now: Timestamp) -> Result<Expired, JournalError>;

    /// A secret of the store's own, made when it first was used: whoever uses the store can check
    /// what was signed with it.
    async fn secret(&self) -> Result<Secret, JournalError>;

    /// Whether other processes may use the store at the same time. All that follows is for such a
    /// store.
    fn is_shared(&self) -> bool {
        false
    }

    /// What others write to the streams that are watched, as it becomes known. Whoever asks first
    /// gets it.
    fn news(&self) -> Option<mpsc::Receiver<News>> {
        None
    }

    /// Follows a stream that others may write, for as long as what is returned lives.
    fn watch(&self, _stream: Uuid) -> Option<Watch> {
        None
    }

    /// For how long the runs that were claimed, armed or taken over here are this process's.
    fn tenure(&self) -> Tenure {
        watch::Sender::new(0).subscribe()
    }

    /// Asks whoever works on the run to stop; false if it does not run this attempt. It may have
    /// been asked although this fails, and asking twice does no harm.
    async fn ask_stop(&self, _stream: Uuid, _attempt: u32) -> Result<bool, JournalError> {
        Ok(false)
    }

    /// Whether somebody has asked that this run stops.
    async fn is_stop_asked(&self, _stream: Uuid) -> Result<bool, JournalError> {
        Ok(false)
    }

    /// The runs of this process that somebody has asked to stop, perhaps more than once. Whoever
    /// asks first gets it.
    fn stops(&self) -> Option<mpsc::Receiver<Uuid>> {
        None
    }

    /// Lets the others know that somebody reads this run here, or nobody any more. Told for runs
    /// that only their readers look after.
    fn mark_read(&self, _stream: Uuid, _is_read: bool) {}

    /// Marks such a run as read here, unless somebody reads it in another process: of several that
    /// ask at once, one gets it.
    async fn take_unread(&self, _stream: Uuid) -> Result<bool, JournalError> {
        Ok(true)
    }

    /// Who reads such a run in other processes, and until when they expect its tenant back.
    async fn elsewhere(&self, _stream: Uuid, _tenant: &str) -> Result<Elsewhere, JournalError> {
        Ok(Elsewhere::default())
    }

    /// Lets the others know that somebody of this tenant was told to come back after so long.
    fn expect(&self, _tenant: &str, _within: Duration) {}

    /// For how long a run is this process's; as `tenure`, but what lives in memory is nobody
    /// else's.
    fn tenure_of(&self, _stream: Uuid) -> Tenure {
        self.tenure()
    }

    /// Where a tenant lives of whom nothing is stored; it moves in here if it lives nowhere and
    /// may.
    async fn home(&self, _tenant: &str, _may_move_in: bool) -> Result<Home, JournalError> {
        Ok(Home::Here)
    }

    /// Notes that a key of such a tenant is taken by a stream of which nothing is stored. The key
    /// is a hash.
    async fn note(
        &self,
        _tenant: &str,
        _key: &str,
        _stream: Uuid,
        _now: Timestamp,
    ) -> Result<Noted, JournalError> {
        Ok(Noted::New)
    }

    /// Takes back a note: the run was not begun.
    async fn unnote(&self, _tenant: &str, _key: &str, _stream: Uuid) -> Result<(), JournalError> {
        Ok(())
    }

    /// What all processes know of upstreams that fail.
    async fn breakers(&self) -> Result<Vec<BreakerNotice>, JournalError> {
        Ok(Vec::new())
    }

    /// Tells the others.
    async fn set_breaker(&self, _notice: &BreakerNotice) -> Result<(), JournalError> {
        Ok(())
    }

    /// Whether the store asks for a newer build than this one, which has to leave.
    fn outdated(&self) -> watch::Receiver<bool> {
        watch::Sender::new(false).subscribe()
    }

    /// This process's name among those that use the store.
    fn replica_name(&self) -> Option<&str> {
        None
    }

    /// Who uses the store.
    async fn replicas(&self) -> Result<Vec<ReplicaState>, JournalError> {
        Ok(Vec::new())
    }

    /// Lets the others know what this process has to do, with its next sign of life.
    fn set_load(&self, _load: Load) {}

    /// Lets the others know that this process takes no new runs.
    fn drain(&self) {}

    /// How the store feels, as it changes.
    fn health(&self) -> watch::Receiver<Health> {
        watch::Sender::new(Health::Well).subscribe()
    }

    /// The newest time that the store has written down, as far as it can tell at once: what the
    /// clock said then.
    fn newest(&self) -> Option<Timestamp> {
        None
    }

    /// What the store knows of itself.
    fn stats(&self) -> Stats {
        Stats::default()
    }

    /// Adds what was counted to what this process has counted before. Numbers for people: a crash
    /// may lose the latest.
    async fn add_rollups(&self, _rollups: Vec<Rollup>) -> Result<(), JournalError> {
        Ok(())
    }

    /// What was counted from an hour up to another, both included, by all processes; kept for 30
    /// days.
    async fn rollups(&self, _from: i64, _to: i64) -> Result<Vec<Rollup>, JournalError> {
        Ok(Vec::new())
    }

    /// Runs of all tenants, the oldest first, after a stream: for whoever copies them into another
    /// store.
    async fn runs_after(&self, _after: Uuid, _limit: usize) -> Result<Vec<Run>, JournalError> {
        Err(copy::not_copied())
    }

    /// Takes in a run of another store as it is there, its packets and its claim, in one step;
    /// false if its stream or its key is there already, and then nothing is changed. One that runs
    /// is an orphan here.
    async fn import(&self, _kept: Kept) -> Result<bool, JournalError> {
        Err(copy::not_copied())
    }

    /// Takes in a session of another store, and those of its turns that are not there, under their
    /// numbers.
    async fn import_session(&self, _kept: KeptSession) -> Result<(), JournalError> {
        Err(copy::not_copied())
    }

    /// Syncs everything and ends writing: later writes are `Unavailable`.
    async fn close(&self) -> Result<(), JournalError>;
}

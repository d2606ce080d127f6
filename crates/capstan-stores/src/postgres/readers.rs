//! Who reads runs that only their readers look after: a row for a run and a process. Written in
//! groups on a lane of its own, in the order in which readers come and go, and told anew whenever
//! the server or the lease may have lost it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use capstan_journal::{Elsewhere, JournalError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use super::link::{Failure, Link};
use super::rows::{column, is_name};
use super::wire::Wire;
use super::{Shared, closed};

/// How many marks are written at once.
const GROUP: usize = 1024;
/// How often it is looked whether this process has another seat.
const LOOK: Duration = Duration::from_secs(1);
/// As shares of the lease: how often it is asked again for what a process may read that gives no
/// sign of life, and when nobody asks any more.
const AGAIN: f64 = 0.05;
const TAKES_LEASES: f64 = 2.0;

const COME: &str = "insert into capstan.readers select stream, $1, null from unnest($2::uuid[]) \
 stream \
    on conflict (stream, replica) do update set left_at = null";
const LEAVE: &str = "select capstan.unread_1($1, $2)";
const TAKE: &str = "select capstan.take_1($1, $2)";
const EXPECT: &str = "insert into capstan.expected as e values ($1, clock_timestamp() + \
 $2::bigint * interval '1 millisecond') \
    on conflict (tenant) do update set until = greatest(e.until, excluded.until)";
const ELSEWHERE: &str = "select is_read, unread_for, (select (extract(epoch from until - \
 clock_timestamp()) * 1000)::bigint \
    from capstan.expected where tenant = $3) from capstan.read_1($1, $2)";
const IS_READ: &str = "select exists (select 1 from capstan.readers m \
    join capstan.replicas p on p.id = m.replica where m.stream = $2 and m.replica <> $1 \
    and m.left_at is null and p.state < 3 \
    and p.seen_at > clock_timestamp() - $3::bigint * interval '1 millisecond')";
/// What nobody asks for any more. Rows of the dead go with them.
pub(super) const FORGET: [&str; 2] = [
    "delete from capstan.readers where left_at < clock_timestamp() - interval '1 hour'",
    "delete from capstan.expected where until < clock_timestamp()",
];

/// What a process has to say of its readers.
pub(super) enum Mark {
    /// The first came, or the last left.
    Reads(Uuid, bool),
    /// A claim under this seat has written that it is read.
    Claimed(Uuid, Uuid),
    /// Somebody wants it for itself.
    Takes(Uuid, oneshot::Sender<bool>),
    /// Somebody of the tenant was told to wait.
    Expects(String, Duration),
}

impl Shared {
    /// Takes it unless a living process reads it. One that has just died still has its readers: it
    /// is believed by its next sign of life alone, and waited for until its lease is over.
    pub(super) async fn take_unread(&self, stream: Uuid) -> Result<bool, JournalError> {
        let asked = Instant::now();
        while !self.take(stream).await? {
            let is_over = asked.elapsed() > self.part_of_lease(TAKES_LEASES);
            if is_over || self.is_read_since(stream, asked).await? {
                return Ok(false);
            }
            tokio::time::sleep(self.part_of_lease(AGAIN).min(LOOK)).await;
        }
        Ok(true)
    }

    /// Whether a process reads it that has given a sign of life since.
    async fn is_read_since(&self, stream: Uuid, asked: Instant) -> Result<bool, JournalError> {
        let since = i64::try_from(asked.elapsed().as_millis()).unwrap_or(i64::MAX);
        let rows = self.reads.query(IS_READ, &[&self.me(), &stream, &since]).await?;
        rows.first().map_or(Ok(false), |row| column(row, 0)).map_err(Failure::into_error)
    }

    /// Who is not told does not have it.
    async fn take(&self, stream: Uuid) -> Result<bool, JournalError> {
        let (reply, taken) = oneshot::channel();
        self.marks.send(Mark::Takes(stream, reply)).map_err(|_| closed())?;
        Ok(taken.await.unwrap_or(false))
    }

    pub(super) async fn elsewhere(
        &self,
        stream: Uuid,
        tenant: &str,
    ) -> Result<Elsewhere, JournalError> {
        let rows = self.reads.query(ELSEWHERE, &[&self.me(), &stream, &tenant]).await?;
        let millis = |row: &tokio_postgres::Row, at: usize| -> Result<Option<Duration>, Failure> {
            let millis: Option<i64> = column(row, at)?;
            Ok(millis.map(|millis| Duration::from_millis(millis.max(0).cast_unsigned())))
        };
        let read = |row: &tokio_postgres::Row| -> Result<Elsewhere, Failure> {
            let expected = millis(row, 2)?.unwrap_or_default();
            Ok(Elsewhere { is_read: column(row, 0)?, unread_for: millis(row, 1)?, expected })
        };
        rows.first().map_or(Ok(Elsewhere::default()), read).map_err(Failure::into_error)
    }
}

pub(super) async fn run(shared: Arc<Shared>, mut marks: mpsc::UnboundedReceiver<Mark>) {
    let seat = shared.me();
    // Nothing of it is worth a wait: what a crash takes is told again.
    let wire = Wire::new(shared, "set synchronous_commit = off");
    let mut lane = Lane { wire, seat, here: HashSet::new(), said: Said::default() };
    let mut group = Vec::new();
    loop {
        match tokio::time::timeout(LOOK, marks.recv_many(&mut group, GROUP)).await {
            Ok(0) => return,
            Ok(_) | Err(_) => group.drain(..).for_each(|mark| lane.hear(mark)),
        }
        lane.catch_up().await;
    }
}

/// What is to be written.
#[derive(Default)]
struct Said {
    came: HashSet<Uuid>,
    left: HashSet<Uuid>,
    takes: Vec<(Uuid, oneshot::Sender<bool>)>,
    expected: HashMap<String, Duration>,
}

struct Lane {
    wire: Wire,
    /// Under which all that is here was written.
    seat: Uuid,
    here: HashSet<Uuid>,
    said: Said,
}

impl Lane {
    fn hear(&mut self, mark: Mark) {
        match mark {
            Mark::Claimed(stream, seat) if seat == self.seat => _ = self.here.insert(stream),
            Mark::Claimed(stream, _) => self.hear(Mark::Reads(stream, true)),
            Mark::Reads(stream, true) => {
                self.here.insert(stream);
                self.said.left.remove(&stream);
                self.said.came.insert(stream);
            }
            Mark::Reads(stream, false) => {
                self.here.remove(&stream);
                self.said.came.remove(&stream);
                self.said.left.insert(stream);
            }
            Mark::Takes(stream, reply) => self.said.takes.push((stream, reply)),
            Mark::Expects(tenant, within) if is_name(&tenant) => {
                let known = self.said.expected.entry(tenant).or_default();
                *known = within.max(*known);
            }
            Mark::Expects(..) => {}
        }
    }

    async fn catch_up(&mut self) {
        let me = self.wire.shared.me();
        if me != self.seat || self.wire.is_down() {
            self.said.came.clone_from(&self.here);
            self.seat = me;
        }
        match self.write().await {
            Ok(()) => self.wire.rest(),
            Err(failure) => {
                // Who waits for a run starts one of its own.
                self.said.takes.clear();
                self.wire.failed(&failure).await;
            }
        }
    }

    async fn write(&mut self) -> Result<(), Failure> {
        let Self { wire, seat, here, said } = self;
        if said.came.is_empty()
            && said.left.is_empty()
            && said.takes.is_empty()
            && said.expected.is_empty()
        {
            return Ok(());
        }
        let link = wire.link().await?;
        tell(link, COME, *seat, &mut said.came).await?;
        tell(link, LEAVE, *seat, &mut said.left).await?;
        while let Some((stream, reply)) = said.takes.pop().filter(|(_, reply)| !reply.is_closed()) {
            let taken = take(link, *seat, stream).await;
            let is_told = reply.send(matches!(taken, Ok(true))).is_ok();
            match taken {
                Ok(true) if is_told => _ = here.insert(stream),
                Ok(false) => {}
                // Who has gone meanwhile, or does not know, does not leave it taken.
                Ok(true) | Err(_) => _ = said.left.insert(stream),
            }
            taken?;
        }
        for (tenant, within) in said.expected.drain() {
            let millis = i64::try_from(within.as_millis()).unwrap_or(i64::MAX);
            link.query(EXPECT, &[&tenant, &millis]).await?;
        }
        tell(link, LEAVE, *seat, &mut said.left).await
    }
}

/// Writes it for all of these at once, unless there are none.
async fn tell(
    link: &Link,
    statement: &'static str,
    seat: Uuid,
    streams: &mut HashSet<Uuid>,
) -> Result<(), Failure> {
    if !streams.is_empty() {
        let all: Vec<Uuid> = streams.iter().copied().collect();
        link.query(statement, &[&seat, &all]).await?;
        streams.clear();
    }
    Ok(())
}

async fn take(link: &Link, seat: Uuid, stream: Uuid) -> Result<bool, Failure> {
    column(&link.one(TAKE, &[&seat, &stream]).await?, 0)
}

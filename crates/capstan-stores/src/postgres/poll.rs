//! Polls the streams that readers of this process follow. Notifications may be lost; this query
//! always finds what was written.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use capstan_journal::JournalError;
use capstan_journal::Notification;
use capstan_journal::backend::planted_bug;
use uuid::Uuid;

use super::Shared;
use super::connection::Failure;
use super::peer_message::state_of;
use super::rows::column;

/// The longest delay that a lost notification can cause.
const INTERVAL: Duration = Duration::from_secs(1);

const STATES: &str = "select r.stream, r.attempt, r.state, \
    greatest(r.last_seq, coalesce(b.last_seq, 0)) from capstan.runs r \
    left join lateral (select b.last_seq from capstan.blocks b where b.stream = r.stream \
    order by b.last_seq desc limit 1) b on r.state = 1 where r.stream = any($1)";

pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        let _ = tokio::time::timeout(INTERVAL, shared.poll_now.notified()).await;
        if planted_bug::is(planted_bug::Bug::NoPoll) {
            continue;
        }
        // After a failure, the next poll follows in a second.
        let _ = poll(&shared).await;
    }
}

async fn poll(shared: &Shared) -> Result<(), JournalError> {
    let streams = shared.watched.streams();
    if streams.is_empty() {
        return Ok(());
    }
    let rows = shared.reads.query(STATES, &[&streams]).await?;
    let mut erased: HashSet<Uuid> = streams.into_iter().collect();
    for row in rows {
        let read = || -> Result<_, Failure> {
            Ok((
                column::<Uuid>(&row, 0)?,
                column::<i32>(&row, 1)?,
                column::<i16>(&row, 2)?,
                column::<i64>(&row, 3)?,
            ))
        };
        let (stream, attempt, state, last_seq) = read().map_err(Failure::into_error)?;
        erased.remove(&stream);
        let Some(state) = state_of(state) else { continue };
        let (standing, last_seq) = ((attempt.cast_unsigned(), state), last_seq.cast_unsigned());
        shared.watched.learn(stream, standing);
        send(shared, Notification::State { stream, standing, last_seq }).await;
    }
    for stream in erased {
        send(shared, Notification::Erased(stream)).await;
    }
    Ok(())
}

async fn send(shared: &Shared, notification: Notification) {
    let _ = shared.notifications.send(notification).await;
}

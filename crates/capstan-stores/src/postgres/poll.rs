//! Looks at the streams that somebody here follows: whatever notices tell, or fail to tell, this is
//! the truth.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use capstan_journal::JournalError;
use capstan_journal::News;
use capstan_journal::backend::planted_bug;
use uuid::Uuid;

use super::Shared;
use super::link::Failure;
use super::notice::state_of;
use super::rows::column;

/// A lost notice costs this long.
const EVERY: Duration = Duration::from_secs(1);

const STANDS: &str = "select r.stream, r.attempt, r.state, greatest(r.last_seq, \
 coalesce(b.last_seq, 0)) from capstan.runs r \
    left join lateral (select b.last_seq from capstan.blocks b where b.stream = r.stream order by \
    b.last_seq desc limit 1) b \
    on r.state = 1 where r.stream = any($1)";

pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        let _ = tokio::time::timeout(EVERY, shared.behind.notified()).await;
        if planted_bug::is(planted_bug::Bug::NoPoll) {
            continue;
        }
        // It is asked again in a second.
        let _ = look(&shared).await;
    }
}

async fn look(shared: &Shared) -> Result<(), JournalError> {
    let streams = shared.watched.streams();
    if streams.is_empty() {
        return Ok(());
    }
    let rows = shared.reads.query(STANDS, &[&streams]).await?;
    let mut gone: HashSet<Uuid> = streams.into_iter().collect();
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
        gone.remove(&stream);
        let Some(state) = state_of(state) else { continue };
        let standing = (attempt.cast_unsigned(), state);
        shared.watched.heard(stream, standing);
        tell(shared, News::Stands { stream, standing, last_seq: last_seq.cast_unsigned() }).await;
    }
    for stream in gone {
        tell(shared, News::Gone(stream)).await;
    }
    Ok(())
}

async fn tell(shared: &Shared, news: News) {
    let _ = shared.news.send(news).await;
}

//! How packets lie in the database.

use std::sync::Arc;

use capstan_journal::{Replica, Store};
use capstan_stores::Durability;
use uuid::Uuid;

use crate::postgres_server::Database;
use crate::{begin, frames};

const EVERYTHING: usize = usize::MAX;

/// The first byte of the last block of a stream: 1 if it is plain, 2 if it is packed.
fn kind(database: &Database, stream: Uuid) -> String {
    database.sql(&format!(
        "select get_byte(data, 0) from capstan.blocks where stream = '{stream}' order by last_seq \
         desc limit 1"
    ))
}

async fn store(database: &Database) -> Arc<dyn Store> {
    database.store(Durability::Process, Replica::default()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn packets_are_packed_only_where_everybody_can_read_them() {
    let database = Database::create();
    // As it was made by a build that knew nothing of it, and may come back.
    database.sql("update capstan.meta set min_writer = 1");
    let older = store(&database).await;
    let stream = begin(&older, "k").await.stream_id;
    older.append(stream, 1, frames(1, 100)).await.unwrap();
    assert_eq!(kind(&database, stream), "1");

    database.sql("update capstan.meta set min_writer = schema");
    let newer = store(&database).await;
    let other = begin(&newer, "l").await.stream_id;
    newer.append(other, 1, frames(1, 100)).await.unwrap();
    assert_eq!(kind(&database, other), "2");
    for stream in [stream, other] {
        assert_eq!(newer.read(stream, 0, EVERYTHING, EVERYTHING).await.unwrap(), frames(1, 100));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn a_read_is_bounded_by_what_it_returns_and_not_by_what_is_stored() {
    let database = Database::create();
    let store = store(&database).await;
    let stream = begin(&store, "k").await.stream_id;
    for first in (1..2000).step_by(100) {
        store.append(stream, 1, frames(first, first + 99)).await.unwrap();
    }
    let (mut after, mut reads) = (0, 0);
    while after < 2000 {
        let some = store.read(stream, after, EVERYTHING, 10_000).await.unwrap();
        assert!(some.iter().map(|frame| frame.bytes.len()).sum::<usize>() <= 10_000);
        assert_eq!(some, frames(after + 1, after + some.len() as u64));
        (after, reads) = (after + some.len() as u64, reads + 1);
    }
    let size: usize = frames(1, 2000).iter().map(|frame| frame.bytes.len()).sum();
    assert!(
        reads <= size / 9000 + 1,
        "each is as full as it may be: {reads} reads of {size} bytes"
    );
}

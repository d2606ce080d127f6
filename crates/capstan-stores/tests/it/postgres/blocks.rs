//! Reads of packet blocks.

use std::sync::Arc;

use capstan_journal::{Replica, Store};
use capstan_stores::Durability;

use super::{begin, frames};
use crate::postgres_server::Database;

const EVERYTHING: usize = usize::MAX;

async fn store(database: &Database) -> Arc<dyn Store> {
    database.store(Durability::Process, Replica::default()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn read_limit_counts_uncompressed_bytes() {
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
        "each read should be nearly full: {reads} reads of {size} bytes"
    );
}

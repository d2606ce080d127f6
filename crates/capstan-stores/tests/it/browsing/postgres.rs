//! The same queries on a database. Filling it takes longer than a folder, so `make test` uses a
//! tenth of the runs.

use std::sync::Arc;

use capstan_journal::{Budget, Replica, Store};
use capstan_stores::Durability;

use super::many::{ask_all, assert_quick, filling, patient};
use crate::filled::Filling;
use crate::postgres_server::Database;

async fn filled(count: usize) -> (Database, Arc<dyn Store>, Filling) {
    let database = Database::create();
    let (store, filling) =
        (database.store(Durability::Process, Replica::default()).await, filling(count));
    filling.fill(&store).await;
    (database, store, filling)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn thousand_runs_match_every_query() {
    let (_database, store, filling) = filled(1_000).await;
    ask_all(&*store, &filling, patient(), false).await;
}

#[ignore = "soak: takes minutes"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_page_of_hundred_thousand_runs_takes_60_ms() {
    let (_database, store, filling) = filled(100_000).await;
    assert_quick(&ask_all(&*store, &filling, Budget::default(), false).await);
}

//! The database of a cluster: a real server, whose clock only the model moves.

use std::sync::Arc;
use std::time::Duration;

use capstan_journal::{Replica, Store};
use capstan_stores::{Options, connect, migrate};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls, Statement};

#[path = "../../../../../capstan-stores/tests/common/postgres.rs"]
mod postgres_server;
use postgres_server::Engine;

/// What is looked up here is found before PostgreSQL's own.
const CLOCK: &str = "create schema clock;
    create table clock.time (now timestamptz not null);
    insert into clock.time values (pg_catalog.clock_timestamp());
    create function clock.clock_timestamp() returns timestamptz language sql volatile as 'select \
    now from clock.time';
    alter database postgres set search_path = clock, pg_catalog, public;";
/// Not synced, so that it does not save from a crash what was written before it.
const STEP: &str = "update clock.time set now = now + $1::bigint * interval '1 microsecond'";
/// Where nothing is told: notices do not leave their database.
const DEAF: &str = "create database deaf";

pub(crate) struct Server {
    engine: Engine,
    line: Line,
    /// What the store itself says; nobody's gateway.
    pub(crate) truth: Arc<dyn Store>,
}

impl Server {
    /// A server of its own.
    pub(crate) async fn start() -> Self {
        // What is not synced stays in the server's memory, so that a crash loses it.
        let settings =
            ["wal_writer_delay=10s", "fsync=off", "max_connections=200", "autovacuum=off"];
        let engine = tokio::task::block_in_place(|| Engine::start(&settings));
        migrate(&engine.url()).await.unwrap();
        let (client, connection) = ask(&engine).await;
        client.batch_execute(CLOCK).await.unwrap();
        client.batch_execute(DEAF).await.unwrap();
        connection.abort();
        let line = Line::to(&engine).await;
        // It looks on, and gives hardly a sign of life: those are synced.
        let onlooker = Replica {
            name: "truth".into(),
            lease: Duration::from_secs(1_000_000),
            ..Replica::default()
        };
        let truth = connect(&engine.url(), Options::default(), onlooker).await.unwrap();
        Self { engine, line, truth }
    }

    /// Nobody needs to read the roots of all authorities for a socket in a folder.
    pub(crate) fn url(&self) -> String {
        format!("{}&sslmode=disable", self.engine.url())
    }

    /// For whoever is to hear no notice.
    pub(crate) fn deaf_url(&self) -> String {
        self.url().replacen("/postgres?", "/deaf?", 1)
    }

    /// Time passes, in the database.
    pub(crate) async fn step(&self, time: Duration) {
        let micros = i64::try_from(time.as_micros()).unwrap();
        self.line.client.execute(&self.line.step, &[&micros]).await.unwrap();
    }

    /// It dies with what it had not flushed, and comes back.
    pub(crate) async fn crash(&mut self) {
        tokio::task::block_in_place(|| {
            self.engine.end("QUIT");
            self.engine.start_again();
        });
        self.line.connection.abort();
        self.line = Line::to(&self.engine).await;
    }
}

/// The model's own connection.
struct Line {
    client: Client,
    connection: JoinHandle<()>,
    step: Statement,
}

impl Line {
    async fn to(engine: &Engine) -> Self {
        let (client, connection) = ask(engine).await;
        let step = client.prepare(STEP).await.unwrap();
        Self { client, connection, step }
    }
}

async fn ask(engine: &Engine) -> (Client, JoinHandle<()>) {
    let (client, connection) = tokio_postgres::connect(&engine.url(), NoTls).await.unwrap();
    let connection = tokio::spawn(async move { drop(connection.await) });
    client.batch_execute("set synchronous_commit = off").await.unwrap();
    (client, connection)
}

//! Databases of the server that `scripts/postgres` has started, and what it has spent so far.

use std::io;
use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

pub struct Database {
    pub url: String,
    pub client: Client,
}

fn server() -> String {
    std::env::var(super::SERVER).unwrap_or_default()
}

async fn connect(url: &str) -> io::Result<Client> {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(client)
}

async fn ask<T>(client: &Client, statement: &str) -> io::Result<T>
where
    T: for<'a> tokio_postgres::types::FromSql<'a>,
{
    let row = client.query_one(statement, &[]).await.map_err(io::Error::other)?;
    row.try_get(0).map_err(io::Error::other)
}

pub async fn version() -> io::Result<String> {
    ask(&connect(&server()).await?, "show server_version").await
}

impl Database {
    /// A new one with all tables. It goes with its server.
    pub async fn create() -> io::Result<Self> {
        let name = format!("bench_{}", Uuid::now_v7().simple());
        let first = connect(&server()).await?;
        first.batch_execute(&format!("create database {name}")).await.map_err(io::Error::other)?;
        let url = server().replacen("/postgres?", &format!("/{name}?"), 1);
        capstan_stores::migrate(&url).await.map_err(io::Error::other)?;
        Ok(Self { client: connect(&url).await?, url })
    }

    pub async fn ask<T>(&self, statement: &str) -> io::Result<T>
    where
        T: for<'a> tokio_postgres::types::FromSql<'a>,
    {
        ask(&self.client, statement).await
    }

    /// What the whole server has written to its log so far, in bytes.
    pub async fn log(&self) -> io::Result<i64> {
        self.ask("select (pg_current_wal_insert_lsn() - '0/0')::bigint").await
    }

    /// Processor time of the server and all that it has started.
    pub async fn cpu(&self) -> io::Result<Duration> {
        let folder: String = self.ask("show data_directory").await?;
        let file = std::fs::read_to_string(format!("{folder}/postmaster.pid"))?;
        let first: u32 =
            file.lines().next().unwrap_or_default().parse().map_err(io::Error::other)?;
        // Its own time and that of those that have ended; then of those that live.
        let mut ticks = fields(first, 11..15)?.iter().sum::<u64>();
        for entry in std::fs::read_dir("/proc")? {
            let Ok(pid) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
            // One that ends this moment is counted next time, with those that have.
            let Ok(parent) = fields(pid, 1..2) else { continue };
            if parent == [u64::from(first)] {
                ticks += fields(pid, 11..13).unwrap_or_default().iter().sum::<u64>();
            }
        }
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }
}

/// Some of the numbers behind a process's name.
fn fields(pid: u32, which: std::ops::Range<usize>) -> io::Result<Vec<u64>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    Ok(fields.skip(which.start).take(which.len()).filter_map(|field| field.parse().ok()).collect())
}
